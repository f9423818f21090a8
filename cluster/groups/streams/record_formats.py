"""Keys and values of a streams group's records in Kafka's own binary format (G1).

Owns: encoding and decoding. A key begins with an int16 type; its strings are int16-prefixed. Values have version 0 of
a flexible format: varint lengths, and tagged fields at the end of each structure.

| type | key after the type | value                                                                         |
| ---- | ------------------ | ----------------------------------------------------------------------------- |
| 17   | group              | epoch, hash of the required topics, tag 0: validated topology epoch,            |
|      |                    | tag 1: settings of the last assignment                                          |
| 19   | group, member      | instance, rack, client, host, rebalance timeout, topology epoch, process,       |
|      |                    | endpoint, tags of the client                                                    |
| 20   | group              | assignment epoch                                                                |
| 21   | group, member      | target assignment: active, standby, warm-up tasks                               |
| 22   | group, member      | epoch, previous epoch, state, tasks, tasks to revoke; active tasks have epochs  |
| 23   | group              | topology                                                                        |

The hash is Harrow's own, as that of consumer groups (`consumer/record_formats.py`).

May fail: RecordFormatError for bytes that are no such record.
Source: the StreamsGroup…Key/Value.json files of Apache Kafka; KIP-482 (tagged fields).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...coordinators import KeyValue, RecordFormatError
from ...coordinators.flexible_fields import FlexibleReader, FlexibleWriter
from ...host.seam import Buffer
from ..group_fields import encode_key, read_target_epoch, read_value, write_target_epoch
from .group_records import (
    NOT_VALIDATED,
    CurrentRecord,
    GroupEpochRecord,
    GroupMetadata,
    MemberRecord,
    StreamsRecord,
    TargetEpochRecord,
    TargetRecord,
    TopologyRecord,
)
from .members import CurrentAssignment, Endpoint, MemberMetadata, MemberState
from .tasks import HeldTasks, TaskId, TaskSets, by_subtopology
from .topology import CopartitionGroup, Subtopology, TopicInfo, Topology, topology

GROUP_EPOCH, MEMBER, TARGET_EPOCH, TARGET, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23


def encode_record(group_id: str, record: StreamsRecord) -> KeyValue:
    """Key and value of a record."""
    kind, name = _key_of(record)
    return encode_key(kind, group_id, name), _encode_value(record)


def encode_all(group_id: str, records: Iterable[StreamsRecord]) -> Sequence[KeyValue]:
    """Keys and values of records."""
    return [encode_record(group_id, record) for record in records]


def decode_record(kind: int, name: str, value: Buffer | None) -> StreamsRecord:
    """The record of a key of type `kind`; `name` is the key's member id."""
    match kind:
        case 17:
            return GroupEpochRecord(read_value(value, _group_metadata))
        case 19:
            return MemberRecord(name, read_value(value, _member))
        case 20:
            return TargetEpochRecord(*(read_value(value, read_target_epoch) or (None, 0)))
        case 21:
            return TargetRecord(name, read_value(value, _target))
        case 22:
            return CurrentRecord(name, read_value(value, _current))
        case 23:
            return TopologyRecord(read_value(value, _topology))
        case _:
            raise RecordFormatError(f"key type {kind}")


def _key_of(record: StreamsRecord) -> tuple[int, str | None]:
    match record:
        case GroupEpochRecord():
            return GROUP_EPOCH, None
        case MemberRecord(name):
            return MEMBER, name
        case TargetEpochRecord():
            return TARGET_EPOCH, None
        case TargetRecord(name):
            return TARGET, name
        case CurrentRecord(name):
            return CURRENT, name
        case TopologyRecord():
            return TOPOLOGY, None


