"""What compaction keeps of one batch (B8): which records stay, and the rewritten batch.

Owns no state except the offset map and the time of one cleaning. Rules for a rewritten batch:

* base offset, last offset, leader epoch, producer id, epoch and sequence, codec stay: offsets never
  change, and a producer's last sequence remains readable although its records are removed;
* a record is copied byte for byte; only a batch that gets a delete horizon has its time deltas rewritten;
* the delete horizon (KIP-534): attribute bit 6, the horizon in place of the base timestamp. It is set to
  now + `delete.retention.ms` when a cleaning first keeps a tombstone, or a transaction marker whose data
  is removed; once the horizon has passed, the tombstone or marker is removed;
* a batch without records is its header alone, count 0, no codec; the caller says where it is retained.

A batch whose CRC is wrong is never rewritten: a new CRC would make damaged bytes look valid.
May fail: CorruptLogError. Source: Kafka's `MemoryRecords.filterTo`, `Cleaner.cleanInto`; KIP-534.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from ...errors import CorruptLogError, KafkaError
from ...host.seam import Buffer
from ...wire.batch_header import ATTRIBUTES_AT, CODEC_MASK, CRC_AT, HEADER, HEADER_SIZE, LENGTH_MIN, BatchHeader
from ...wire.compression import compress, decompress
from ...wire.records import RECORD_BYTES_MOST, read_varint, write_varint
from ..record_checks import check_sizes
from ..record_spans import RecordSpan, record_spans
from .offset_map import OffsetMap

DELETE_HORIZON = 0x40
"""Attribute bit 6: the base timestamp is the time from which tombstones and markers of the batch may be removed."""

NO_TIMESTAMP = -1


def delete_horizon(header: BatchHeader) -> int | None:
    """Wall time in ms from which tombstones and markers of the batch may be removed; None: not set yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def records_of(batch: memoryview, header: BatchHeader, bytes_max: int = RECORD_BYTES_MOST) -> bytes:
    """The decompressed records of a batch; CorruptLogError where its CRC is wrong, or a record above `bytes_max`."""
    if crc32c(batch[ATTRIBUTES_AT:]) != header.crc:
        raise CorruptLogError(f"CRC of batch {header.base_offset} is wrong; it is not compacted")
    try:
        data = decompress(header.attributes & CODEC_MASK, batch[HEADER_SIZE:])
        if header.codec:
            check_sizes(data, header.record_count, bytes_max)
        return data
    except KafkaError as error:
        raise CorruptLogError(f"batch {header.base_offset}: {error}") from None


class RecordFilter:
    """Decides which records of the log that is cleaned stay."""

    __slots__ = ("_bytes_max", "_delete_retention_ms", "_get", "_latest", "_now_ms")

    def __init__(
        self, offsets: OffsetMap, *, now_ms: int, delete_retention_ms: int, record_bytes_max: int = RECORD_BYTES_MOST
    ) -> None:
        self._bytes_max = record_bytes_max
        self._get = offsets.get
        self._latest = offsets.latest_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def has_expired(self, header: BatchHeader) -> bool:
        """True when the batch's delete horizon has passed."""
        horizon = delete_horizon(header)
        return horizon is not None and horizon <= self._now_ms

    @staticmethod
    def discard(header: BatchHeader, *, retain_empty: bool) -> bytes:
        """An aborted batch: none of its records stays; empty bytes when the whole batch is removed."""
        return empty_batch(header) if retain_empty else b""

    def filter_data(self, batch: memoryview, header: BatchHeader, *, retain_empty: bool) -> Buffer:
        """A data batch without its superseded records; empty bytes when the whole batch is removed."""
        if header.record_count == 0:
            return batch if retain_empty else b""
        data = records_of(batch, header, self._bytes_max)
        spans = record_spans(data, header.record_count)
        kept = self._kept(spans, header)
        if not kept:
            return empty_batch(header) if retain_empty else b""
        past = header.last_offset > self._latest
        sets_horizon = (
            not past and not header.attributes & DELETE_HORIZON and not all(has_value for _, _, _, _, has_value in kept)
        )
        if len(kept) == len(spans) and not sets_horizon:
            return batch
        return _rewritten(header, data, kept, self._horizon() if sets_horizon else None)

    def _kept(self, spans: Sequence[RecordSpan], header: BatchHeader) -> list[RecordSpan]:
        base, latest, newest = header.base_offset, self._latest, self._get
        tombstones_go = self.has_expired(header)
        kept: list[RecordSpan] = []
        for span in spans:
            _, _, delta, key, has_value = span
            offset = base + delta
            if offset > latest or (
                key is not None and offset >= newest(key) and (has_value or not tombstones_go)
            ):  # above the end of the map: the key may have no newer record
                kept.append(span)
        return kept

    def filter_marker(
        self, batch: memoryview, header: BatchHeader, *, data_is_removed: bool, retain_empty: bool
    ) -> Buffer:
        """A control batch; it stays until its transaction's data is removed and its delete horizon has passed."""
        if header.record_count == 0:
            return batch if retain_empty else b""
        if not data_is_removed or (header.last_offset > self._latest):
            return batch
        if self.has_expired(header):
            return empty_batch(header) if retain_empty else b""
        if header.attributes & DELETE_HORIZON:
            return batch
        data = records_of(batch, header)
        return _rewritten(header, data, record_spans(data, header.record_count), self._horizon())

    def _horizon(self) -> int:
        return self._now_ms + self._delete_retention_ms


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone: no records, but the batch's offsets and producer fields."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _sealed(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _rewritten(header: BatchHeader, data: bytes, kept: Sequence[RecordSpan], horizon: int | None) -> bytes:
    """The batch with only the `kept` records of its `data`, and with a delete horizon if one is given."""
    base = header.base_timestamp
    newest = header.max_timestamp
    if not header.is_log_append_time:
        newest = max(base + _time_delta(data, span)[0] for span in kept)
    if horizon is None:
        body = b"".join([data[start:end] for start, end, _, _, _ in kept])
    else:
        body = _shifted(data, kept, base - horizon)
        base = horizon
        header = header._replace(attributes=header.attributes | DELETE_HORIZON)
    payload = compress(header.attributes & CODEC_MASK, body)
    changed = header._replace(base_timestamp=base, max_timestamp=newest, record_count=len(kept))
    return _sealed(changed, payload)


def _time_delta(data: bytes, span: RecordSpan) -> tuple[int, int]:
    """A record's time delta (after its length and attributes), and the position after it."""
    return read_varint(data, read_varint(data, span[0])[1] + 1)


def _shifted(data: bytes, kept: Sequence[RecordSpan], shift: int) -> bytes:
    """The records with time deltas from another base timestamp: each delta grows by `shift`."""
    out = bytearray()
    for span in kept:
        delta, after = _time_delta(data, span)
        _, attributes_at = read_varint(data, span[0])
        record = bytearray(data[attributes_at : attributes_at + 1])
        write_varint(record, delta + shift)
        record += data[after : span[1]]
        write_varint(out, len(record))
        out += record
    return bytes(out)


def _sealed(header: BatchHeader, payload: bytes) -> bytes:
    """Header and payload with the right length and CRC."""
    batch = bytearray(HEADER_SIZE)
    header = header._replace(length=LENGTH_MIN + len(payload), crc=0)
    HEADER.pack_into(batch, 0, *header)
    batch += payload
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    batch[CRC_AT:ATTRIBUTES_AT] = crc.to_bytes(4, "big")
    return bytes(batch)
