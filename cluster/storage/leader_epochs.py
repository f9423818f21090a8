"""Leader epochs of a log (C6): at which offset each leader began.

Owns: the entries `(epoch, start offset)` in memory and in `leader-epoch-checkpoint`.
Invariants: epochs and start offsets both strictly increase; the file is written at every change.

Worked example, entries (1, 0) (3, 10) (7, 25), log end offset 40:

    end_offset_for(7) = (7, 40)    the latest epoch ends where the log ends
    end_offset_for(4) = (3, 25)    unknown: the largest epoch at or below it, where the next begins
    end_offset_for(0) = (0, 0)     before the first: where the first known begins (data is gone)
    end_offset_for(9) = (-1, -1)   never heard of: the asker must not trust us

What may fail: OSError from the disk; CorruptLogError for a malformed checkpoint.
Source: Kafka's `LeaderEpochFileCache`; KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
    """The cache of one log. `LeaderEpochs(disk, folder)` reads the checkpoint that is there."""

    __slots__ = ("_disk", "_epochs", "_path", "_starts", "_synced", "_told_before", "_version")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{LEADER_EPOCHS}"
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        self._told_before: dict[LeaderEpoch, Offset] | None = (
            None  # by the file, while it is told anew
        )
        self._version, self._synced = (
            1,
            0,
        )  # of the file: as written (by an earlier life), as far as it is durable
        for number, row in enumerate(read_rows(disk, self._path, 2), 3):
            epoch = LeaderEpoch(read_number(self._path, number, row[0]))
            start = Offset(read_number(self._path, number, row[1]))
            if epoch <= self.latest() or start < 0 or (self._starts and start <= self._starts[-1]):
                raise malformed(
                    self._path, number, f"{' '.join(row)!r} is not after its forerunner"
                )
            self._epochs.append(epoch)
            self._starts.append(start)

    def entries(self) -> list[EpochEntry]:
        """All of them, in order."""
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    def latest(self) -> LeaderEpoch:
        """The newest epoch; -1 when none was assigned."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def latest_start(self) -> Offset:
        """The start offset of the newest epoch; -1 when none was assigned."""
        return self._starts[-1] if self._starts else NO_OFFSET

    def end_offset_for(
        self, epoch: LeaderEpoch, log_end_offset: Offset
    ) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch at or below `epoch` and where it ends; see the module's head."""
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return epoch, self._starts[0]
        return self._epochs[above - 1], self._starts[above]

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that `epoch` begins at `start_offset`; entries that contradict it go (KIP-101).

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
        """Forget epochs that begin at or above `offset`."""
        keep = bisect_left(self._starts, offset)
        if keep < len(self._starts):
            del self._epochs[keep:]
            del self._starts[keep:]
            self._write()

    def retell_from(self, offset: Offset) -> None:
        """Forget what begins at or above `offset`: `retold` tells it anew from the batches, until `retelling_ended`.

        After a power loss neither file says which one is newer, and the batches are what is served.
        """
        self._told_before = dict(self.entries())
        self.truncate_from_end(offset)

    def retold(self, epoch: LeaderEpoch, end: Offset, base: Offset) -> None:
        """The first batch of `epoch` has `base`, and the batch before it ended at `end`.

        Where compaction took an epoch's first records, or all of them, what was told before knows better where it
        began: within the gap that it left.
        """
        for known, start in (self._told_before or {}).items():
            if self.latest() < known <= epoch and end <= start <= base:
                self.assign(known, start)
        if self.latest() < epoch:
            self.assign(epoch, base)

    def retelling_ended(self) -> None:
        """Write what has come out, if it is not what the file says."""
        before, self._told_before = self._told_before, None
        if before is not None and before != dict(self.entries()):
            self._write()

    def truncate_from_start(self, offset: Offset) -> None:
        """Forget epochs that end at or below `offset`; the one that holds it begins there now."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == offset):
            return
        self._starts[index] = offset
        del self._epochs[:index]
        del self._starts[:index]
        self._write()

    def clear(self) -> None:
        """Forget everything."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._write()

    def flush(self) -> None:
        """BLOCKS. Bring the checkpoint to stable storage, if it changed since; two threads each make sure of it."""
        version = self._version
        if version != self._synced:
            self._disk.sync_file(self._path)
            self._synced = version

    def _write(self) -> None:
        if self._told_before is not None:
            return
        # Not fsynced here: a broker that becomes leader of hundreds of partitions does this for each of them
        # on its loop (KAFKA-15046). The log's flush does it, before the recovery point moves; what is lost with
        # the power until then is read again from the batches above the recovery point.
        rows = zip(self._epochs, self._starts, strict=True)
        self._disk.replace(self._path, encode_rows(rows), durable=False)
        self._version += 1  # afterwards: a flush on a thread meanwhile has brought the old file
