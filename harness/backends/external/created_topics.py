"""The topics that a test created on a cluster that outlives the test, and their removal.

Owns: the id of each topic when it was created. A topic is deleted by its name only while it has that id, so a topic of
the same name that another program created later stays.

What may fail: ClusterError, which names the topics that stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow.cluster.errors import ClusterError

DELETE_TIMEOUT_S = 30.0
POLL_S = 0.05
UNKNOWN = ""

TopicIds = Callable[[], Mapping[str, str]]
"""Asks the cluster for the id of each topic."""


class CreatedTopics:
    """Topics by name, with their ids."""

    def __init__(self, topic_ids: TopicIds) -> None:
        self._topic_ids = topic_ids
        self._created: dict[str, str] = {}

    @property
    def names(self) -> frozenset[str]:
        """Their names."""
        return frozenset(self._created)

    def add(self, name: str) -> None:
        """Note that this topic was created now; the broker that is asked may learn it a little later."""
        self._created[name] = UNKNOWN
        deadline = time.monotonic() + DELETE_TIMEOUT_S
        while self._created[name] == UNKNOWN and time.monotonic() < deadline:
            self._created[name] = self._topic_ids().get(name, UNKNOWN)
            if self._created[name] == UNKNOWN:
                time.sleep(POLL_S)

    def delete(self, bootstrap_servers: str) -> None:
        """Delete them, and wait until topics of these names can be created again."""
        created, self._created = self._created, {}
        if not created:
            return
        try:
            there = self._topic_ids()
            mine = {name: id_ for name, id_ in created.items() if there.get(name) == id_}
            if mine:
                admin: Any = AdminClient(
                    {"bootstrap.servers": bootstrap_servers, "client.id": "harrow", "log_level": 0}
                )
                _delete(admin, list(mine))
                self._await_removal(admin, mine)
            _check_known(created)
        except (ClusterError, KafkaException, TimeoutError) as error:
            raise ClusterError(
                f"the test created the topics {', '.join(sorted(created))}, and they could not be deleted: {error}; "
                "delete them with Kafka's tools"
            ) from error

    def _await_removal(self, admin: Any, created: Mapping[str, str]) -> None:
        """Brokers forget a topic before the controller does, which then still refuses a topic of this name."""
        deadline = time.monotonic() + DELETE_TIMEOUT_S
        while True:
            there = self._topic_ids()
            listed = [name for name, id_ in created.items() if there.get(name) == id_]
            free = (name for name in created if name not in there)
            left = listed or [name for name in free if _is_refused(admin, name)]
            if not left:
                return
            if time.monotonic() > deadline:
                raise ClusterError(f"the cluster still has {', '.join(left)}")
            time.sleep(POLL_S)


def _check_known(created: Mapping[str, str]) -> None:
    unknown = sorted(name for name, id_ in created.items() if id_ == UNKNOWN)
    if unknown:
        raise ClusterError(f"the cluster did not tell the ids of {', '.join(unknown)}")


def _delete(admin: Any, names: list[str]) -> None:
    for deleted in admin.delete_topics(names, operation_timeout=DELETE_TIMEOUT_S).values():
        deleted.result(DELETE_TIMEOUT_S)


def _is_refused(admin: Any, name: str) -> bool:
    """Whether a topic of this name is refused because there is one; nothing is created."""
    new = NewTopic(name, num_partitions=1, replication_factor=1)
    try:
        admin.create_topics([new], validate_only=True)[name].result(DELETE_TIMEOUT_S)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return False
