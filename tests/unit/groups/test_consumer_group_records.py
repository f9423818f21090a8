"""The records of consumer groups: Kafka's own bytes, read and written again (G1)."""

from __future__ import annotations

import contextlib
import json
import re
import struct
from typing import Any

from harrow.cluster.coordinators import RecordFormatError
from harrow.cluster.groups.consumer.group_records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpochRecord,
    TargetRecord,
)
from harrow.cluster.groups.consumer.group_state import GroupData, group_tombstones
from harrow.cluster.groups.consumer.members import (
    ClassicMetadata,
    ClassicProtocol,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    each,
)
from harrow.cluster.groups.consumer.record_formats import decode_record, encode_record
from harrow.cluster.groups.records import ConsumerKey, OffsetKey, decode_key, decode_offset_value
from harrow.cluster.groups.replayed_groups import ReplayedGroups
from harrow.cluster.wire.batches import decode_records, headers
from hypothesis import given
from hypothesis import strategies as st
from kafka_writes import GOLDEN

LOG = GOLDEN / "__consumer_offsets-0" / "00000000000000000000.log"
GROUP = "group-consumer"
TARGET_KIND, CURRENT_KIND = 7, 8

texts = st.text(st.characters(codec="utf-8"), max_size=9)
maybe = st.none() | texts
i32 = st.integers(-(2**31), 2**31 - 1)
partitions = st.dictionaries(st.uuids(), st.frozensets(st.integers(0, 300), min_size=1, max_size=4), max_size=3)
members = st.builds(
    MemberMetadata,
    instance_id=maybe,
    rack_id=maybe,
    client_id=texts,
    client_host=texts,
    topics=st.lists(texts, max_size=3).map(tuple),
    regex=maybe,
    rebalance_timeout_ms=i32,
    assignor=maybe,
    classic=st.none()
    | st.builds(
        ClassicMetadata,
        session_timeout_ms=i32,
        protocols=st.lists(st.builds(ClassicProtocol, texts, st.binary(max_size=200)), max_size=3).map(tuple),
    ),
)


@st.composite
def currents(draw: st.DrawFn) -> CurrentAssignment:
    assigned, revoking = draw(partitions), draw(partitions)
    return CurrentAssignment(
        epoch=draw(i32),
        previous_epoch=draw(i32),
        state=draw(st.sampled_from(MemberState)),
        assigned=assigned,
        revoking=revoking,
        epochs={partition: draw(i32) for partition in (*each(assigned), *each(revoking))},
    )


records: st.SearchStrategy[ConsumerRecord] = st.one_of(
    st.builds(GroupEpochRecord, st.none() | st.builds(GroupEpoch, i32, st.integers(-(2**63), 2**63 - 1))),
    st.builds(MemberRecord, texts, st.none() | members),
    st.just(TargetEpochRecord(None)),
    st.builds(TargetEpochRecord, i32, st.integers(0, 2**63 - 1)),
    st.builds(TargetRecord, texts, st.none() | partitions),
    st.builds(CurrentRecord, texts, st.none() | currents()),
    st.builds(
        RegexRecord,
        texts,
        st.none() | st.builds(ResolvedRegex, st.lists(texts, max_size=3).map(tuple), i32, st.integers(-1, 9)),
    ),
)


@given(records)
def test_record_that_is_written_is_read_back(record: ConsumerRecord) -> None:
    key, value = encode_record("g", record)
    found = decode_key(key)
    assert isinstance(found, ConsumerKey)
    assert decode_record(found.kind, found.name, value) == record


@given(st.sampled_from((3, 5, 6, 7, 8, 16)), st.binary(max_size=60))
def test_invalid_bytes_raise_only_record_format_error(kind: int, data: bytes) -> None:
    for value in (data, b"\0\0" + data):
        with contextlib.suppress(RecordFormatError):
            decode_record(kind, "a", value)


def kafka_records() -> list[Any]:
    """Every record of the partition that Apache Kafka 4.2 wrote."""
    data = memoryview(LOG.read_bytes())
    return [record for at, size, _ in headers(data) for record in decode_records(data[at : at + size])]


def test_bytes_that_kafka_wrote_are_read_and_written_identically() -> None:
    kinds: set[int] = set()
    for record in kafka_records():
        key = decode_key(record.key)
        if isinstance(key, ConsumerKey):
            assert key.group == GROUP
            kinds.add(key.kind)
            read = decode_record(key.kind, key.name, record.value)
            our_key, our_value = encode_record(key.group, read)
            assert our_key == record.key
            if key.kind == TARGET_KIND and record.value is not None:
                # Kafka's order of topics is that of a hash table
                assert sorted(our_value or b"") == sorted(record.value)
            elif key.kind == CURRENT_KIND and record.value is not None:
                # Kafka 4.2 does not write since when the member has a partition: it counts as the member's epoch
                assert decode_record(key.kind, key.name, our_value) == read
                assert isinstance(read.value, CurrentAssignment)
                assert set(read.value.epochs.values()) <= {read.value.epoch}
            else:
                assert our_value == record.value
    assert kinds == {3, 5, 6, 7, 8}


def test_offsets_of_value_version_4_are_read() -> None:
    """Kafka 4.2 writes them; its own dump beside the log says what they are."""
    dumped = {
        int(offset): json.loads(value)["data"]
        for offset, value in re.findall(
            r"offset: (\d+) .*?key: \{\"type\":\"1\".*? payload: (\{\"version\":\"4\".*\})",
            (GOLDEN / "offsets.out").read_text().partition("log.dirs")[0],
        )
    }
    read = 0
    for record in kafka_records():
        key = decode_key(record.key)
        if isinstance(key, OffsetKey) and struct.unpack_from(">h", record.value)[0] == 4:
            value, expected = decode_offset_value(record.value), dumped[record.offset]
            assert value.offset == expected["offset"]
            assert value.metadata == expected["metadata"]
            assert value.timestamp_ms == expected["commitTimestamp"]
            read += 1
    assert read == 4


def test_partition_that_kafka_wrote_loads() -> None:
    replayed = ReplayedGroups()
    epochs: list[int] = []
    for record in kafka_records():
        replayed.apply(record)
        data = replayed.consumer_groups().get(GROUP)
        if data is not None:
            epochs.append(data.epoch)
            assert len(data.owners) in (0, 2)
    data = replayed.consumer_groups()[GROUP]
    assert (data.epoch, data.target_epoch, data.members) == (2, 1, {}), "its only member left"
    assert epochs[-1] == 2


@given(st.lists(records, max_size=30))
def test_any_order_of_records_replays_and_tombstones_remove_everything(rows: list[ConsumerRecord]) -> None:
    """Compaction may have removed any older record, and a tombstone may have nothing to remove."""
    data = GroupData()
    for row in rows:
        data.apply(row)
        held = {p for member in data.members.values() for p in member.held()}
        assert set(data.owners) <= held
    for row in list(group_tombstones(data)):
        data.apply(row)
    assert not data.members
    assert not data.targets
    assert not data.regexes
    assert not data.owners
    assert not data.instances
    assert (data.epoch, data.target_epoch) == (0, 0)
