"""The tap: records that responses acknowledged or delivered (J6), `Tap` of the seam, and the format of its rows.

Owns: `tap.bin` (one row of `TAP_ROW` a batch, appended). `coordinator_tap.py` has the files of the coordinators,
`watermark_tap.py` that of high watermarks, `request_tap.py` those of requests, `refused_tap.py` that of refused
batches, and `tap_files.py` the names that all rows refer to by number. Rows are written with one `write` a call, before
the response's bytes are sent: what a client received is in the tap.

Rows, `produced` (kind 1): one for each batch of a partition as the producer sent it (base offsets 0),
numbered from the `base_offset` of the response. Refused: `error` set, offsets -1. Where the
bytes hold no whole batch header (a refused request of garbage) one row with count 0 stands for them.
Rows, `fetched` (kind 2): one for each whole data batch at or above the asked offset; `base_offset` is the
first offset **delivered** (a client drops those below what it asked for), `count` the batch's own. A
partial batch at the end and control batches are not delivered to applications and have no row. Flags:
`FLAG_READ_COMMITTED` for a fetch of committed data, and `FLAG_FILTERED` where its response lists the batch as one of
an aborted transaction, so that the client drops it.

Times are on the monotonic clock. `invoked_ns` is when the broker read the request, which for bytes that
waited before a stopped process is long after they were sent. `created_ns` of a produced batch is when its oldest
record was made: the batch header's base timestamp, converted by the present wall clock. A producer may set any
timestamp, so a check that uses `created_ns` must test whether it is possible (0: before the machine started).
`base_timestamp_ms` and `max_timestamp_ms` are the header's own fields, unchanged.

`TAP_DTYPE` is the layout, as plain data, so that numpy is not imported here (`cluster/row_layout.py`).
Batch header: Kafka's DefaultRecordBatch (magic 2).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..broker_folder import TAP
from ..row_layout import row_struct
from .refused_tap import RefusedBatches
from .request_tap import RequestRows
from .seam import Buffer, Clock, TappedRequest
from .watermark_tap import NoWatermarkTap, WatermarkTap

PRODUCED = 1
FETCHED = 2
FLAG_LOST = 1
FLAG_READ_COMMITTED = 2
FLAG_FILTERED = 4

TAP_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("flags", "u1"),
    ("error", "<i2"),
    ("client", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("base_offset", "<i8"),
    ("last_offset", "<i8"),
    ("crc", "<u4"),
    ("count", "<u4"),
    ("producer_id", "<i8"),
    ("producer_epoch", "<i2"),
    ("acks", "<i2"),
    ("base_sequence", "<i4"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
    ("created_ns", "<i8"),
    ("base_timestamp_ms", "<i8"),
    ("max_timestamp_ms", "<i8"),
]
TAP_ROW = row_struct(TAP_DTYPE)

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
BEFORE_LENGTH = 12
CONTROL, TRANSACTIONAL = 0x20, 0x10


class BatchHeader(NamedTuple):
    """The fields of a record batch's header that a row takes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


def headers(buffers: Sequence[Buffer]) -> Iterator[BatchHeader]:
    """Headers of the whole batches in the bytes of `buffers`; a batch may span several buffers."""
    carry = b""  # the beginning of a header
    held: BatchHeader | None = None  # of a batch that is not whole yet
    at = 0  # where the next header begins, counted from the buffer's beginning
    for buffer in buffers:
        view = memoryview(carry + bytes(buffer)) if carry else memoryview(buffer)
        end, carry = len(view), b""
        if held is not None and at <= end:
            yield held
            held = None
        while at + BATCH_HEADER.size <= end:
            header = BatchHeader._make(BATCH_HEADER.unpack_from(view, at))
            size = BEFORE_LENGTH + header.length
            if size < BATCH_HEADER.size:
                return
            at += size
            if at > end:
                held = header
            else:
                yield header
        if at < end:
            carry = bytes(view[at:])
        at = max(at - end, 0)


