"""The files of one segment: the log file and its three indexes, their names, fsync, renaming and deletion.

Owns: the open log file, the index objects, and the suffix that all four files carry after their own (`.cleaned`,
`.swap`, `.deleted`, or none).
What may fail: OSError from the disk. Source: Kafka's `LogSegment`, `FileRecords.renameTo`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..host.seam import Disk
from .files import DELETED, LOG, OFFSET_INDEX, SEGMENT_FILES, SNAPSHOT, TIME_INDEX, TXN_INDEX, file_name
from .indexes.offset_index import OffsetIndex
from .indexes.time_index import TimeIndex
from .indexes.transaction_index import TransactionIndex
from .segment_options import SegmentOptions


def _nothing() -> None:
    """Do nothing before a rename."""


class SegmentFiles:
    """The open files of a segment; creates those that are absent."""

    __slots__ = ("_disk", "_folder", "aborted", "base_offset", "file", "offsets", "suffix", "times")

    def __init__(self, disk: Disk, folder: str, base_offset: int, options: SegmentOptions, *, suffix: str) -> None:
        self._disk = disk
        self._folder = folder
        self.base_offset = base_offset
        self.suffix = suffix
        self.file = disk.open(self.path_of(LOG))
        maps, index_bytes = options.maps, options.index_bytes_max
        self.offsets = OffsetIndex(disk, self.path_of(OFFSET_INDEX), base_offset, bytes_max=index_bytes, maps=maps)
        self.times = TimeIndex(disk, self.path_of(TIME_INDEX), base_offset, bytes_max=index_bytes, maps=maps)
        self.aborted = TransactionIndex(disk, self.path_of(TXN_INDEX), base_offset)

    def path_of(self, kind: str) -> str:
        """The path of the file of that kind (`.log`, `.index`, …), whether it exists or not."""
        return f"{self._folder}/{file_name(self.base_offset, kind)}{self.suffix}"

    def flush(self, *, indexes: bool) -> None:
        """BLOCKS. fsync the log file, and the index files where they are complete."""
        self.file.sync()
        if indexes:
            self.offsets.sync()
            self.times.sync()
            self.aborted.sync()

    def file_paths(self, *, snapshot: bool = True) -> list[str]:
        """Every file that is deleted with the segment; some may be absent."""
        kinds = (*SEGMENT_FILES, SNAPSHOT) if snapshot else SEGMENT_FILES
        return [self.path_of(kind) for kind in kinds]

    def change_suffix(self, suffix: str, *, before_each: Callable[[], None] = _nothing) -> None:
        """Rename all its files (`.cleaned` → `.swap` → none), the log file first; they stay open.

        `before_each` is called before each rename (failpoints).
        """
        before = [self.path_of(kind) for kind in SEGMENT_FILES]
        self.suffix = suffix
        # Paths first: a look-up on another thread that maps an index at the same time finds or creates a file
        # that the rename then replaces.
        self.offsets.path = self.path_of(OFFSET_INDEX)
        self.times.path = self.path_of(TIME_INDEX)
        self.aborted.path = self.path_of(TXN_INDEX)
        after = [self.path_of(kind) for kind in SEGMENT_FILES]
        for source, target in zip(before, after, strict=True):
            if self._disk.exists(source):
                before_each()
                self._disk.rename(source, target)

    def mark_deleted(
        self, *, keep_snapshots: Collection[int] = (), before_each: Callable[[], None] = _nothing
    ) -> list[str]:
        """Rename its files to `.deleted` (readers keep theirs open); returns the new paths.

        A producer snapshot at one of the offsets `keep_snapshots` stays as it is.
        """
        paths = [f"{path}{DELETED}" for path in self.file_paths(snapshot=False)]
        snapshot = f"{self._folder}/{file_name(self.base_offset, SNAPSHOT)}"
        if self.base_offset not in keep_snapshots and self._disk.exists(snapshot):
            before_each()
            self._disk.rename(snapshot, snapshot + DELETED)
            paths.append(snapshot + DELETED)
        self.change_suffix(self.suffix + DELETED, before_each=before_each)
        return [path for path in paths if self._disk.exists(path)]

    def remove(self) -> None:
        """Close and delete its files at once. Only recovery calls this, before anything reads the log."""
        self.close()
        for path in self.file_paths():
            self._disk.remove(path)

    def close(self) -> None:
        """Close the files without a change."""
        self.file.close()
        self.offsets.close()
        self.times.close()
        self.aborted.close()