def _encode_value(record: StreamsRecord) -> bytes | None:
    if record.value is None:
        return None
    out = FlexibleWriter(0)
    match record:
        case GroupEpochRecord(GroupMetadata() as value):
            _write_group_metadata(out, value)
        case MemberRecord(_, MemberMetadata() as value):
            _write_member(out, value)
        case TargetEpochRecord(int() as value, computed_ms):
            write_target_epoch(out, value, computed_ms)
        case TargetRecord(_, TaskSets() as value):
            for tasks in (value.active, value.standby, value.warmup):
                _write_tasks(out, tasks)
            out.tags()
        case CurrentRecord(_, CurrentAssignment() as value):
            out.i32(value.epoch)
            out.i32(value.previous_epoch)
            out.i8(value.state)
            for held in (value.assigned, value.revoking):
                _write_tasks(out, held.active, epochs=held.active)
                _write_tasks(out, held.standby)
                _write_tasks(out, held.warmup)
            out.tags()
        case TopologyRecord(Topology() as value):
            _write_topology(out, value)
        case _:
            raise AssertionError(f"{record} has no value")
    return out.bytes()


# ---- writing -------------------------------------------------------------------------------------


def _write_group_metadata(out: FlexibleWriter, value: GroupMetadata) -> None:
    out.i32(value.epoch)
    out.i64(value.metadata_hash)
    tags: list[tuple[int, Buffer]] = []
    if value.validated_topology_epoch != NOT_VALIDATED:
        tags.append((0, value.validated_topology_epoch.to_bytes(4, signed=True)))
    configs = FlexibleWriter()
    _write_pairs(configs, value.assignment_configs)
    tags.append((1, configs.bytes()))
    out.tags(tags)


def _write_member(out: FlexibleWriter, value: MemberMetadata) -> None:
    out.string(value.instance_id)
    out.string(value.rack_id)
    out.string(value.client_id)
    out.string(value.client_host)
    out.i32(value.rebalance_timeout_ms)
    out.i32(value.topology_epoch)
    out.string(value.process_id)
    # a nullable structure that is no tagged field begins with 1, or -1 for null
    out.i8(-1 if value.endpoint is None else 1)
    if value.endpoint is not None:
        out.string(value.endpoint.host)
        out.raw(value.endpoint.port.to_bytes(2))
        out.tags()
    _write_pairs(out, value.client_tags)
    out.tags()


def _write_pairs(out: FlexibleWriter, pairs: Sequence[tuple[str, str]]) -> None:
    out.size(len(pairs))
    for key, text in pairs:
        out.string(key)
        out.string(text)
        out.tags()


def _write_tasks(out: FlexibleWriter, tasks: Iterable[TaskId], epochs: Mapping[TaskId, int] | None = None) -> None:
    rows = by_subtopology(tasks)
    out.size(len(rows))
    for subtopology, partitions in rows:
        out.string(subtopology)
        _write_numbers(out, partitions)
        if epochs is not None:
            numbers = FlexibleWriter()
            _write_numbers(numbers, [epochs[TaskId(subtopology, partition)] for partition in partitions])
            out.tags([(0, numbers.bytes())])
        else:
            out.tags()


def _write_numbers(out: FlexibleWriter, numbers: Sequence[int]) -> None:
    out.size(len(numbers))
    for number in numbers:
        out.i32(number)


def _write_shorts(out: FlexibleWriter, numbers: Sequence[int]) -> None:
    out.size(len(numbers))
    for number in numbers:
        out.raw(number.to_bytes(2, signed=True))


def _write_topology(out: FlexibleWriter, value: Topology) -> None:
    out.i32(value.epoch)
    out.size(len(value.subtopologies))
    for row in value.subtopologies:
        out.string(row.subtopology_id)
        out.strings(row.source_topics)
        out.strings(row.source_regexes)
        _write_topics(out, row.changelogs)
        out.strings(row.repartition_sinks)
        _write_topics(out, row.repartition_sources)
        out.size(len(row.copartition_groups))
        for group in row.copartition_groups:
            for places in group:
                _write_shorts(out, places)
            out.tags()
        out.tags()
    out.tags()


def _write_topics(out: FlexibleWriter, topics: Sequence[TopicInfo]) -> None:
    out.size(len(topics))
    for topic in topics:
        out.string(topic.name)
        out.i32(topic.partitions)
        out.raw(topic.replication_factor.to_bytes(2, signed=True))
        _write_pairs(out, topic.configs)
        out.tags()


# ---- reading -------------------------------------------------------------------------------------


