"""Purgatory (E2): holds operations that wait for an event or for their deadline, and completes each one once.

Owns: the watch lists (key -> operations) and the completion of operations. The purgatory tries a new operation
once. If it cannot complete, the purgatory watches it under its keys, and tries it again at every
`check_and_complete(key)`, which reports that the state behind a key has changed. The deadline completes an operation
whatever its condition is.

Invariants:
* `on_complete` runs exactly once: from `try_complete` (through `force_complete`) or at the deadline, and then
  `on_expiration` runs after it;
* `check_and_complete` may be called from inside an `on_complete`, for example by a completion that appends: it
  iterates over a snapshot of a list, so the inner call sees every operation and skips none;
* a completed operation leaves the list whose event completed it at once, and the other lists when more than
  `purge_interval` completed operations are in them;
* `delayed` is the number of operations that were put on watch lists and have not completed.

A missed wake-up is an event that happened and was not reported, so that the operation waited until its deadline. The
purgatory asks each operation at its deadline for the keys that it no longer waits for (`due_keys`). When no report for
one of them comes within `PROBE_MS` either, it calls `on_missed`; the report of an event of the same moment may come a
little later than the deadline.

Source: Kafka's `DelayedOperation` and `DelayedOperationPurgatory`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

from .timer import PurgatoryTimer
from .timing_wheel import TimerEntry

PROBE_MS = 20
"""A report for a key is missing when it does not come so soon after a deadline."""


class DelayedOperation(TimerEntry):
    """An operation that completes later. Subclasses define `try_complete`, `on_complete` and `on_expiration`."""

    __slots__ = ("completed", "home")

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.completed = False
        self.home: Purgatory | None = None
        """The purgatory that watches the operation. At completion the operation subtracts itself from its `delayed`."""

    def try_complete(self) -> bool:
        """Completes the operation by `force_complete` if its condition holds; True when this call completed it."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Does the work of the completion, for example sends the response; called exactly once."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Called after `on_complete` when the deadline completed the operation."""

    def due_keys(self) -> Sequence[Hashable]:
        """Keys for which it waits in vain: it could complete now. Asked at the deadline, and must change nothing."""
        return ()

    def force_complete(self) -> bool:
        """Completes the operation now, whatever its condition is; False when it was already complete."""
        if self.completed:
            return False
        self.completed = True
        self.cancel()
        home, self.home = self.home, None
        if home is not None:
            home.delayed -= 1
            assert home.delayed >= 0, "the purgatory counted this operation's completion twice"
        self.on_complete()
        return True

    def expire(self) -> None:
        """Completes the operation because its deadline has passed."""
        home = self.home
        if home is not None and home.on_missed is not None:
            home.probe(self.due_keys(), self.deadline_ms + PROBE_MS)
        if self.force_complete():
            self.on_expiration()


class _Probe(DelayedOperation):
    """Waits for a report that a key's state has changed, and calls `missed` when none comes."""

    __slots__ = ("_missed",)

    def __init__(self, deadline_ms: int, missed: Callable[[], None]) -> None:
        super().__init__(deadline_ms)
        self._missed = missed

    def try_complete(self) -> bool:
        return self.force_complete()

    def on_complete(self) -> None:
        """Nothing: the report came."""

    def on_expiration(self) -> None:
        self._missed()


class Purgatory:
    """Delayed operations of the same class, watched by key."""

    def __init__(self, name: str, timer: PurgatoryTimer, purge_interval: int = 1_000) -> None:
        self.name = name
        self.delayed = 0
        self.on_missed: Callable[[Hashable], None] | None = None
        """Called with the key of a missed wake-up; None: operations are not asked at their deadlines."""
        self._timer = timer
        self._purge_interval = purge_interval
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._gathered = 0

    @property
    def watched(self) -> int:
        """Number of entries in all watch lists, including completed operations that are not purged yet."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, op: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Completes `op` now, or watches it under `keys` until an event or its deadline; True when it completed.

        Tries it again after it was put on the lists, because the first try may itself cause an event for one of
        the keys, and nothing watched the key at that moment.
        """
        if op.completed or op.try_complete():
            return True
        self._put(op, keys)
        if op.try_complete() or op.completed:
            return True
        self._timer.add(op)
        return False

    def watch(self, op: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Watches `op` without a try: the caller has just tried it, and that try caused no events."""
        assert not op.completed, "a completed operation cannot be watched"
        self._put(op, keys)
        self._timer.add(op)

    def probe(self, keys: Iterable[Hashable], until_ms: int) -> None:
        """Calls `on_missed` for each key whose change is not reported until then."""
        missed = self.on_missed
        assert missed is not None, "no one asked for missed wake-ups"
        for key in keys:
            self.watch(_Probe(until_ms, partial(missed, key)), (key,))

    def _put(self, op: DelayedOperation, keys: Iterable[Hashable]) -> None:
        assert op.home is None, "an operation waits in one purgatory only, and is put there once"
        watchers = self._watchers
        for key in keys:
            found = watchers.get(key)
            if found is None:
                watchers[key] = [op]
            else:
                found.append(op)
        self._gathered += 1
        self.delayed += 1
        op.home = self
        completed = self._gathered - self.delayed
        assert completed >= 0, "more operations wait than were put on the watch lists"
        if completed > self._purge_interval:
            self.purge()

    def check_and_complete(self, key: Hashable) -> int:
        """Tries every operation that watches `key`; returns how many of them this call completed."""
        watching = self._watchers.get(key)
        if not watching:
            return 0
        if len(watching) == 1:
            op = watching[0]  # the usual case needs no snapshot and no new list
            completed_here = not op.completed and op.try_complete()
            if op.completed:
                if len(watching) == 1 and self._watchers.get(key) is watching:
                    del self._watchers[key]
                else:  # the completion changed the list
                    self._sweep(key)
            return int(completed_here)
        done = 0
        for op in tuple(watching):
            if not op.completed and op.try_complete():
                done += 1
        self._sweep(key)
        return done

    def check_all(self) -> None:
        """Tries every operation, after an event that may concern any key."""
        for key in list(self._watchers):
            self.check_and_complete(key)

    def waiting(self, key: Hashable) -> bool:
        """True when a watch list exists for `key`; False means that no operation waits for it."""
        return key in self._watchers

    def purge(self) -> None:
        """Removes completed operations from every list."""
        for key in list(self._watchers):
            self._sweep(key)
        self._gathered = self.delayed

    def _sweep(self, key: Hashable) -> None:
        watching = self._watchers.get(key)
        if watching is None:
            return
        kept = [op for op in watching if not op.completed]
        if kept:
            self._watchers[key] = kept
        else:
            del self._watchers[key]
