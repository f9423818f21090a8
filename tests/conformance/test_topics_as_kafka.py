"""Requests about topics are served on every broker, and refused, as by Apache Kafka 4.2 (A4, A7, D4)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import batch, fetch_request
from waiting import until

NODES = (1, 2, 3)
TIMED_OUT, UNKNOWN, MOVED, NO_ID = 7, 3, 6, 100
WAIT_MS = 20_000
NO_TIME = (0, -1)


def ask(kafka: Any, node: int, api_key: int, version: int, **fields: Any) -> Any:
    """Sends a request whose `timeout_ms` becomes its field `timeout`; returns the response."""
    return kafka.raw(node).ask(api_key, version, timeout=fields.pop("timeout_ms", WAIT_MS), **fields)


def create(kafka: Any, node: int, name: str, *, timeout_ms: int = WAIT_MS, dry: bool = False) -> int:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = ask(kafka, node, ApiKey.CREATE_TOPICS, 5, topics=(topic,), validate_only=dry, timeout_ms=timeout_ms)
    return int(answer.topics[0].error_code)


def delete(kafka: Any, node: int, name: str, timeout_ms: int = WAIT_MS) -> int:
    row = {"name": name, "topic_id": None}
    answer = ask(kafka, node, ApiKey.DELETE_TOPICS, 6, topics=(row,), timeout_ms=timeout_ms)
    return int(answer.responses[0].error_code)


def grow(kafka: Any, node: int, name: str, count: int, timeout_ms: int = WAIT_MS) -> int:
    row = {"name": name, "count": count, "assignments": None}
    answer = ask(kafka, node, ApiKey.CREATE_PARTITIONS, 3, topics=(row,), validate_only=False, timeout_ms=timeout_ms)
    return int(answer.results[0].error_code)


def elect(kafka: Any, node: int, name: str, timeout_ms: int = WAIT_MS) -> tuple[int, int]:
    """The error of the response and that of the partition, after a preferred election."""
    row = {"topic": name, "partitions": (0,)}
    answer = ask(kafka, node, ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=(row,), timeout_ms=timeout_ms)
    partition = answer.replica_election_results[0].partition_result[0]
    return int(answer.error_code), int(partition.error_code)


def reassign(kafka: Any, node: int, name: str, replicas: Iterable[int], timeout_ms: int = WAIT_MS) -> tuple[int, int]:
    """The error of the response and that of the partition."""
    row = {"partition_index": 0, "replicas": tuple(replicas)}
    topic = {"name": name, "partitions": (row,)}
    answer = ask(
        kafka,
        node,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        topics=(topic,),
        allow_replication_factor_change=True,
        timeout_ms=timeout_ms,
    )
    return int(answer.error_code), int(answer.responses[0].partitions[0].error_code)


def reassignments(kafka: Any, node: int, timeout_ms: int = WAIT_MS) -> int:
    answer = ask(kafka, node, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout_ms=timeout_ms)
    return int(answer.error_code)


def partitions(kafka: Any, node: int, name: str) -> int:
    return len(kafka.raw(node).metadata(name).topics[0].partitions)


def has(kafka: Any, node: int, name: str, count: int) -> bool:
    """Whether a broker knows so many partitions of a topic."""
    return partitions(kafka, node, name) == count


def in_order(kafka: Any, node: int, name: str, replicas: tuple[int, ...]) -> bool:
    """Whether a broker knows these replicas of partition 0, in this order."""
    return bool(kafka.partition(name, node).replica_nodes == replicas)


def is_deleted(kafka: Any, node: int, name: str) -> bool:
    return delete(kafka, node, name) in (0, UNKNOWN)


def test_requests_of_operators_are_served_on_every_broker(kafka: Any) -> None:
    for node in NODES:
        name = f"{kafka.topic('served', 1)}-{node}"
        assert create(kafka, node, name) == 0
        for other in NODES:
            until(partial(has, kafka, other, name, 1), "the topic is known")
        assert grow(kafka, node, name, 2) == 0
        until(partial(has, kafka, node, name, 2), "two partitions are known")
        assert elect(kafka, node, name) == (0, 84), "its leader is the preferred leader"
        assert reassign(kafka, node, name, [node]) == (0, 0)
        assert reassignments(kafka, node) == 0
        until(partial(is_deleted, kafka, node, name), "it is deleted")
        until(partial(has, kafka, node, name, 0), "it is gone")


def test_a_request_without_time_is_not_begun(kafka: Any) -> None:
    name = kafka.topic("no-time", 1, 2)
    for node, timeout_ms in [(node, timeout_ms) for node in NODES for timeout_ms in NO_TIME]:
        new = f"{name}-{node}-{timeout_ms}"
        late: Any = {"timeout_ms": timeout_ms}
        for dry in (False, True):
            assert create(kafka, node, new, dry=dry, **late) == TIMED_OUT
        assert create(kafka, node, "no topic's name", **late) == TIMED_OUT
        assert partitions(kafka, node, new) == 0
        assert delete(kafka, node, name, **late) == TIMED_OUT
        assert grow(kafka, node, name, 3, **late) == TIMED_OUT
        assert elect(kafka, node, name, **late) == (TIMED_OUT, TIMED_OUT)
        assert reassign(kafka, node, name, [3], **late) == (TIMED_OUT, TIMED_OUT)
        assert reassignments(kafka, node, **late) == 0
    # what was begun after these is done, so they would be, too
    assert elect(kafka, 1, name) == (0, 84)
    for node in NODES:
        row = kafka.partition(name, node)
        assert (partitions(kafka, node, name), row.replica_nodes, row.leader_epoch) == (1, (1, 2), 0)


def test_an_election_of_all_partitions_names_every_topic(kafka: Any) -> None:
    name = kafka.topic("needs-no-election", 1)
    answer = ask(kafka, 2, ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=None)
    found = {row.topic: row.partition_result for row in answer.replica_election_results}
    assert (answer.error_code, found[name]) == (0, ())


def test_a_reassignment_to_the_same_replicas_keeps_the_leader_epoch(kafka: Any) -> None:
    name = kafka.topic("same", 1, 2)
    for replicas in ((1, 2), (2, 1), (1, 2), (2, 1)):
        assert reassign(kafka, 3, name, replicas) == (0, 0)
        for node in NODES:
            until(partial(in_order, kafka, node, name, replicas), "the order is known")
            row = kafka.partition(name, node)
            assert (row.leader_id, row.leader_epoch, set(row.isr_nodes)) == (1, 0, {1, 2})
    # a consumer with the epoch of before is not fenced
    assert kafka.raw(1).fetch(name, 0, 0, epoch=0).error_code == 0
    assert elect(kafka, 2, name) == (0, 0), "and the new preferred leader can lead"


def test_no_broker_creates_the_topic_of_kraft(kafka: Any) -> None:
    for node in NODES:
        for dry in (False, True):
            assert create(kafka, node, "__cluster_metadata", dry=dry) == 42
        assert create(kafka, node, "__consumer_offsets-like", dry=True) == 0
        assert kafka.raw(node).metadata("__cluster_metadata").topics[0].error_code == UNKNOWN


# ------------------------------------------------------------------- Metadata


def described(kafka: Any, version: int, *rows: tuple[str | None, Any]) -> list[tuple[Any, ...]]:
    """Error, name, id and number of partitions of each topic in the response."""
    topics = tuple({"name": name, "topic_id": topic_id} for name, topic_id in rows)
    answer = kafka.raw(2).ask(ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=False)
    return [(int(row.error_code), row.name, row.topic_id, len(row.partitions)) for row in answer.topics]


def test_metadata_goes_by_the_id_whatever_the_name_is(kafka: Any) -> None:
    name = kafka.topic("by-id", 1)
    (row,) = kafka.raw(2).metadata(name, version=12).topics
    known, unknown = row.topic_id, uuid.UUID(int=1 << 90)
    for version in (12, 13):
        asked = partial(described, kafka, version)
        for given in (None, "", "another", name):
            assert asked((given, known)) == [(0, name, known, 1)], given
            assert asked((given, unknown)) == [(NO_ID, None, unknown, 0)], given
        assert asked((name, None), (None, known)) == [(0, name, known, 1)]
        assert asked(("not-there", None), ("", known)) == [(0, name, known, 1)]
        assert asked((name, None)) == [(0, name, known, 1)]
    for version in (10, 11):
        asked = partial(described, kafka, version)
        for given in ("", "another", name):
            assert asked((given, known)) == [(42, given, known, 0)], given
        assert sorted(asked((name, None), ("x", known)), key=str) == sorted(
            [(42, name, None, 0), (42, "x", known, 0)], key=str
        )
        assert asked((name, None)) == [(0, name, known, 1)]


# ------------------------------------------------ what a known topic does not have


def produced(kafka: Any, node: int, version: int, topic: str, topic_id: Any, index: int) -> Any:
    row = {"index": index, "records": batch(["x"])}
    named = {"name": topic, "topic_id": topic_id, "partition_data": (row,)}
    return ask(kafka, node, ApiKey.PRODUCE, version, transactional_id=None, acks=-1, topic_data=(named,))


def fetched(kafka: Any, node: int, version: int, topic: str, topic_id: Any, index: int) -> Any:
    request = fetch_request(topic, index, 0, version, max_bytes=1000, topic_id=topic_id)
    return kafka.raw(node).ask(ApiKey.FETCH, version, request)


def errors(kafka: Any, node: int, topic: str, topic_id: Any, index: int) -> dict[int, set[int]]:
    """By API the errors of a partition, in all versions."""
    found: dict[int, set[int]] = {}
    where = (topic, topic_id, index)
    for version in range(3, 14):
        answer = produced(kafka, node, version, *where)
        row = answer.responses[0].partition_responses[0]
        found.setdefault(ApiKey.PRODUCE, set()).add(int(row.error_code))
    for version in range(4, 19):
        (row,) = fetched(kafka, node, version, *where).responses[0].partitions
        found.setdefault(ApiKey.FETCH, set()).add(int(row.error_code))
    raw = kafka.raw(node)
    found[ApiKey.LIST_OFFSETS] = {
        int(raw.list_offset(topic, index, -1, version=version).error_code) for version in range(1, 12)
    }
    found[ApiKey.OFFSET_FOR_LEADER_EPOCH] = {
        int(raw.epoch_end(topic, index, 0, version=version).error_code) for version in (2, 3, 4)
    }
    rows = ({"partition_index": index, "offset": 0},)
    answer = ask(kafka, node, ApiKey.DELETE_RECORDS, 2, topics=({"name": topic, "partitions": rows},))
    found[ApiKey.DELETE_RECORDS] = {int(answer.topics[0].partitions[0].error_code)}
    answer = kafka.raw(node).ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=({"name": topic, "partition_indexes": (index,)},))
    found[ApiKey.DESCRIBE_PRODUCERS] = {int(answer.topics[0].partitions[0].error_code)}
    return found


def markers(kafka: Any, node: int, topic: str, index: int) -> set[int]:
    """The errors of WriteTxnMarkers, in both versions."""
    found: set[int] = set()
    for version in (1, 2):
        rows = ({"name": topic, "partition_indexes": (index,)},)
        marker = {"producer_id": 77, "producer_epoch": 0, "topics": rows}
        answer = kafka.raw(node).ask(ApiKey.WRITE_TXN_MARKERS, version, markers=(marker,))
        found.add(int(answer.markers[0].topics[0].partitions[0].error_code))
    return found


def test_an_index_that_a_topic_does_not_have_is_unknown_on_every_broker(kafka: Any) -> None:
    name = kafka.topic("one-partition", 1)
    topic_id = kafka.raw(2).metadata(name, version=12).topics[0].topic_id
    for node, index in ((1, 5), (1, -1), (2, 5), (2, -1)):
        codes = errors(kafka, node, name, topic_id, index)
        assert set().union(*codes.values()) == {UNKNOWN}, (node, index, codes)
        assert markers(kafka, node, name, index) == {UNKNOWN}
    codes = errors(kafka, 2, name, topic_id, 0)
    assert set().union(*codes.values()) == {MOVED}, codes
    assert markers(kafka, 2, name, 0) == {UNKNOWN}


def test_a_broker_without_a_replica_names_the_leader_and_its_endpoint(kafka: Any) -> None:
    name = kafka.topic("elsewhere", 1, 3)
    topic_id = kafka.raw(2).metadata(name, version=12).topics[0].topic_id
    leader = [(1, "127.0.0.1", kafka.ports[1], None)]
    for node in (2, 3):  # one without a replica, one with a follower
        for version in range(10, 14):
            answer = produced(kafka, node, version, name, topic_id, 0)
            row = answer.responses[0].partition_responses[0]
            assert named(answer, row) == (MOVED, 1, 0, leader), version
    for version in range(16, 19):
        answer = fetched(kafka, 2, version, name, topic_id, 0)
        assert named(answer, answer.responses[0].partitions[0]) == (MOVED, 1, 0, leader), version
        answer = fetched(kafka, 2, version, name, topic_id, 9)
        assert named(answer, answer.responses[0].partitions[0]) == (UNKNOWN, -1, -1, []), version


def named(answer: Any, row: Any) -> tuple[int, int, int, list[tuple[Any, ...]]]:
    """The error, the leader and its epoch in a row, and the endpoints in the response."""
    current = row.current_leader
    endpoints = [(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints]
    return int(row.error_code), current.leader_id, current.leader_epoch, endpoints
