"""Topics of a test: an admin client creates them; they are ready when each partition has a leader and a full ISR."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from harrow.cluster.argument_types import checked
from harrow.cluster.config import validate_topic_config
from harrow.cluster.errors import ClusterError, ConfigError, HarrowError
from harrow.cluster.wait_notes import WaitNotes, noted
from harrow.faults.controls import DEAD, PAUSED, RUNNING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harrow.cluster.view import PartitionView

    from .running_cluster import RunningCluster


CREATE_TIMEOUT_S = 30.0
LIST_TIMEOUT_S = 10.0
"""After it no further attempt begins."""
ATTEMPT_S = 2.0
"""Of one list of the consumer groups."""
POLL_S = 0.005
RETRY_BACKOFF_MS = 10
"""librdkafka drops the bootstrap connection when it learns the brokers, and retries a request on it after this time."""
EXISTS = "it exists, and its records are not this test's; choose another name, or delete it first"
"""Why a topic could not be created."""
NAME_LENGTH_MAX = 249
LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of the cluster under test; `str(topic)` is its name."""

    IN_WORDS: ClassVar[str] = "a topic of harrow.topic(…)"

    name: str
    partitions: int = 1
    replication_factor: int = 1
    config: Mapping[str, object] = field(default_factory=dict[str, object])

    def __str__(self) -> str:
        return self.name


def check_topic(topic: Topic, brokers: int) -> None:
    """Check name, partitions, replication factor and settings; ConfigError states the valid values."""
    name = topic.name
    if not 0 < len(name) <= NAME_LENGTH_MAX or name in (".", "..") or not set(name) <= LEGAL:
        raise ConfigError(f"topic {name!r}: expected 1 to {NAME_LENGTH_MAX} of a-z, A-Z, 0-9, . _ -")
    if topic.partitions < 1:
        raise ConfigError(f"topic {name}: partitions={topic.partitions}, expected 1 or more")
    if not 1 <= topic.replication_factor <= brokers:
        raise ConfigError(
            f"topic {name}: replication_factor={topic.replication_factor} on {brokers} brokers; "
            f"expected 1 to {brokers}, or more brokers: @pytest.mark.harrow(brokers=…)"
        )
    validate_topic_config(topic.config)


def create_topic(cluster: RunningCluster, topic: Topic) -> None:
    """Create it and wait until every partition has a leader and a full ISR."""
    from .running_cluster import own_requests_of

    if (own := own_requests_of(cluster)) is not None:
        own.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            config=topic.config,
        )
    else:
        _create(cluster, topic)
    cluster.topic_created(topic.name)
    _await_leaders(cluster, topic)


