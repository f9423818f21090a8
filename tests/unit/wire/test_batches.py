"""Record batches: built, validated, patched, decoded (A3)."""

from __future__ import annotations

import struct

import cramjam
import pytest
from harrow.cluster.errors import CorruptLogError, ErrorCode, KafkaError
from harrow.cluster.wire import compression
from harrow.cluster.wire.batch_header import LOG_APPEND_TIME
from harrow.cluster.wire.batches import (
    HEADER_SIZE,
    Codec,
    NewRecord,
    assign_offset,
    build_batch,
    build_end_txn_marker,
    decode_records,
    header_at,
    headers,
    read_varint,
    stamp,
    validate,
    write_varint,
)
from harrow.cluster.wire.compression import XERIAL_MAGIC, compress, decompress
from hypothesis import given
from hypothesis import strategies as st

BIG = 10**9
RECORDS = [(b"k", b"v" * 50, [("h", b"1"), ("n", None)]), (None, None, ()), (b"", b"", ())]

records_strategy = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


def refusal(data: bytes, *, max_bytes: int = BIG, from_client: bool = True) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate(data, max_bytes=max_bytes, from_client=from_client)
    return caught.value.code


@given(st.integers(-(2**63), 2**63 - 1))
def test_writing_and_reading_a_varint_returns_the_number(number: int) -> None:
    out = bytearray()
    write_varint(out, number)
    assert read_varint(bytes(out), 0) == (number, len(out))


@pytest.mark.parametrize(("number", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-65, "8101")])
def test_writing_a_varint_encodes_it_as_zigzag(number: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, number)
    assert out.hex() == encoded


@given(records_strategy, st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_decoding_a_batch_of_any_codec_returns_its_records(records: list[NewRecord], codec: Codec, offset: int) -> None:
    batch = build_batch(records, timestamp_ms=1_000, base_offset=offset, codec=codec)
    header = validate(batch, max_bytes=BIG, from_client=False)
    assert (header.size, header.codec) == (len(batch), codec)
    decoded = decode_records(batch)
    assert [(r.key, r.value, list(r.headers)) for r in decoded] == records
    assert [r.offset for r in decoded] == list(range(offset, offset + len(records)))


def test_decoding_raw_snappy_returns_the_same_records_as_xerials_framing() -> None:
    framed = build_batch(RECORDS, timestamp_ms=1, codec=Codec.SNAPPY)
    assert framed[HEADER_SIZE : HEADER_SIZE + 7] == b"\x82SNAPPY"
    plain = build_batch(RECORDS, timestamp_ms=1)
    payload = bytes(cramjam.snappy.compress_raw(plain[HEADER_SIZE:]))
    raw = bytearray(plain[:HEADER_SIZE]) + payload
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">h", raw, 21, Codec.SNAPPY)
    assert decode_records(raw) == decode_records(framed)


def test_compressing_with_lz4_writes_independent_blocks() -> None:
    batch = build_batch(RECORDS, timestamp_ms=1, codec=Codec.LZ4)
    flags = batch[HEADER_SIZE + 4]
    assert flags & 0b1110_0000 == 0b0110_0000  # version 1, block independence


def test_building_a_batch_with_timestamps_gives_each_record_its_own() -> None:
    batch = build_batch(RECORDS, timestamp_ms=0, timestamps_ms=[50, 40, 90])
    assert [record.timestamp for record in decode_records(batch)] == [50, 40, 90]
    assert (header_at(batch).base_timestamp, header_at(batch).max_timestamp) == (50, 90)


def test_assigning_offset_and_epoch_keeps_the_crc_valid() -> None:
    batch = bytearray(build_batch(RECORDS, timestamp_ms=1))
    assign_offset(batch, 2**40, 7)
    header = validate(batch, max_bytes=BIG, from_client=False)
    assert (header.base_offset, header.leader_epoch) == (2**40, 7)


def test_stamping_append_time_changes_the_time_of_every_record_and_the_crc() -> None:
    batch = bytearray(build_batch(RECORDS, timestamp_ms=1))
    assert stamp(batch, LOG_APPEND_TIME, 777) == header_at(batch)
    validate(batch, max_bytes=BIG)
    assert {record.timestamp for record in decode_records(batch)} == {777}
    stamp(batch, 0, 1)
    assert bytes(batch) == build_batch(RECORDS, timestamp_ms=1)


def test_a_flipped_bit_in_the_length_or_after_the_epoch_is_refused() -> None:
    batch = build_batch(RECORDS, timestamp_ms=1)
    for position in [8, 9, 10, 11, *range(16, len(batch))]:
        bad = bytearray(batch)
        bad[position] ^= 0x10
        # of a larger length the batch is not all there
        larger = header_at(bad).length > header_at(batch).length
        wanted = ErrorCode.invalid_record if larger else ErrorCode.corrupt_message
        assert refusal(bytes(bad), from_client=False) == wanted


def test_an_incomplete_batch_is_refused_alone_and_ignored_after_a_complete_one() -> None:
    batch = build_batch(RECORDS, timestamp_ms=1)
    for size in range(len(batch)):
        assert refusal(batch[:size]) == ErrorCode.invalid_record
        assert validate(batch + batch[:size], max_bytes=BIG).size == len(batch)


