"""Edge values in requests about topics are refused with the errors of Apache Kafka 4.2 (A4)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from harrow.cluster.wire.api_keys import ApiKey
from waiting import until

WAIT_MS = 20_000
ASSIGNED = -1
EXISTS, INVALID_NAME, PARTITIONS, FACTOR, ASSIGNMENT, REQUEST = 36, 17, 37, 38, 39, 42
Placed = Sequence[tuple[int, Sequence[int]]]


def topic(name: str, partitions: int = 1, factor: int = 1, placed: Placed = (), version: int = 5) -> Any:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": tuple({"partition_index": index, "broker_ids": tuple(nodes)} for index, nodes in placed),
    }


def validated(kafka: Any, *topics: Any, version: int = 5) -> list[tuple[str, int]]:
    """Name and error of each result of a CreateTopics that only validates."""
    answer = kafka.raw(2).ask(ApiKey.CREATE_TOPICS, version, topics=topics, timeout=WAIT_MS, validate_only=True)
    return [(row.name, int(row.error_code)) for row in answer.topics]


def error(kafka: Any, *numbers: int, placed: Placed = ()) -> int:
    partitions, factor = (*numbers, 1, 1)[:2]
    ((_, code),) = validated(kafka, topic("not-there", partitions, factor, placed))
    return code


def test_numbers_of_partitions_and_replicas_are_checked_in_kafkas_order(kafka: Any) -> None:
    for factor in (0, -2, -(2**15)):
        for partitions in (0, -2, 1, -1):
            assert error(kafka, partitions, factor) == FACTOR, (partitions, factor)
    for partitions in (0, -2, -(2**31)):
        for factor in (-1, 1, 4):
            assert error(kafka, partitions, factor) == PARTITIONS, (partitions, factor)
    assert error(kafka, 1, 4) == FACTOR
    assert error(kafka, -1, -1) == 0


def test_assignments_are_checked_as_by_kafka(kafka: Any) -> None:
    good: Placed = [(1, [2]), (0, [1])]
    assert error(kafka, ASSIGNED, ASSIGNED, placed=good) == 0
    for numbers in ((2, -1), (-1, 1), (2, 1)):
        assert error(kafka, *numbers, placed=good) == REQUEST, numbers
    twice: Placed = [(0, [1]), (0, [2])]
    assert error(kafka, 1, 1, placed=twice) == REQUEST
    wrong: tuple[Placed, ...] = (
        twice,
        [(1, [1])],
        [(0, [1]), (2, [1])],
        [(-1, [1])],
        [(0, [])],
        [(0, [1, 1])],
        [(0, [9])],
        [(0, [-1])],
        [(0, [1]), (1, [1, 2])],
    )
    for placed in wrong:
        assert error(kafka, ASSIGNED, ASSIGNED, placed=placed) == ASSIGNMENT, placed


def test_results_of_topics_that_are_named_twice_are_the_last(kafka: Any) -> None:
    there = kafka.topic("there", 1)
    for version in range(2, 8):
        names = ("twice", "twice", "new", "__cluster_metadata", there, "a b")
        topics = [topic(name, version=version) for name in names]
        assert validated(kafka, *topics, version=version) == [
            ("new", 0),
            (there, EXISTS),
            ("a b", INVALID_NAME),
            ("twice", REQUEST),
            ("__cluster_metadata", REQUEST),
        ]
    of_kraft = topic("__cluster_metadata", 2**31 - 1, factor=0)  # its partitions do not count
    for others in ([], [topic("new")]):
        wanted = [*[("new", 0) for _ in others], ("__cluster_metadata", REQUEST)]
        assert validated(kafka, of_kraft, *others) == wanted


def test_a_topic_that_is_only_validated_has_an_id(kafka: Any) -> None:
    topics = [topic("validated", version=7)]
    (row,) = kafka.raw(1).ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=WAIT_MS, validate_only=True).topics
    assert (row.error_code, row.topic_id is None) == (0, False)
    assert kafka.raw(1).metadata("validated").topics[0].error_code == 3


def test_topics_to_delete_are_named_once_by_name_or_by_id(kafka: Any) -> None:
    name = kafka.topic("kept", 1)
    own = kafka.raw(1).metadata(name, version=12).topics[0].topic_id
    strange = uuid.UUID(int=1 << 90)

    def deleted(*rows: tuple[str | None, Any]) -> list[tuple[str | None, Any, int]]:
        states = tuple({"name": text, "topic_id": number} for text, number in rows)
        answer = kafka.raw(3).ask(ApiKey.DELETE_TOPICS, 6, topics=states, timeout=WAIT_MS)
        found = [(row.name, row.topic_id, int(row.error_code)) for row in answer.responses]
        return sorted(found, key=str)  # Kafka draws their order

    assert deleted((name, None), (None, own)) == [(name, own, REQUEST)]
    assert deleted((None, own), (name, None)) == [(name, own, REQUEST)]
    assert deleted((name, own)) == [(name, own, REQUEST)]
    assert deleted((name, None), (name, None)) == [(name, None, REQUEST)]
    assert deleted((None, None), (None, None)) == [(None, None, REQUEST)] * 2
    assert deleted((None, strange), ("nowhere", None)) == [("nowhere", None, 3), (None, strange, 100)]
    assert kafka.raw(3).metadata(name).topics[0].error_code == 0
    assert deleted((None, own)) == [(name, own, 0)]
    until(lambda: kafka.raw(3).metadata(name).topics[0].error_code == 3, "the topic is gone")


def test_results_of_partitions_mirror_the_request(kafka: Any) -> None:
    name = kafka.topic("mirrored", 1)
    rows = ((name, (0, 0)), (name, (0, 7)), (name, ()), ("nowhere", (0,)))
    answer = kafka.raw(2).ask(
        ApiKey.ELECT_LEADERS,
        2,
        election_type=0,
        timeout=WAIT_MS,
        topic_partitions=tuple({"topic": t, "partitions": p} for t, p in rows),
    )
    assert [
        (row.topic, [(item.partition_id, int(item.error_code)) for item in row.partition_result])
        for row in answer.replica_election_results
    ] == [(name, [(0, 84), (0, 84)]), (name, [(0, 84), (7, 3)]), (name, []), ("nowhere", [(0, 3)])]
    topics = tuple(
        {"name": topic, "partitions": tuple({"partition_index": index, "replicas": None} for index in indexes)}
        for topic, indexes in rows
    )
    answer = kafka.raw(2).ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=WAIT_MS)
    assert [
        (row.name, [(item.partition_index, int(item.error_code)) for item in row.partitions])
        for row in answer.responses
    ] == [(name, [(0, 85), (0, 85)]), (name, [(0, 85), (7, 3)]), (name, []), ("nowhere", [(0, 3)])]


def test_operations_are_described_for_topics_that_do_not_exist(kafka: Any) -> None:
    names, strange = ("nowhere", "a b"), uuid.UUID(int=1 << 90)
    for rows, expected in (([(name, None) for name in names], 3576), ([(None, strange)], -(2**31))):
        topics = [{"name": text, "topic_id": number} for text, number in rows]
        fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
        answer = kafka.raw(2).ask(ApiKey.METADATA, 12, topics=topics, **fields)
        assert {row.topic_authorized_operations for row in answer.topics} == {expected}


def test_records_are_deleted_up_to_the_offset_that_is_named_last(kafka: Any) -> None:
    name, raw = kafka.topic("deleted", 1, 2), kafka.raw(1)
    for text in ("a", "b"):
        assert raw.produce(name, 0, [text]).error_code == 0
    rows = tuple({"partition_index": 0, "offset": offset} for offset in (1, -4))
    answer = raw.ask(ApiKey.DELETE_RECORDS, 2, topics=[{"name": name, "partitions": rows}], timeout=WAIT_MS)
    (found,) = answer.topics[0].partitions
    assert int(found.error_code) == 1, "an offset out of range"
    assert raw.list_offset(name, 0, -2).offset == 0
