"""How far one log is on stable storage, and from where on an fsync is waited for (B11).

Owns: the recovery point, told by flushes on threads and cut by truncations on the loop; the settled offset.

    recovery_point   everything below it was fsynced, in the log as it is now
    settled          where that ends which may be acknowledged, while `flush.messages` asks for an fsync

A flush that began before a truncation proves nothing about what was written after it: it is told of the
truncation by a number, and a result under an old number counts for nothing, whichever thread comes last.
"""

from __future__ import annotations

import errno

from ..ids import Offset


class Durability:
    """The state of one log."""

    __slots__ = ("_cut_point", "_cuts", "_flushed", "_settled")

    def __init__(self, recovery_point: Offset) -> None:
        self._cuts = 0
        self._cut_point = recovery_point  # what a truncation left of the recovery point
        self._flushed = (0, recovery_point)  # after how many truncations, up to where
        self._settled: Offset | None = None

    @property
    def recovery_point(self) -> Offset:
        """Everything below it was fsynced."""
        cuts, offset = self._flushed
        return offset if cuts == self._cuts else self._cut_point

    def begin(self) -> int:
        """A flush begins (any thread); to be given to `ended`."""
        return self._cuts

    def ended(self, begun: int, offset: Offset) -> bool:
        """Everything below `offset` was fsynced; False when a truncation came in between."""
        if begun == self._cuts:
            self._flushed = (begun, max(self.recovery_point, offset))
        return begun == self._cuts

    def cut(self, offset: Offset) -> None:
        """The log ends at `offset` or below (on the loop)."""
        self._cut_point = min(self.recovery_point, offset)
        self._cuts += 1

    # -- what waits

    @property
    def waiting(self) -> bool:
        """True while an fsync is waited for."""
        return self._settled is not None

    def settled(self, end: Offset) -> Offset:
        """Where that ends which may be acknowledged, of a log that ends at `end`."""
        return end if self._settled is None else min(self._settled, end)

    def wait(self, settled: Offset) -> None:
        """What was appended from `settled` on waits, and what was before it already."""
        if self._settled is None:
            self._settled = settled

    def settle(self, end: Offset, messages: int) -> bool:
        """See what was fsynced; True when less than `messages` records are not, so that nothing waits."""
        point = self.recovery_point
        if end - point < messages:
            self._settled = None
            return True
        self._settled = max(self._settled or point, point)
        return False


def no_longer_there(error: Exception) -> bool:
    """What a call on a thread meets when the loop has closed or renamed a file under it; the disk refused nothing."""
    return not isinstance(error, OSError) or error.errno in (errno.EBADF, errno.ENOENT)
