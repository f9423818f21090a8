"""Kafka's own formats (G1): golden bytes, round trips, refusals. The order of commits by log offset (G4)."""

from __future__ import annotations

import contextlib

import pytest
from harrow.cluster.coordinators import RecordFormatError
from harrow.cluster.groups.offsets import GroupOffsets
from harrow.cluster.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(max_size=20)
I32 = st.integers(-1, 2**31 - 1)
I64 = st.integers(-1, 2**63 - 1)
ORDERS = TopicPartition("orders", 2)


def test_offset_commit_record_equals_kafkas_bytes() -> None:
    assert encode_offset_key("g", ORDERS).hex() == "000100016700066f726465727300000002"
    value = OffsetValue(offset=Offset(258), leader_epoch=LeaderEpoch(7), metadata="m", timestamp_ms=1)
    golden = "000300000000000001020000000700016d0000000000000001"
    assert encode_offset_value(value).hex() == golden


def test_group_metadata_record_equals_kafkas_bytes() -> None:
    assert encode_group_key("g").hex() == "0002000167"
    member = MemberValue(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=2,
        session_timeout_ms=1,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupValue(protocol_type="p", generation=3, protocol="r", leader="m", since_ms=9, members=(member,))
    golden = (
        "0003"
        "000170"
        "00000003"
        "000172"
        "00016d"
        "0000000000000009"
        "00000001"
        "00016d"
        "ffff"
        "000163"
        "000168"
        "00000002"
        "00000001"
        "0000000173"
        "0000000161"
    )
    assert encode_group_value(value).hex() == golden


def test_values_of_older_versions_are_decoded() -> None:
    v1 = bytes.fromhex("00010000000000000005000000000000000000010000000000000002")
    assert decode_offset_value(v1) == OffsetValue(offset=Offset(5), timestamp_ms=1, expire_timestamp_ms=2)
    v0 = bytes.fromhex("000000017000000003ffffffff0000000100016d000163000168000000010000000000000000")
    (member,) = decode_group_value(v0).members
    assert member.rebalance_timeout_ms == member.session_timeout_ms == 1


@given(TEXT, TEXT, st.integers(0, 2**31 - 1))
def test_keys_round_trip(group: str, topic: str, partition: int) -> None:
    tp = TopicPartition(topic, partition)
    assert decode_key(encode_offset_key(group, tp)) == OffsetKey(group, tp)
    assert decode_key(encode_group_key(group)) == GroupKey(group)


@given(I64, I32, TEXT, I64)
def test_offset_values_round_trip(offset: int, epoch: int, metadata: str, at_ms: int) -> None:
    value = OffsetValue(offset=Offset(offset), leader_epoch=LeaderEpoch(epoch), metadata=metadata, timestamp_ms=at_ms)
    assert decode_offset_value(encode_offset_value(value)) == value


@given(I64, TEXT, I64, st.integers(0, 2**63 - 1))
def test_offset_value_with_an_expiration_of_its_own_is_stored_as_version_1(
    offset: int, metadata: str, at_ms: int, expires_ms: int
) -> None:
    value = OffsetValue(offset=Offset(offset), metadata=metadata, timestamp_ms=at_ms, expire_timestamp_ms=expires_ms)
    encoded = encode_offset_value(value)
    assert encoded[:2] == b"\x00\x01"
    assert decode_offset_value(encoded) == value


@given(st.binary(max_size=60))
def test_invalid_bytes_raise_only_record_format_error(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        with contextlib.suppress(RecordFormatError):
            decode(data)


def test_key_of_a_type_of_other_groups_decodes_to_none() -> None:
    assert decode_key(b"\x00\x09\x00\x01g") is None


def test_commit_with_a_lower_log_offset_is_ignored() -> None:
    offsets = GroupOffsets()
    assert offsets.put(ORDERS, OffsetValue(offset=Offset(9)), Offset(5))
    assert not offsets.put(ORDERS, OffsetValue(offset=Offset(3)), Offset(4))
    found = offsets.get(ORDERS)
    assert found is not None
    assert found.offset == 9


def test_tombstone_with_a_lower_log_offset_than_the_commit_is_ignored() -> None:
    offsets = GroupOffsets()
    offsets.put(ORDERS, OffsetValue(offset=Offset(9)), Offset(5))
    assert not offsets.remove(ORDERS, Offset(4))
    assert len(offsets) == 1
    assert offsets.remove(ORDERS, Offset(6))
    assert not offsets.remove(ORDERS, Offset(7))
    assert offsets.get(ORDERS) is None


def test_commit_in_progress_is_pending_until_its_last_result() -> None:
    offsets = GroupOffsets()
    offsets.begin([ORDERS])
    offsets.begin([ORDERS])
    offsets.end([ORDERS])
    assert offsets.is_pending(ORDERS)
    offsets.end([ORDERS])
    assert not offsets.is_pending(ORDERS)
    assert not offsets.in_flight
    with pytest.raises(AssertionError, match="never began"):
        offsets.end([ORDERS])
