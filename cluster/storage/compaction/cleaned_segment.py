"""The segment that a compaction writes: `.cleaned` files, complete and durable before anyone sees them.

Owns: one `LogSegment` under the suffix `.cleaned` until it is handed to `segment_swap.swap`. Batches come in
offset order, many to a write; indexes are made as an append makes them. Nobody else knows of the segment
until the swap, so it is written on a thread beside the loop.

Memory: batches up to `WRITE_BYTES`.
What may fail: OSError; the caller then calls `discard`, and what even that leaves the next load sweeps.
Source: Kafka's `UnifiedLog.createNewCleanedSegment`, `Cleaner.cleanSegments`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import StorageError
from ...host.seam import Buffer, Host
from ...host.seam.failpoints import CLEANER_BETWEEN_WRITES
from ...wire.batches import header_at
from ..files import CLEANED, SEGMENT_FILES, file_name
from ..indexes.transaction_index import AbortedTxn
from ..log import Log
from ..results import AppendedBatch

WRITE_BYTES = 1024 * 1024
POSITION_MAX = 2**31 - 1


class CleanedSegment:
    """One `.cleaned` segment being written; `finish` and then the swap, or `discard`."""

    __slots__ = ("_disk", "_hit", "_paths", "_pending", "_rows", "_taken", "segment")

    def __init__(self, host: Host, log: Log, base_offset: int) -> None:
        self._disk = host.disk
        self._hit = host.failpoints.hit
        self._paths = [
            f"{log.folder}/{file_name(base_offset, kind)}{CLEANED}" for kind in SEGMENT_FILES
        ]
        self._pending: list[Buffer] = []
        self._rows: list[AppendedBatch] = []
        self._taken = 0
        for path in self._paths:  # leftovers of a cleaning that failed
            self._disk.remove(path)
        self._hit(CLEANER_BETWEEN_WRITES)
        self.segment = log.open_segment(base_offset, CLEANED)

    def append(self, batch: Buffer) -> None:
        """Take one whole batch, which must not change any more; it is written with others."""
        header = header_at(batch)
        size = len(batch)
        self._rows.append(
            AppendedBatch(
                self._taken,
                size,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.leader_epoch,
            )
        )
        self._pending.append(batch)
        self._taken += size
        if self._taken >= WRITE_BYTES:
            self._write()

    def note_aborted(self, aborted: Iterable[AbortedTxn]) -> None:
        """Take the index entries of abort markers that stay; in the order of their markers."""
        for one in aborted:
            self._hit(CLEANER_BETWEEN_WRITES)
            self.segment.aborted.append(one)

    def _write(self) -> None:
        if not self._pending:
            return
        if self.segment.size + self._taken > POSITION_MAX:
            raise StorageError(
                f"{self.segment.file.path}: compaction would make more than {POSITION_MAX} bytes"
            )
        self._hit(CLEANER_BETWEEN_WRITES)
        self.segment.append(self._pending, self._taken, self._rows)
        self._pending = []
        self._rows = []
        self._taken = 0

    def finish(self) -> None:
        """BLOCKS. Write what is left, complete the indexes; all of it is on stable storage afterwards."""
        self._write()
        self._hit(CLEANER_BETWEEN_WRITES)
        self.segment.become_inactive()
        self._hit(CLEANER_BETWEEN_WRITES)
        self.segment.flush(indexes=True)

    def discard(self) -> None:
        """Close and remove the files, unless they are being swapped in."""
        self.segment.close()
        if self.segment.suffix == CLEANED:
            for path in self._paths:
                self._disk.remove(path)