ONE = build_batch(RECORDS, timestamp_ms=1)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", ErrorCode.invalid_record),
        (struct.pack(">qiib", 0, 14, 0, 1) + bytes(9), ErrorCode.invalid_record),
        (struct.pack(">qiib", 0, 14, 0, 0) + bytes(80), ErrorCode.invalid_record),
        (struct.pack(">qiib", 0, 14, 0, 3) + bytes(9), ErrorCode.corrupt_message),
        (struct.pack(">qiib", 0, 14, 0, -1) + bytes(9), ErrorCode.corrupt_message),
        (struct.pack(">qiib", 0, 14, 0, 2) + bytes(9), ErrorCode.corrupt_message),
        (struct.pack(">qiib", 0, 13, 0, 2) + bytes(9), ErrorCode.corrupt_message),
        (struct.pack(">qiib", 0, -1, 0, 2) + bytes(90), ErrorCode.corrupt_message),
        (struct.pack(">qi", 0, 13), ErrorCode.corrupt_message),
        (struct.pack(">qi", 0, 14), ErrorCode.invalid_record),
        (ONE + ONE, ErrorCode.invalid_record),
        (ONE + ONE[:20] + bytes(len(ONE)), ErrorCode.invalid_record),
        (ONE + bytes(12), ErrorCode.corrupt_message),
        (ONE + struct.pack(">qiib", 0, 90, 0, 3), ErrorCode.corrupt_message),
        (build_batch(RECORDS, timestamp_ms=1, base_offset=5), ErrorCode.invalid_record),
        (build_batch(RECORDS, timestamp_ms=1, is_control=True), ErrorCode.invalid_record),
        (build_batch(RECORDS, timestamp_ms=1, producer_id=4), ErrorCode.invalid_record),
    ],
)
def test_a_batch_that_a_client_must_not_send_is_refused_with_the_right_code(batch: bytes, code: ErrorCode) -> None:
    assert refusal(batch) == code


def test_a_batch_above_max_bytes_is_refused_as_too_large() -> None:
    batch = build_batch(RECORDS, timestamp_ms=1)
    assert refusal(batch, max_bytes=len(batch) - 1) == ErrorCode.message_too_large
    assert validate(batch, max_bytes=len(batch)).size == len(batch)


def test_a_wrong_record_count_is_refused_even_with_a_valid_crc() -> None:
    batch = bytearray(build_batch(RECORDS, timestamp_ms=1))
    struct.pack_into(">i", batch, 57, 2)
    stamp(batch, 0, 1)  # recomputes the CRC
    assert refusal(bytes(batch), from_client=False) == ErrorCode.invalid_record


def test_iterating_headers_ignores_or_refuses_a_partial_batch_at_the_end() -> None:
    batch = build_batch(RECORDS, timestamp_ms=1)
    data = batch * 2 + batch[:-1]
    assert [placed.position for placed in headers(data)] == [0, len(batch)]
    with pytest.raises(CorruptLogError, match=f"byte {2 * len(batch)}"):
        list(headers(data, partial_ok=False))


def test_decoding_garbage_records_is_a_corrupt_message() -> None:
    batch = bytearray(build_batch(RECORDS, timestamp_ms=1))
    batch[HEADER_SIZE] = 0x7F
    with pytest.raises(KafkaError) as caught:
        decode_records(batch)
    assert caught.value.code == ErrorCode.corrupt_message
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        struct.pack_into(">h", batch, 21, codec)
        with pytest.raises(KafkaError):
            decode_records(batch)


def test_building_a_transaction_marker_makes_a_transactional_control_batch() -> None:
    batch = build_end_txn_marker(commit=True, producer_id=9, producer_epoch=2, coordinator_epoch=5, timestamp_ms=1)
    header = header_at(batch)
    assert header.is_control
    assert header.is_transactional
    assert header.last_sequence == -1
    assert decode_records(batch)[0].key == bytes([0, 0, 0, 1])
    assert decode_records(batch)[0].value == bytes([0, 0, 0, 0, 0, 5])


def test_the_last_sequence_wraps_at_two_to_the_31() -> None:
    batch = build_batch(RECORDS, timestamp_ms=1, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert header_at(batch).last_sequence == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
@pytest.mark.parametrize("size", [0, 1, 4_000, 5_000, 300_000, 9_000_000])
def test_decompressing_returns_the_data_at_any_ratio(codec: Codec, size: int) -> None:
    assert decompress(codec, compress(codec, bytes(size))) == bytes(size)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_decompressing_beyond_the_bound_is_a_corrupt_message(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    monkeypatch.setattr(compression, "DECOMPRESSED_BYTES_MAX", 1_000_000)
    assert len(decompress(codec, compress(codec, bytes(1_000_000)))) == 1_000_000
    with pytest.raises(KafkaError) as caught:
        decompress(codec, compress(codec, bytes(1_000_001)))
    assert caught.value.code == ErrorCode.corrupt_message


@pytest.mark.parametrize("front", [b"", XERIAL_MAGIC + bytes(8) + struct.pack(">i", 15)])
def test_a_snappy_block_that_claims_an_absurd_size_is_refused(front: bytes) -> None:
    with pytest.raises(KafkaError, match="claims to hold 4294967295"):
        decompress(Codec.SNAPPY, front + b"\xff\xff\xff\xff\x0f" + bytes(10))