def _group_metadata(reader: FlexibleReader) -> GroupMetadata:
    epoch, metadata_hash, tags = reader.i32(), reader.i64(), reader.tags()
    validated = tags.get(0)
    configs = tags.get(1)
    return GroupMetadata(
        epoch,
        metadata_hash,
        NOT_VALIDATED if validated is None else int.from_bytes(validated, signed=True),
        () if configs is None else tuple(sorted(_pairs(FlexibleReader(configs)))),
    )


def _member(reader: FlexibleReader) -> MemberMetadata:
    return MemberMetadata(
        instance_id=reader.string(),
        rack_id=reader.string(),
        client_id=reader.string() or "",
        client_host=reader.string() or "",
        rebalance_timeout_ms=reader.i32(),
        topology_epoch=reader.i32(),
        process_id=reader.string() or "",
        endpoint=_endpoint(reader),
        client_tags=tuple(sorted(_pairs(reader))),
    )


def _endpoint(reader: FlexibleReader) -> Endpoint | None:
    if reader.i8() < 0:
        return None
    found = Endpoint(reader.string() or "", int.from_bytes(reader.raw(2)))
    reader.tags()
    return found


def _pairs(reader: FlexibleReader) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for _ in range(reader.size()):
        pairs.append((reader.string() or "", reader.string() or ""))
        reader.tags()
    return pairs


def _target(reader: FlexibleReader) -> TaskSets:
    return TaskSets(_tasks(reader), _tasks(reader), _tasks(reader))


def _current(reader: FlexibleReader) -> CurrentAssignment:
    epoch, previous, state = reader.i32(), reader.i32(), reader.i8()
    known = state in tuple(MemberState)
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=previous,
        state=MemberState(state) if known else MemberState.UNKNOWN,
        assigned=HeldTasks(_tasks_with_epochs(reader, epoch), _tasks(reader), _tasks(reader)),
        revoking=HeldTasks(_tasks_with_epochs(reader, epoch), _tasks(reader), _tasks(reader)),
    )


def _tasks(reader: FlexibleReader) -> frozenset[TaskId]:
    return frozenset(_tasks_with_epochs(reader, 0))


def _tasks_with_epochs(reader: FlexibleReader, member_epoch: int) -> dict[TaskId, int]:
    """Tasks, each with its epoch; the member's where the record has none."""
    found: dict[TaskId, int] = {}
    for _ in range(reader.size()):
        subtopology = reader.string() or ""
        partitions = [reader.i32() for _ in range(reader.size())]
        tagged = reader.tags().get(0)
        epochs = [member_epoch] * len(partitions)
        if tagged is not None:
            numbers = FlexibleReader(tagged)
            epochs = [numbers.i32() for _ in range(numbers.size())] or epochs
        if len(epochs) != len(partitions):
            raise RecordFormatError(f"{len(epochs)} epochs of {len(partitions)} tasks")
        found.update((TaskId(subtopology, number), at) for number, at in zip(partitions, epochs, strict=True))
    return found


def _topology(reader: FlexibleReader) -> Topology:
    epoch = reader.i32()
    rows: list[Subtopology] = []
    for _ in range(reader.size()):
        row = Subtopology(
            subtopology_id=reader.string() or "",
            source_topics=tuple(reader.strings()),
            source_regexes=tuple(reader.strings()),
            changelogs=_topics(reader),
            repartition_sinks=tuple(reader.strings()),
            repartition_sources=_topics(reader),
            copartition_groups=_groups(reader),
        )
        reader.tags()
        rows.append(row)
    return topology(epoch, rows)


def _topics(reader: FlexibleReader) -> tuple[TopicInfo, ...]:
    topics: list[TopicInfo] = []
    for _ in range(reader.size()):
        topics.append(TopicInfo(reader.string() or "", reader.i32(), reader.i16(), tuple(_pairs(reader))))
        reader.tags()
    return tuple(topics)


def _groups(reader: FlexibleReader) -> tuple[CopartitionGroup, ...]:
    groups: list[CopartitionGroup] = []
    for _ in range(reader.size()):
        groups.append(CopartitionGroup(_shorts(reader), _shorts(reader), _shorts(reader)))
        reader.tags()
    return tuple(groups)


def _shorts(reader: FlexibleReader) -> tuple[int, ...]:
    return tuple(reader.i16() for _ in range(reader.size()))
