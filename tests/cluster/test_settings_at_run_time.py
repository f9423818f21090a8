"""Settings changed while brokers run take effect on every broker, without a restart (A4, KIP-226, KIP-339)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from harrow import Cluster
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from kafka.admin import ConfigResource as TypedResource
from kafka.admin import NewTopic
from kafka.errors import InvalidRequestError
from kafka_python_admin import SOCKETS, admin_of
from raw_kafka import RawKafka
from waiting import until

BIG = b"x" * 20_000
ConfigResource: Any = TypedResource  # its annotations are narrower than the values it accepts

pytestmark = SOCKETS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, config={"min.insync.replicas": 1}) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Any]:
    with admin_of(cluster) as client:
        yield client


def produce_error(cluster: Cluster, topic: str, value: bytes) -> int | None:
    """Produces `value` with acks=all and returns the error code; None when it was acknowledged."""
    found: list[Any] = []
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0, "retries": 0}
    producer = Producer(settings)
    producer.produce(topic, value, partition=0, on_delivery=lambda e, m: found.append(e and e.code()))
    assert producer.flush(30) == 0
    code: int | None = found[0]
    return code


def settings_of(admin: Any, kind: str, name: str, *wanted: str) -> dict[str, tuple[str, str]]:
    (found,) = admin.describe_configs([ConfigResource(kind, name, list(wanted))], config_filter="all")[
        kind.lower()
    ].values()
    return {key: (row["value"], row["config_source"]) for key, row in found.items()}


def change(admin: Any, kind: str, name: str, **values: object) -> None:
    given = {key.replace("_", "."): value for key, value in values.items()}
    answer = admin.alter_configs([ConfigResource(kind, name, given)])
    for rows in answer.values():
        for error in rows.values():
            if error not in (None, "NoError", "OK"):
                raise AssertionError(error)


def change_all_brokers(cluster: Cluster, value: str | None) -> None:
    """Changes the cluster-wide default; neither kafka-python nor confluent-kafka can name all brokers."""
    with RawKafka(cluster.brokers[1].port) as raw:
        changed = raw.change_settings(4, "", ("message.max.bytes", 0 if value else 1, value))
    assert changed.error_code is ErrorCode.none


def test_changing_a_topic_setting_applies_to_the_next_records(cluster: Cluster, admin: Any) -> None:
    admin.create_topics([NewTopic("sized", 1, 2, topic_configs={"max.message.bytes": "10000"})])
    assert produce_error(cluster, "sized", BIG) == KafkaError.MSG_SIZE_TOO_LARGE
    change(admin, "TOPIC", "sized", max_message_bytes="100000")
    until(lambda: produce_error(cluster, "sized", BIG) is None)
    change(admin, "TOPIC", "sized", max_message_bytes=("DELETE", None))
    assert "sized" in admin.list_topics()
    change(admin, "TOPIC", "sized", max_message_bytes="10000")
    until(lambda: produce_error(cluster, "sized", BIG) == KafkaError.MSG_SIZE_TOO_LARGE)
    cluster.await_converged()  # a follower appends what its leader accepted, also above its own limit


def test_a_cluster_wide_setting_is_inherited_and_a_topic_setting_overrides_it(cluster: Cluster, admin: Any) -> None:
    admin.create_topics([NewTopic("inherits", 1, 2)])
    assert produce_error(cluster, "inherits", BIG) is None
    change_all_brokers(cluster, "10000")
    until(lambda: produce_error(cluster, "inherits", BIG) == KafkaError.MSG_SIZE_TOO_LARGE)
    shown = settings_of(admin, "TOPIC", "inherits", "max.message.bytes")
    assert shown == {"max.message.bytes": ("10000", "DYNAMIC_DEFAULT_BROKER_CONFIG")}
    change(admin, "TOPIC", "inherits", max_message_bytes="100000")
    until(lambda: produce_error(cluster, "inherits", BIG) is None)
    change_all_brokers(cluster, None)
    key = "message.max.bytes"
    until(lambda: settings_of(admin, "BROKER", "1", key)[key][1] == "DEFAULT_CONFIG")


def test_changing_a_static_setting_at_run_time_is_refused(admin: Any) -> None:
    with pytest.raises((InvalidRequestError, AssertionError, ValueError), match=r"dynamic|Unrecognized configs"):
        change(admin, "BROKER", "1", replica_lag_time_max_ms="5")
    assert settings_of(admin, "BROKER", "1", "replica.lag.time.max.ms") == {
        "replica.lag.time.max.ms": ("30000", "DEFAULT_CONFIG")
    }


def test_restarting_a_broker_keeps_its_changed_settings(cluster: Cluster, admin: Any) -> None:
    admin.create_topics([NewTopic("lasting", 1, 2)])
    change(admin, "BROKER", "2", log_segment_bytes="5000000")
    change(admin, "TOPIC", "lasting", segment_bytes="7000000")
    cluster.brokers[2].restart()
    cluster.await_full_isr()
    with admin_of(cluster) as client:
        shown = settings_of(client, "BROKER", "2", "log.segment.bytes")
        assert shown == {"log.segment.bytes": ("5000000", "DYNAMIC_BROKER_CONFIG")}
        assert settings_of(client, "TOPIC", "lasting", "segment.bytes") == {
            "segment.bytes": ("7000000", "DYNAMIC_TOPIC_CONFIG")
        }


def test_enabling_unclean_election_elects_the_live_replica(cluster: Cluster, admin: Any) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    dead = 3 - controller  # the leader, whichever broker the controller is
    admin.create_topics([NewTopic("allowed", replica_assignments={0: [dead, controller]})])
    cluster.await_converged()  # both brokers have the partition
    # The follower cannot fetch until its leader is dead, so it never returns to the ISR.
    cluster.control(controller, "links.block", peers=[f"broker {dead}"], direction="both")
    try:
        assert produce_error(cluster, "allowed", b"missing on the follower") is None
        until(lambda: cluster.isr("allowed", 0) == [dead])
        cluster.brokers[dead].kill()
    finally:
        cluster.control(controller, "links.heal", mode="reset")
    until(lambda: cluster.leader("allowed", 0) is None)
    with admin_of(cluster) as client:
        change(client, "TOPIC", "allowed", unclean_leader_election_enable="true")
        until(lambda: cluster.leader("allowed", 0) == controller)
    cluster.brokers[dead].start()
    cluster.await_converged()


def test_settings_of_a_group_are_known_to_a_broker_that_starts_later(cluster: Cluster) -> None:
    name = "late/readers"
    with RawKafka(cluster.brokers[1].port) as raw:
        changed = raw.change_settings(32, name, ("consumer.session.timeout.ms", 0, "50000"))
    assert changed.error_code is ErrorCode.none
    cluster.brokers[2].kill()
    cluster.brokers[2].start()
    with RawKafka(cluster.brokers[2].port) as raw:

        def groups() -> set[str]:
            answer = raw.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[32])
            return {found.resource_name for found in answer.config_resources}

        until(lambda: name in groups(), "the restarted broker has the settings of the group")
