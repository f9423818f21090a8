"""Records of share groups in `__consumer_offsets`: bytes and back, and a replay that gives the state (KIP-932)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME
from harrow.cluster.groups.consumer.group_records import GroupEpoch
from harrow.cluster.groups.records import ShareKey, decode_key
from harrow.cluster.groups.share.members import NamedPartitions, ShareAssignment, ShareMetadata, StatePartitions
from harrow.cluster.groups.share.record_formats import decode_share_record, encode_share_record
from harrow.cluster.groups.share.share_records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    ShareRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)
from harrow.cluster.wire.batches import decode_records, headers
from share_requests import ModelShareMember, share_state

GOLDEN = Path(__file__).parents[2] / "conformance" / "kafka_files" / "kafka_share_groups" / "consumer_offsets.log"
TOPIC = UUID(int=7)
RECORDS: list[ShareRecord] = [
    ShareMemberRecord("a", ShareMetadata(rack_id=None, client_id="c", client_host="/h", topics=("x", "y"))),
    ShareMemberRecord("a", None),
    ShareEpochRecord(GroupEpoch(3, -5)),
    ShareTargetEpochRecord(2),
    ShareTargetEpochRecord(3, 1_700_000_000_123),
    ShareTargetRecord("a", {TOPIC: frozenset((0, 2))}),
    ShareCurrentRecord("a", ShareAssignment(epoch=3, previous_epoch=2, assigned={TOPIC: frozenset((1,))})),
    StatePartitionsRecord(
        StatePartitions(
            initializing={TOPIC: NamedPartitions("x", frozenset((1,)))},
            initialized={UUID(int=8): NamedPartitions("y", frozenset((0, 3)))},
            deleting={UUID(int=9): "z"},
        )
    ),
    StatePartitionsRecord(None),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written(record: ShareRecord) -> None:
    key, value = encode_share_record("g", record)
    found = decode_key(key)
    assert isinstance(found, ShareKey)
    assert found.group == "g"
    assert decode_share_record(found.kind, found.name, value) == record


def test_bytes_are_those_of_apache_kafka() -> None:
    """ShareGroupStatePartitionMetadata as the JSON files of Apache Kafka 4.2 describe it, byte by byte."""
    key, value = encode_share_record(
        "g", StatePartitionsRecord(StatePartitions(initialized={TOPIC: NamedPartitions("x", frozenset((1,)))}))
    )
    assert key == b"\x00\x0f\x00\x01g"
    topic = TOPIC.bytes + b"\x02x" + b"\x02\x00\x00\x00\x01" + b"\x00"
    assert value == b"\x00\x00" + b"\x01" + b"\x02" + topic + b"\x01" + b"\x00"


def test_records_of_kafka_are_read_and_written_with_the_same_bytes() -> None:
    data = GOLDEN.read_bytes()
    seen: set[type[ShareRecord]] = set()
    for row in (row for at, size, _ in headers(data) for row in decode_records(data[at : at + size])):
        assert row.key is not None
        key = decode_key(row.key)
        assert isinstance(key, ShareKey)
        record = decode_share_record(key.kind, key.name, row.value)
        seen.add(type(record))
        value = None if row.value is None else bytes(row.value)
        assert encode_share_record(key.group, record) == (bytes(row.key), value), record
    assert seen == {type(record) for record in RECORDS}


def test_a_new_coordinator_has_the_group_that_the_old_one_had(bed: GroupTestBed) -> None:
    members = [ModelShareMember(bed, name) for name in "ab"]
    for member in [*members, *members]:
        member.beat()
    members[1].leave()
    before = share_state(bed, GROUP)
    bed.resign(HOME)
    bed.lead(HOME)
    after = share_state(bed, GROUP)
    assert after == before
    members[0].beat()
    assert members[0].assigned == {("orders", number) for number in range(3)}
