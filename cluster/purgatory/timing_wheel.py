"""Hierarchical timing wheel (E1): timers in O(1), driven by the expiry of buckets.

Owns: the entries that are due later, and nothing else: no clock, no thread. Time goes in with
`advance(now_ms)`, due entries come out.

A wheel of `wheel_size` buckets of `tick_ms` each covers `tick_ms * wheel_size`; an entry beyond that goes
to an overflow wheel whose tick is the whole interval of the one below, made on demand. When a bucket
of an overflow wheel expires its entries fall into finer buckets below. With tick 1 and size 4 at time 0:

    deadline  2 -> level 0 bucket [2, 3)
    deadline  6 -> level 1 bucket [4, 8); at time 4 it falls to level 0 bucket [6, 7)
    deadline 20 -> level 2 bucket [16, 32); at 16 to level 1 [20, 24); at 20 it is due

Invariants:
* an entry is in at most one bucket, and comes out of `advance` exactly once, unless it was cancelled;
* no entry comes out before its deadline; with tick 1 an `advance` to its deadline brings it out;
* every bucket with entries is in the heap once, under its own expiry; a bucket is never reused for a
  later round before its earlier expiry was taken off the heap.

Source: Kafka's `TimingWheel`, `TimerTaskList` and `SystemTimer` (its DelayQueue is the heap here);
Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class TimerEntry:
    """Something due at `deadline_ms`: a node of its bucket's linked list. Subclass it or hold it."""

    __slots__ = ("after", "before", "deadline_ms")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.before: TimerEntry | None = None
        self.after: TimerEntry | None = None

    @property
    def scheduled(self) -> bool:
        """True while it waits in a wheel."""
        return self.after is not None

    def cancel(self) -> None:
        """Take it out of its wheel, O(1); no error when it is in none."""
        before, after = self.before, self.after
        if before is None or after is None:
            return
        before.after = after
        after.before = before
        self.before = self.after = None


class _Bucket(TimerEntry):
    """Entries due within one tick of one level: a circular list whose head is the bucket itself."""

    __slots__ = ("queued",)

    def __init__(self) -> None:
        self.deadline_ms = -1  # by hand: a new level makes hundreds
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
    """One wheel of the hierarchy."""

    __slots__ = ("buckets", "end_ms", "interval_ms", "now_ms", "overflow", "tick_ms")

    def __init__(self, tick_ms: int, wheel_size: int, now_ms: int) -> None:
        self.tick_ms = tick_ms
        self.interval_ms = tick_ms * wheel_size
        self.now_ms = now_ms - now_ms % tick_ms
        self.end_ms = self.now_ms + self.interval_ms
        self.buckets = [_Bucket() for _ in range(wheel_size)]
        self.overflow: _Level | None = None


class TimingWheel:
    """Entries by deadline. `add` and `TimerEntry.cancel` are O(1); `advance` costs what is due."""

    def __init__(self, now_ms: int, tick_ms: int = 1, wheel_size: int = 256) -> None:
        assert tick_ms >= 1, "a tick is at least a millisecond"
        assert wheel_size >= 2, "a wheel needs two buckets"
        self._size = wheel_size
        self._base = _Level(tick_ms, wheel_size, now_ms)
        self._heap: list[tuple[int, int, _Bucket]] = []
        self._pushed = 0

    def add(self, entry: TimerEntry) -> bool:
        """Keep `entry` until its deadline; False, and nothing kept, when that has passed already."""
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
        # pushing by hand: a call would cost as much as all the rest
        assert entry.after is None, "an entry waits in one bucket at a time"
        last = bucket.before
        entry.before = last
        entry.after = bucket
        last.after = bucket.before = entry  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess] - a ring
        return True

    def _make_overflow(self, level: _Level) -> _Level:
        level.overflow = _Level(level.interval_ms, self._size, level.now_ms)
        return level.overflow

    def _queue(self, bucket: _Bucket, expiry_ms: int) -> None:
        assert bucket.empty(), "a bucket serves one round at a time"
        bucket.queued = True
        bucket.deadline_ms = expiry_ms
        self._pushed += 1
        heapq.heappush(self._heap, (expiry_ms, self._pushed, bucket))

    def advance(self, now_ms: int) -> list[TimerEntry]:
        """Move time to `now_ms` (never back) and return what became due, by deadline of its bucket."""
        due: list[TimerEntry] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            expiry, _, bucket = heapq.heappop(heap)
            bucket.queued = False
            self._move_clock(expiry)
            due.extend([entry for entry in bucket.drain() if not self.add(entry)])
        self._move_clock(now_ms)
        return due

    def next_expiry_ms(self) -> int | None:
        """When `advance` has work next (a bucket's expiry, not later than its entries); None: nothing waits."""
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