def _create(cluster: RunningCluster, topic: Topic) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(_settings(cluster.own_servers))
    new_topic = NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config={name: setting_text(value) for name, value in topic.config.items()},
    )
    what, state = f"topic {topic.name} to be created", partial(state_of, cluster)
    try:
        with noted(what, most_s=CREATE_TIMEOUT_S, detail=state):
            created = cast("Any", admin).create_topics([new_topic], operation_timeout=CREATE_TIMEOUT_S)
            created[topic.name].result(CREATE_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        reason = _reason(error)
        raise HarrowError(f"topic {topic.name} could not be created: {reason} ({state()})") from error


def topic_exists(cluster: RunningCluster, name: str) -> bool:
    """Whether the cluster has a topic. HarrowError when no broker responds."""
    from .running_cluster import own_requests_of

    if (own := own_requests_of(cluster)) is not None:
        return own.topic_exists(name)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return name in AdminClient(_settings(cluster.own_servers)).list_topics(timeout=LIST_TIMEOUT_S).topics
    except KafkaException as error:
        raise HarrowError(f"the topics could not be listed: {_reason(error)}") from error


def consumer_groups(cluster: RunningCluster) -> list[str]:
    """Return the ids of the consumer groups of a cluster; HarrowError when it does not respond.

    librdkafka waits without end for a broker that a later Metadata lacks, as that of a broker which was healed just now
    and has not registered yet. So each attempt is short, and has a client of its own.
    """
    from .running_cluster import own_requests_of

    if (own := own_requests_of(cluster)) is not None:
        return sorted(own.list_groups().states)
    deadline = time.monotonic() + LIST_TIMEOUT_S
    while True:
        try:
            return _consumer_groups_once(cluster.own_servers)
        except HarrowError:
            if time.monotonic() > deadline:
                raise


def _consumer_groups_once(bootstrap_servers: str) -> list[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from .requests.final_groups import list_groups

    try:
        found = listed_groups(AdminClient(_settings(bootstrap_servers)), ATTEMPT_S)
        # librdkafka leaves out the groups of other protocols than consumers', such as streams groups
        return sorted({*found, *list_groups(bootstrap_servers).states})
    except (KafkaException, TimeoutError) as error:
        raise HarrowError(f"the consumer groups could not be listed: {_reason(error)}") from error


def listed_groups(admin: Any, timeout_s: float) -> list[str]:
    """Return the ids of the consumer groups; KafkaException also where one broker did not respond, or TimeoutError."""
    from confluent_kafka import KafkaException

    # librdkafka asks each broker that it knows; before it knows one, the list can be empty without an error
    admin.describe_cluster(request_timeout=timeout_s).result(timeout_s)
    listing = admin.list_consumer_groups(request_timeout=timeout_s).result(timeout_s)
    for error in listing.errors or ():
        raise KafkaException(error)
    return sorted(group.group_id for group in listing.valid)


def _reason(error: Exception) -> str:
    from confluent_kafka import KafkaError

    first = error.args[0] if error.args else None
    if isinstance(first, KafkaError) and first.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return EXISTS
    return str(error) or "no response in time"


def _settings(bootstrap_servers: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "harrow",
        "log_level": 0,
        "retry.backoff.ms": RETRY_BACKOFF_MS,
    }


def setting_text(value: object) -> str:
    """Return the value of a setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def state_of(cluster: RunningCluster) -> str:
    """Say which brokers run and which controller is active: why a cluster may not serve, and the remedy."""
    states = {node: broker.state for node, broker in cluster.brokers.items()}
    said = ", ".join(f"broker {node} is {state}" for node, state in states.items())
    remedies: list[str] = []
    if PAUSED in states.values():
        remedies.append("resume() the paused brokers")
    if DEAD in states.values():
        remedies.append("start() the dead brokers")
    with contextlib.suppress(HarrowError):
        number = cluster.controller_id()
        said += "; no active controller" if number is None else f"; controller {number}"
    return f"{said}; {', '.join(remedies)}, or call it outside the chaos block" if remedies else said


def not_running(cluster: RunningCluster) -> str:
    """Say in brackets which brokers do not run, and what to do; empty when all of them run."""
    states = {broker.state for broker in cluster.brokers.values()}
    return f" ({state_of(cluster)})" if states != {RUNNING} else ""


def _await_leaders(cluster: RunningCluster, topic: Topic) -> None:
    deadline = time.monotonic() + CREATE_TIMEOUT_S
    notes = WaitNotes(most_s=CREATE_TIMEOUT_S)
    while True:
        found: Mapping[int, PartitionView] = {}
        with contextlib.suppress(ClusterError):  # a registry that is paused, or that starts again
            found = cluster.describe().topics.get(topic.name, {})
        led = [view for view in found.values() if view.leader >= 0]
        full = [view for view in led if len(view.isr) == topic.replication_factor]
        if len(full) == topic.partitions:
            return
        lacking = f"{len(led)} of {topic.partitions} partitions have a leader and {len(full)} a full ISR"
        if time.monotonic() > deadline:
            raise HarrowError(
                f"topic {topic.name}: {lacking} after {CREATE_TIMEOUT_S:.0f} s ({state_of(cluster)}); "
                f"see {cluster.folder}"
            )
        notes.look(f"leaders and full ISRs of topic {topic.name}", lacking)
        time.sleep(POLL_S)
