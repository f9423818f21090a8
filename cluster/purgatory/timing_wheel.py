"""Hierarchical timing wheel (E1): timers in O(1), driven by the expiry of buckets.

Owns: the entries with a later deadline. It has no clock and no thread: the caller passes the time to
`advance(now_ms)`, which returns the due entries.

A wheel of `wheel_size` buckets of `tick_ms` each covers `tick_ms * wheel_size` milliseconds. An entry with a later
deadline goes to an overflow wheel, which is created on demand and whose tick is the whole interval of the wheel
below it. When a bucket of an overflow wheel expires, its entries move to the finer buckets of the wheel below.
With tick 1 and size 4 at time 0:

    deadline  2 -> level 0 bucket [2, 3)
    deadline  6 -> level 1 bucket [4, 8); at time 4 it moves to level 0 bucket [6, 7)
    deadline 20 -> level 2 bucket [16, 32); at 16 it moves to level 1 bucket [20, 24); at 20 it is due

Invariants:
* an entry is in at most one bucket, and `advance` returns it exactly once, unless it was cancelled;
* `advance` never returns an entry before its deadline; with tick 1, `advance` to its deadline returns it;
* every bucket with entries is in the heap exactly once, with its own expiry; a bucket is not used for a later
  round before its earlier expiry has left the heap;
* time never goes back.

Source: Kafka's `TimingWheel`, `TimerTaskList` and `SystemTimer` (its DelayQueue is the heap here);
Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class TimerEntry:
    """A timer that is due at `deadline_ms`: a node in the linked list of its bucket. Made to be subclassed."""

    __slots__ = ("after", "before", "deadline_ms")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.before: TimerEntry | None = None
        self.after: TimerEntry | None = None

    @property
    def scheduled(self) -> bool:
        """True while the entry waits in a wheel."""
        return self.after is not None

    def cancel(self) -> None:
        """Removes the entry from its wheel, in O(1); does nothing when it is not in a wheel."""
        before, after = self.before, self.after
        if before is None or after is None:
            assert before is after, "a timer entry has both neighbours or neither"
            return
        before.after = after
        after.before = before
        self.before = self.after = None


class _Bucket(TimerEntry):
    """The entries that are due within the same tick of a level: a circular list whose head is the bucket itself."""

    __slots__ = ("queued",)

    def __init__(self) -> None:
        self.deadline_ms = -1  # without super().__init__(): a new level creates hundreds of buckets
        self.before = self.after = self
        self.queued = False

    def empty(self) -> bool:
        return self.after is self

    def drain(self) -> Iterator[TimerEntry]:
        while (entry := self.after) is not self:
            assert entry is not None
            entry.cancel()
            yield entry


class _Level:
    """A wheel of the hierarchy."""

    __slots__ = ("buckets", "end_ms", "interval_ms", "now_ms", "overflow", "tick_ms")

    def __init__(self, tick_ms: int, wheel_size: int, now_ms: int) -> None:
        self.tick_ms = tick_ms
        self.interval_ms = tick_ms * wheel_size
        self.now_ms = now_ms - now_ms % tick_ms
        self.end_ms = self.now_ms + self.interval_ms
        self.buckets = [_Bucket() for _ in range(wheel_size)]
        self.overflow: _Level | None = None


class TimingWheel:
    """Holds entries by deadline. `add` and `TimerEntry.cancel` cost O(1); `advance` costs O(number of due entries)."""

    def __init__(self, now_ms: int, tick_ms: int = 1, wheel_size: int = 256) -> None:
        assert tick_ms >= 1, "a tick must be at least a millisecond"
        assert wheel_size >= 2, "a wheel needs at least two buckets"
        self._size = wheel_size
        self._base = _Level(tick_ms, wheel_size, now_ms)
        self._heap: list[tuple[int, int, _Bucket]] = []
        self._pushed = 0

    def add(self, entry: TimerEntry) -> bool:
        """Adds `entry` until its deadline; False when the deadline has already passed, and then nothing is added."""
        deadline = entry.deadline_ms
        level = self._base
        if deadline < level.now_ms + level.tick_ms:
            return False
        while deadline >= level.end_ms:
            level = level.overflow or self._make_overflow(level)
        slot = deadline // level.tick_ms
        bucket = level.buckets[slot % self._size]
        if not bucket.queued:
            self._queue(bucket, slot * level.tick_ms)
        # inlined, because a call would cost as much as the rest of this function
        assert entry.after is None, "an entry must be in at most one bucket"
        last = bucket.before
        entry.before = last
        entry.after = bucket
        last.after = bucket.before = entry  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess] - a ring
        return True

    def _make_overflow(self, level: _Level) -> _Level:
        level.overflow = _Level(level.interval_ms, self._size, level.now_ms)
        return level.overflow

    def _queue(self, bucket: _Bucket, expiry_ms: int) -> None:
        assert bucket.empty(), "a bucket must not be reused before its earlier round has expired"
        bucket.queued = True
        bucket.deadline_ms = expiry_ms
        self._pushed += 1
        heapq.heappush(self._heap, (expiry_ms, self._pushed, bucket))

    def advance(self, now_ms: int) -> list[TimerEntry]:
        """Moves the time to `now_ms` and returns the entries that became due, ordered by the expiry of their bucket."""
        due: list[TimerEntry] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            expiry, _, bucket = heapq.heappop(heap)
            assert bucket.queued, "a bucket is in the heap at most once"
            assert bucket.deadline_ms == expiry, "a bucket is in the heap under its own expiry"
            bucket.queued = False
            self._move_clock(expiry)
            due.extend([entry for entry in bucket.drain() if not self.add(entry)])
        self._move_clock(now_ms)
        return due

    def next_expiry_ms(self) -> int | None:
        """Returns the next expiry of a bucket, not later than its entries' deadlines; None when nothing waits."""
        heap = self._heap
        while heap:
            expiry, _, bucket = heap[0]
            if not bucket.empty():
                return expiry
            heapq.heappop(heap)
            bucket.queued = False
        return None

    def _move_clock(self, now_ms: int) -> None:
        level: _Level | None = self._base
        while level is not None and now_ms >= level.now_ms + level.tick_ms:
            level.now_ms = now_ms - now_ms % level.tick_ms
            level.end_ms = level.now_ms + level.interval_ms
            level = level.overflow
