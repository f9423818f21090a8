"""How far one log is on stable storage, and which of its records wait for an fsync (B11).

Owns: the recovery point, which flushes on threads raise and truncations on the loop lower; the acknowledgeable end.

    recovery_point        every record below it is durable, in the log as it is now
    acknowledgeable_end   first offset that must not be acknowledged yet, while `flush.messages` waits for an fsync

Invariants: log start offset <= recovery point (except after DeleteRecords or a leader's log start raised the start
above it) and recovery point <= log end offset.

A flush that began before a truncation guarantees nothing about records that were appended after the truncation.
Therefore each flush remembers the number of truncations at its beginning, and a result with an old number does not
count, whichever thread finishes last.
"""

from __future__ import annotations

from ..ids import Offset


class Durability:
    """The state of one log."""

    __slots__ = ("_cut_point", "_cuts", "_flushed", "_pending_from")

    def __init__(self, recovery_point: Offset) -> None:
        self._cuts = 0
        self._cut_point = recovery_point  # the recovery point after the last truncation
        self._flushed = (0, recovery_point)  # number of truncations before the flush, recovery point
        self._pending_from: Offset | None = None

    @property
    def recovery_point(self) -> Offset:
        """Every record below it is durable."""
        cuts, offset = self._flushed
        return offset if cuts == self._cuts else self._cut_point

    def begin(self) -> int:
        """Begin a flush (any thread); returns the number to pass to `ended`."""
        return self._cuts

    def ended(self, begun: int, offset: Offset) -> bool:
        """A flush has made everything below `offset` durable; False when a truncation happened since it began."""
        if begun == self._cuts:
            self._flushed = (begun, max(self.recovery_point, offset))
        return begun == self._cuts

    def cut(self, offset: Offset) -> None:
        """A truncation: the log ends at `offset` or below (on the loop)."""
        assert offset >= 0, f"a truncation to {offset}"
        self._cut_point = min(self.recovery_point, offset)
        self._cuts += 1

    # -- the acknowledgeable end

    @property
    def awaits_fsync(self) -> bool:
        """True while some record is not acknowledgeable before an fsync."""
        return self._pending_from is not None

    def acknowledgeable_end(self, end: Offset) -> Offset:
        """First offset that must not be acknowledged yet, of a log that ends at `end`."""
        return end if self._pending_from is None else min(self._pending_from, end)

    def await_fsync_from(self, offset: Offset) -> None:
        """Records from `offset` on must not be acknowledged before an fsync; earlier ones that wait still wait."""
        if self._pending_from is None:
            self._pending_from = offset

    def advance(self, end: Offset, messages: int) -> bool:
        """Move the acknowledgeable end to the recovery point.

        True when fewer than `messages` records are not durable, so that no record waits any more.
        """
        point = self.recovery_point
        assert point <= end, f"recovery point {point} above log end offset {end}"
        if end - point < messages:
            self._pending_from = None
            return True
        self._pending_from = max(self._pending_from or point, point)
        return False
