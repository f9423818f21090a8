"""Topologies of streams groups: numbers of partitions and tasks, what is missing, and their records (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.groups.records import StreamsKey, decode_key
from harrow.cluster.groups.streams.group_records import (
    CurrentRecord,
    GroupEpochRecord,
    GroupMetadata,
    MemberRecord,
    StreamsRecord,
    TargetEpochRecord,
    TargetRecord,
    TopologyRecord,
)
from harrow.cluster.groups.streams.internal_topics import ConfiguredTopology, StatusCode, configure
from harrow.cluster.groups.streams.members import CurrentAssignment, Endpoint, MemberMetadata, MemberState
from harrow.cluster.groups.streams.record_formats import decode_record, encode_record
from harrow.cluster.groups.streams.tasks import HeldTasks, TaskId, TaskSets
from harrow.cluster.groups.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology, topology

TOPICS = {"orders": 4, "customers": 4, "items": 2}


def put(*rows: Subtopology, **existing: int) -> ConfiguredTopology:
    counts = {**TOPICS, **existing}
    return configure(topology(0, list(rows)), lambda name: counts.get(name, 0))


def numbers(found: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in found.missing}


def sub(
    name: str,
    *sources: str,
    reads: tuple[TopicInfo, ...] = (),
    writes: tuple[str, ...] = (),
    changelogs: tuple[TopicInfo, ...] = (),
    copartition_groups: tuple[CopartitionGroup, ...] = (),
) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=sources,
        repartition_sources=reads,
        repartition_sinks=writes,
        changelogs=changelogs,
        copartition_groups=copartition_groups,
    )


def test_repartition_topics_and_changelogs_get_the_greatest_number_upstream() -> None:
    found = put(
        sub("0", "orders", "items", writes=("r",)),
        sub("1", reads=(TopicInfo("r"),), writes=("s",), changelogs=(TopicInfo("c"),)),
        sub("2", "items", reads=(TopicInfo("s"),), changelogs=(TopicInfo("d"),)),
    )
    assert numbers(found) == {"r": 4, "s": 4, "c": 4, "d": 4}
    assert {name: row.tasks for name, row in (found.subtopologies or {}).items()} == {"0": 4, "1": 4, "2": 4}
    assert found.status is not None
    assert found.status.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert found.status.detail == "Internal topics are missing: c, d, r and 1 additional topics"


def test_topics_of_a_copartition_group_get_one_number() -> None:
    group = CopartitionGroup(source_topics=(0,), repartition_topics=(0,))
    joined = put(
        sub("0", "orders", writes=("r",)), sub("1", "items", reads=(TopicInfo("r"),), copartition_groups=(group,))
    )
    assert numbers(joined) == {"r": 2}, "that of the source with which it is joined"
    both = CopartitionGroup(repartition_topics=(0, 1))
    rows = (
        sub("0", "orders", writes=("r",)),
        sub("1", "items", writes=("s",)),
        sub("2", reads=(TopicInfo("r"), TopicInfo("s")), copartition_groups=(both,)),
    )
    assert numbers(put(*rows)) == {"r": 4, "s": 4}, "the greatest of both"


@pytest.mark.parametrize(
    ("reads", "detail"),
    [
        ((TopicInfo("r", 3),), "Number of partitions [3] of repartition topic [r] doesn't match number of partitions"),
        ((), "Following topics do not have the same number of partitions: [{items=2, orders=4}]"),
    ],
)
def test_a_copartition_group_with_different_numbers_is_refused(reads: tuple[TopicInfo, ...], detail: str) -> None:
    places = (0,) if reads else (0, 1)
    group = CopartitionGroup(source_topics=places, repartition_topics=(0,) if reads else ())
    found = put(
        sub("0", "orders", writes=tuple(topic.name for topic in reads)),
        sub("1", "orders", "items", reads=reads, copartition_groups=(group,)),
    )
    assert found.status is not None
    assert (found.status.code, found.subtopologies) == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, None)
    assert detail in found.status.detail


def test_a_topology_whose_numbers_cannot_be_computed_is_invalid() -> None:
    loop = (sub("0", reads=(TopicInfo("r"),), writes=("s",)), sub("1", reads=(TopicInfo("s"),), writes=("r",)))
    never_written = (sub("0", "orders", reads=(TopicInfo("r"),)),)
    for rows, text in ((loop, "There may be loops"), (never_written, "never used as a sink topic")):
        with pytest.raises(KafkaError, match=text) as refused:
            put(*rows)
        assert refused.value.code is ErrorCode.streams_invalid_topology


def test_a_topology_is_ready_once_its_topics_are_there() -> None:
    row = sub("0", "orders", changelogs=(TopicInfo("c"),))
    ready = put(row, c=4)
    assert (ready.is_ready, ready.missing) == (True, ())
    wrong = put(row, c=3)
    assert wrong.status is not None
    assert wrong.status.detail == "Existing topic c has different number of partitions: expected 4, found 3"


A_TOPOLOGY: Topology = topology(
    3,
    [
        sub(
            "0",
            "orders",
            reads=(TopicInfo("r", 2, 3, (("retention.ms", "-1"),)),),
            writes=("s",),
            changelogs=(TopicInfo("c"),),
            copartition_groups=(CopartitionGroup((0,), (), (0,)),),
        )
    ],
)
TASKS = frozenset((TaskId("0", 1), TaskId("1", 0), TaskId("1", 2)))
RECORDS: list[StreamsRecord] = [
    GroupEpochRecord(GroupMetadata(7, -5, 3, (("num.standby.replicas", "1"),))),
    GroupEpochRecord(GroupMetadata(7)),
    MemberRecord(
        "m",
        MemberMetadata(
            rack_id="r",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=5,
            topology_epoch=3,
            process_id="p",
            endpoint=Endpoint("host", 65_535),
            client_tags=(("zone", "a"),),
        ),
    ),
    MemberRecord("m", MemberMetadata()),
    TargetEpochRecord(9, 1_700_000_000_123),
    TargetRecord("m", TaskSets(TASKS, frozenset((TaskId("2", 1),)))),
    CurrentRecord(
        "m",
        CurrentAssignment(
            epoch=5,
            previous_epoch=4,
            state=MemberState.UNREVOKED_TASKS,
            assigned=HeldTasks(dict.fromkeys(TASKS, 3), frozenset((TaskId("2", 0),))),
            revoking=HeldTasks({TaskId("3", 0): 4}),
        ),
    ),
    TopologyRecord(A_TOPOLOGY),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written(record: StreamsRecord) -> None:
    key, value = encode_record("app", record)
    decoded = decode_key(key)
    assert isinstance(decoded, StreamsKey)
    assert decoded.group == "app"
    assert decode_record(decoded.kind, decoded.name, value) == record
    make = cast("Callable[..., StreamsRecord]", type(record))
    tombstone = make(None) if isinstance(record, TargetEpochRecord) else make(*record[:-1], None)
    assert decode_record(decoded.kind, decoded.name, encode_record("app", tombstone)[1]) == tombstone


def test_an_active_task_of_an_older_record_has_the_epoch_of_its_member() -> None:
    current = CurrentAssignment(epoch=5, assigned=HeldTasks({TaskId("0", 1): 3}))
    _, value = encode_record("app", CurrentRecord("m", current))
    assert value is not None
    # the tagged field: one tag, number 0, five bytes (a size and one int32)
    tagged = bytes((1, 0, 5, 2, 0, 0, 0, 3))
    assert value.count(tagged) == 1
    found = decode_record(22, "m", value.replace(tagged, b"\0"))
    assert found == CurrentRecord("m", CurrentAssignment(epoch=5, assigned=HeldTasks({TaskId("0", 1): 5})))
