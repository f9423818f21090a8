"""The records' part of the tap: batches that responses acknowledged or delivered (J6).

Owns: `tap.bin`. Rows are written with one `write` a call, before the response's bytes are sent: what a client received
is in the tap.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ..broker_folder import TAP
from ..host.seam import Buffer, Clock
from ..wire.batch_header import BatchHeader, headers_in
from .files import TapFiles
from .layouts import FETCHED, FLAG_FILTERED, FLAG_LOST, FLAG_READ_COMMITTED, PRODUCED, TAP_ROW
from .refused import RefusedBatches


class BatchRows:
    """The file of one host; `files` numbers the names, `refused` keeps what was not appended."""

    def __init__(self, files: TapFiles, clock: Clock, refused: RefusedBatches) -> None:
        self._clock = clock
        self._number_of = files.number_of
        self._rows = files.open_rows(TAP, TAP_ROW.size)
        self._refused = refused

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
        front = (PRODUCED, FLAG_LOST if lost else 0, error, self._number_of(client), self._number_of(topic), partition)
        completed_ns = self._clock.monotonic_ns()
        assert invoked_ns <= completed_ns, f"{topic}-{partition}: invoked at {invoked_ns}, completed at {completed_ns}"
        wall_ms = self._clock.wall_ms()
        refused = base_offset < 0
        if refused:
            self._refused.keep(client, topic, partition, error, batches)
        rows = bytearray()
        for h in headers_in((batches,)):
            last = -1 if refused else base_offset + h.last_offset_delta
            rows += TAP_ROW.pack(
                *front,
                -1 if refused else base_offset,
                last,
                h.crc,
                h.record_count & 0xFFFF_FFFF,
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
        front = (0, self._number_of(client), self._number_of(topic), partition)
        now_ns = self._clock.monotonic_ns()
        assert invoked_ns <= now_ns, f"{topic}-{partition}: invoked at {invoked_ns}, completed at {now_ns}"
        flags = 0 if aborted is None else FLAG_READ_COMMITTED
        rows = bytearray()
        for h, filtered in _with_filter(headers_in(batches), aborted):
            last = h.last_offset
            if h.is_control or last < offset:
                continue
            rows += TAP_ROW.pack(
                FETCHED,
                flags | (FLAG_FILTERED if filtered else 0),
                *front,
                max(h.base_offset, offset),
                last,
                h.crc,
                h.record_count & 0xFFFF_FFFF,
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


def _with_filter(
    found: Iterable[BatchHeader], aborted: Sequence[tuple[int, int]] | None
) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield each batch, and whether a client drops it by the list of aborted transactions, as Kafka's client does."""
    waiting = sorted(aborted or (), key=lambda row: row[1], reverse=True)
    active: set[int] = set()
    for h in found:
        while waiting and waiting[-1][1] <= h.last_offset:
            active.add(waiting.pop()[0])
        if h.is_control:
            active.discard(h.producer_id)
        yield h, h.is_transactional and h.producer_id in active


def _ago(now_ns: int, ms: int) -> int:
    """`ms` before now, neither in the future nor before the clock began."""
    return max(0, min(now_ns, now_ns - ms * 1_000_000))