class NoTap(NoWatermarkTap):
    """The tap of a host without `harrow.tap`."""

    __slots__ = ()
    enabled = False

    def produced(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        base_offset: int,
        error: int,
        acks: int,
        invoked_ns: int,
        batches: Buffer,
        lost: bool,
    ) -> None:
        """Nothing."""

    def fetched(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        offset: int,
        invoked_ns: int,
        batches: Sequence[Buffer],
        aborted: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Nothing."""

    def requested(self, row: TappedRequest) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class RealTap(WatermarkTap):
    """The tap of one host, appending to the files in `folder`."""

    enabled = True

    def __init__(self, folder: str, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._rows = self.open_rows(TAP, TAP_ROW.size)
        self._requests = RequestRows(self, folder)
        self._refused = RefusedBatches(self)

    def produced(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        base_offset: int,
        error: int,
        acks: int,
        invoked_ns: int,
        batches: Buffer,
        lost: bool,
    ) -> None:
        """One partition of a produce response, just before its bytes leave."""
        front = (PRODUCED, FLAG_LOST if lost else 0, error, self.number_of(client), self.number_of(topic), partition)
        completed_ns = self.clock.monotonic_ns()
        wall_ms = self.clock.wall_ms()
        refused = base_offset < 0
        if refused:
            self._refused.keep(client, topic, partition, error, batches)
        rows = bytearray()
        for h in headers((batches,)):
            last = -1 if refused else base_offset + h.last_offset_delta
            rows += TAP_ROW.pack(
                *front,
                -1 if refused else base_offset,
                last,
                h.crc,
                h.records & 0xFFFF_FFFF,
                h.producer_id,
                h.producer_epoch,
                acks,
                h.base_sequence,
                invoked_ns,
                completed_ns,
                _ago(completed_ns, wall_ms - h.base_timestamp),
                h.base_timestamp,
                h.max_timestamp,
            )
            base_offset = last + 1
        if not rows:
            rows += TAP_ROW.pack(
                *front, base_offset, base_offset, 0, 0, -1, -1, acks, -1, invoked_ns, completed_ns, invoked_ns, -1, -1
            )
        os.write(self._rows, rows)

    def fetched(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        offset: int,
        invoked_ns: int,
        batches: Sequence[Buffer],
        aborted: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """One partition of a consumer's fetch response, just before its bytes leave."""
        front = (0, self.number_of(client), self.number_of(topic), partition)
        now_ns = self.clock.monotonic_ns()
        flags = 0 if aborted is None else FLAG_READ_COMMITTED
        rows = bytearray()
        for h, filtered in _with_filter(headers(batches), aborted):
            last = h.base_offset + h.last_offset_delta
            if h.attributes & CONTROL or last < offset:
                continue
            rows += TAP_ROW.pack(
                FETCHED,
                flags | (FLAG_FILTERED if filtered else 0),
                *front,
                max(h.base_offset, offset),
                last,
                h.crc,
                h.records & 0xFFFF_FFFF,
                h.producer_id,
                h.producer_epoch,
                0,
                h.base_sequence,
                invoked_ns,
                now_ns,
                invoked_ns,
                h.base_timestamp,
                h.max_timestamp,
            )
        if rows:
            os.write(self._rows, rows)

    def requested(self, row: TappedRequest) -> None:
        """A request whose response leaves, or that ends without one."""
        self._requests.requested(row)

    def close(self) -> None:
        """Close the files."""
        self._requests.close()
        super().close()


def _with_filter(
    found: Iterator[BatchHeader], aborted: Sequence[tuple[int, int]] | None
) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield each batch, and whether a client drops it by the list of aborted transactions, as Kafka's client does."""
    waiting = sorted(aborted or (), key=lambda row: row[1], reverse=True)
    active: set[int] = set()
    for h in found:
        while waiting and waiting[-1][1] <= h.base_offset + h.last_offset_delta:
            active.add(waiting.pop()[0])
        if h.attributes & CONTROL:
            active.discard(h.producer_id)
        yield h, bool(h.attributes & TRANSACTIONAL) and h.producer_id in active


def _ago(now_ns: int, ms: int) -> int:
    """`ms` before now, neither in the future nor before the clock began."""
    return max(0, min(now_ns, now_ns - ms * 1_000_000))
