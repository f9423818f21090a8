"""Leader epochs of a log (C6): the start offset of each epoch.

Owns: the entries `(epoch, start offset)` in memory and in `leader-epoch-checkpoint`.
Invariants: epochs and start offsets both strictly increase; the file is written at every change.

Worked example, entries (1, 0) (3, 10) (7, 25), log end offset 40:

    end_offset_for(7) = (7, 40)    the latest epoch ends where the log ends
    end_offset_for(4) = (3, 25)    unknown: the largest epoch at or below it, and the start of the next epoch
    end_offset_for(0) = (0, 0)     before the first: the start of the first epoch (older records were deleted)
    end_offset_for(9) = (-1, -1)   unknown and newer: the caller must not use this log

What may fail: OSError from the disk; CorruptLogError for a malformed checkpoint.
Source: Kafka's `LeaderEpochFileCache`; KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple

from ..host.seam import Disk
from ..ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from .checkpoints import encode_rows, malformed, read_number, read_rows
from .files import LEADER_EPOCHS


class EpochEntry(NamedTuple):
    """A leader's epoch and the offset of the first record it appended, or would have."""

    epoch: LeaderEpoch
    start_offset: Offset


class LeaderEpochs:
    """The leader epoch cache of one log. `LeaderEpochs(disk, folder)` reads the existing checkpoint."""

    __slots__ = ("_before_rebuild", "_disk", "_epochs", "_path", "_starts", "_synced", "_version")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{LEADER_EPOCHS}"
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        self._before_rebuild: dict[LeaderEpoch, Offset] | None = None  # the entries of the file, during a rebuild
        self._version, self._synced = (1, 0)  # versions of the file: written (1: by an earlier process), durable
        for number, row in enumerate(read_rows(disk, self._path, 2), 3):
            epoch = LeaderEpoch(read_number(self._path, number, row[0]))
            start = Offset(read_number(self._path, number, row[1]))
            if epoch <= self.latest() or start < 0 or (self._starts and start <= self._starts[-1]):
                raise malformed(self._path, number, f"{' '.join(row)!r} is not after its forerunner")
            self._epochs.append(epoch)
            self._starts.append(start)

    def entries(self) -> list[EpochEntry]:
        """All entries, in order."""
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    def latest(self) -> LeaderEpoch:
        """The newest epoch; -1 when none was assigned."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def latest_start(self) -> Offset:
        """The start offset of the newest epoch; -1 when none was assigned."""
        return self._starts[-1] if self._starts else NO_OFFSET

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch at or below `epoch` and its end offset; see the module's head."""
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return epoch, self._starts[0]
        end = self._starts[above]
        assert end <= log_end_offset, f"{self._path}: epoch {epoch} ends at {end}, the log at {log_end_offset}"
        return self._epochs[above - 1], end

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Add `epoch` with its start offset; entries that contradict it are removed (KIP-101).

        No change when it is the latest epoch already and begins no earlier.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} from offset {start_offset}: negative")
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        self._epochs[keep:] = [epoch]
        self._starts[keep:] = [start_offset]
        if keep:
            assert self._epochs[keep - 1] < epoch, f"{self._path}: epoch {epoch}"
            assert self._starts[keep - 1] < start_offset, f"{self._path}: start {start_offset}"
        self._write()

    def truncate_from_end(self, offset: Offset) -> None:
        """Remove epochs that start at or above `offset`."""
        keep = bisect_left(self._starts, offset)
        if keep < len(self._starts):
            del self._epochs[keep:]
            del self._starts[keep:]
            self._write()

    def rebuild_from(self, offset: Offset) -> None:
        """Begin a rebuild: remove epochs that start at or above `offset`; `rebuild` adds them again from the batches.

        After a power loss the checkpoint may be older or newer than the log, and readers get the batches.
        """
        self._before_rebuild = dict(self.entries())
        self.truncate_from_end(offset)

    def rebuild(self, epoch: LeaderEpoch, end: Offset, base: Offset) -> None:
        """The first batch of `epoch` has `base`, and the batch before it ended at `end`.

        Where compaction removed the first records of an epoch, or all of them, the checkpoint has the right start
        offset: it lies within the gap before this batch.
        """
        for known, start in (self._before_rebuild or {}).items():
            if self.latest() < known <= epoch and end <= start <= base:
                self.assign(known, start)
        if self.latest() < epoch:
            self.assign(epoch, base)

    def end_rebuild(self) -> None:
        """End the rebuild; write the entries if they differ from the file."""
        before, self._before_rebuild = self._before_rebuild, None
        if before is not None and before != dict(self.entries()):
            self._write()

    def truncate_from_start(self, offset: Offset) -> None:
        """Remove epochs that end at or below `offset`; the epoch of `offset` starts there now."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == offset):
            return
        self._starts[index] = offset
        del self._epochs[:index]
        del self._starts[:index]
        assert self._starts[0] == offset, f"{self._path}: the log starts at {offset}, its epochs at {self._starts[0]}"
        self._write()

    def clear(self) -> None:
        """Remove all entries."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._write()

    def flush(self) -> None:
        """BLOCKS. fsync the checkpoint if it changed since the last time; safe on two threads."""
        version = self._version
        if version != self._synced:
            self._disk.sync_file(self._path)
            self._synced = version

    def _write(self) -> None:
        if self._before_rebuild is not None:
            return
        # `__init__` refuses a file that breaks these rules: the next start would not open the log.
        assert all(before < after for before, after in pairwise(self._epochs)), f"{self._path}: {self._epochs}"
        assert all(before < after for before, after in pairwise(self._starts)), f"{self._path}: {self._starts}"
        # Not fsynced here: a broker that becomes leader of hundreds of partitions writes hundreds of these files
        # on its loop (KAFKA-15046). The log's flush does it before the recovery point advances; entries that a power
        # loss takes before are rebuilt from the batches above the recovery point.
        rows = zip(self._epochs, self._starts, strict=True)
        self._disk.replace(self._path, encode_rows(rows), durable=False)
        self._version += 1  # afterwards: a flush on a thread at the same time may have synced the old file
