"""FindCoordinator for every coordinator type and version, and the creation of a missing internal topic."""

from __future__ import annotations

from typing import Any, cast

import pytest
from coordinator_fakes import FakeCache, FakeTopicAdmin, Sent, send_request
from harrow.cluster.config import BrokerConfig
from harrow.cluster.coordinators import CoordinatorType, FindCoordinator
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS, InternalTopic, partition_for
from manual_host import ManualHost

KEY = "readers"
GROUPS_ONLY = {CoordinatorType.GROUP: OFFSETS}
BOTH = {**GROUPS_ONLY, CoordinatorType.TRANSACTION: TRANSACTIONS}
ALL_VERSIONS = pytest.mark.parametrize("version", range(7))


class FindCoordinatorTestBed:
    """A broker that serves only FindCoordinator."""

    def __init__(self, served: dict[CoordinatorType, InternalTopic]) -> None:
        self.host = ManualHost()
        self.cache = FakeCache()
        self.admin = FakeTopicAdmin(self.cache)
        (self.row,) = FindCoordinator(
            self.host, BrokerConfig.parse({}), cast("Any", self.cache), self.admin, served
        ).handlers()

    def send(self, version: int, *keys: str, **more: Any) -> Sent:
        fields = {"key": keys[0]} if version < 4 else {"coordinator_keys": keys}
        return send_request(self.host, self.row, version, **fields, **more)

    def find(self, version: int, **more: Any) -> Any:
        """The only coordinator in the response."""
        response = self.send(version, KEY, **more).response
        return response if version < 4 else response.coordinators[0]


@pytest.fixture
def bed() -> FindCoordinatorTestBed:
    made = FindCoordinatorTestBed(GROUPS_ONLY)
    made.cache.leaders[TopicPartition(OFFSETS.name, partition_for(KEY, 50))] = 2
    return made


@ALL_VERSIONS
def test_find_coordinator_returns_the_leader_of_the_partition_of_the_key(
    bed: FindCoordinatorTestBed, version: int
) -> None:
    found = bed.find(version)
    assert found.error_code is ErrorCode.none
    assert (found.node_id, found.host, found.port) == (2, "127.0.0.1", 9002)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_batched_request_returns_a_result_for_each_key(bed: FindCoordinatorTestBed, version: int) -> None:
    coordinators = bed.send(version, KEY, "elsewhere").response.coordinators
    assert [(row.key, row.node_id) for row in coordinators] == [(KEY, 2), ("elsewhere", -1)]
    assert coordinators[1].error_code is ErrorCode.coordinator_not_available


@ALL_VERSIONS
def test_missing_topic_is_created_once_with_its_settings(bed: FindCoordinatorTestBed, version: int) -> None:
    del bed.cache.topics[OFFSETS.name]
    assert bed.find(version).error_code is ErrorCode.coordinator_not_available
    settings = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert bed.admin.created == [(OFFSETS.name, 50, 3, settings)]
    assert bed.find(version).error_code is ErrorCode.none
    assert len(bed.admin.created) == 1


def test_refused_creation_is_reported_and_tried_again_by_the_next_request(bed: FindCoordinatorTestBed) -> None:
    del bed.cache.topics[OFFSETS.name]
    bed.admin.refusal = KafkaError(ErrorCode.invalid_replication_factor, "1 broker is alive")
    assert bed.find(6).error_code is ErrorCode.coordinator_not_available
    assert [event for event, _ in bed.host.events] == ["log.warning"]
    bed.admin.refusal = None
    assert bed.find(6).error_code is ErrorCode.coordinator_not_available
    assert bed.find(6).error_code is ErrorCode.none


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize(
    ("key_type", "words"),
    [(1, "transactions are not supported"), (2, "share groups"), (9, "unknown coordinator type 9")],
)
def test_coordinator_type_that_is_not_served_is_refused_with_a_message(
    bed: FindCoordinatorTestBed, version: int, key_type: int, words: str
) -> None:
    found = bed.find(version, key_type=key_type)
    assert found.error_code is ErrorCode.invalid_request
    assert words in found.error_message
    assert bed.admin.created == []


@pytest.mark.parametrize("version", range(1, 7))
def test_served_transaction_type_uses_the_topic_of_transactions(version: int) -> None:
    bed = FindCoordinatorTestBed(BOTH)
    assert bed.find(version, key_type=1).error_code is ErrorCode.coordinator_not_available
    ((name, partitions, replicas, settings),) = bed.admin.created
    assert (name, partitions, replicas) == ("__transaction_state", 50, 3)
    assert settings["min.insync.replicas"] == "2"
    bed.cache.leaders[TopicPartition(name, partition_for(KEY, 50))] = 3
    assert bed.find(version, key_type=1).node_id == 3
