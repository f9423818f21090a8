"""The segment that a compaction writes: `.cleaned` files, complete and durable before the log uses them.

Owns: one `LogSegment` with the suffix `.cleaned` until `segment_swap.swap`. The caller appends batches in offset order;
one write takes many; the indexes are written as at an append. No other component uses the segment before the swap, so a
thread beside the loop writes it.

Memory: batches up to `WRITE_BYTES`.
What may fail: OSError; the caller then calls `discard`. The next opening removes files that even `discard` leaves.
Source: Kafka's `UnifiedLog.createNewCleanedSegment`, `Cleaner.cleanSegments`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import StorageError
from ...host.seam import Buffer, Host
from ...host.seam.failpoints import CLEANER_BETWEEN_WRITES
from ...wire.batches import header_at
from ..files import CLEANED, SEGMENT_FILES, file_name
from ..indexes.sparse_index import RELATIVE_OFFSET_MAX
from ..indexes.transaction_index import AbortedTxn
from ..log import Log
from ..results import AppendedBatch

WRITE_BYTES = 1024 * 1024
POSITION_MAX = 2**31 - 1


class CleanedSegment:
    """One `.cleaned` segment being written; `finish` and then the swap, or `discard`."""

    __slots__ = ("_disk", "_hit", "_paths", "_pending", "_pending_bytes", "_rows", "segment")

    def __init__(self, host: Host, log: Log, base_offset: int) -> None:
        self._disk = host.disk
        self._hit = host.failpoints.hit
        self._paths = [f"{log.folder}/{file_name(base_offset, kind)}{CLEANED}" for kind in SEGMENT_FILES]
        self._pending: list[Buffer] = []
        self._rows: list[AppendedBatch] = []
        self._pending_bytes = 0
        for path in self._paths:  # leftovers of a cleaning that failed
            self._disk.remove(path)
        self._hit(CLEANER_BETWEEN_WRITES)
        self.segment = log.open_segment(base_offset, CLEANED)

    def append(self, batch: Buffer) -> None:
        """Add one whole batch, which must not change any more; it is written together with others."""
        header = header_at(batch)
        size = len(batch)
        before = self._rows[-1].last_offset if self._rows else self.segment.base_offset - 1
        assert header.base_offset > before, f"{self.segment.file.path}: batch {header.base_offset} after {before}"
        self._rows.append(
            AppendedBatch(
                self._pending_bytes,
                size,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.leader_epoch,
            )
        )
        self._pending.append(batch)
        self._pending_bytes += size
        if self._pending_bytes >= WRITE_BYTES:
            self._write()

    def note_aborted(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add the index entries of abort markers that stay, in the order of their markers."""
        for transaction in aborted:
            self._hit(CLEANER_BETWEEN_WRITES)
            self.segment.aborted.append(transaction)

    def _write(self) -> None:
        if not self._pending:
            return
        if self.segment.size + self._pending_bytes > POSITION_MAX:
            raise StorageError(f"{self.segment.file.path}: compaction would make more than {POSITION_MAX} bytes")
        last = self._rows[-1].last_offset - self.segment.base_offset
        assert last <= RELATIVE_OFFSET_MAX, f"{self.segment.file.path}: relative offset {last}"
        self._hit(CLEANER_BETWEEN_WRITES)
        self.segment.append(self._pending, self._pending_bytes, self._rows)
        self._pending = []
        self._rows = []
        self._pending_bytes = 0

    def finish(self) -> None:
        """BLOCKS. Write the rest and complete the indexes; all files are durable afterwards."""
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
