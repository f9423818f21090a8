"""Purgatory (E2): operations that wait for an event or their deadline, and complete once.

Owns: the watch lists (key -> operations) and the operations' completion. An operation is tried when it
comes, watched under its keys when it cannot complete, and tried again whenever `check_and_complete(key)`
says that something about a key has changed; its deadline completes it by force.

Invariants:
* `on_complete` runs exactly once: by `try_complete` (through `force_complete`) or by the deadline, in
  which case `on_expiration` runs after it;
* `check_and_complete` may be called from inside an `on_complete` (a completion that appends, say):
  lists are walked as snapshots, so the inner call sees every operation and none is skipped;
* completed operations leave the lists that woke them at once, the other lists when more than
  `purge_interval` of them have gathered.

Source: Kafka's `DelayedOperation` and `DelayedOperationPurgatory`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from .timer import PurgatoryTimer
from .timing_wheel import TimerEntry


class DelayedOperation(TimerEntry):
    """Something that completes later. Subclasses give `try_complete`, `on_complete`, `on_expiration`."""

    __slots__ = ("completed", "home")

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.completed = False
        self.home: Purgatory | None = None
        """Where it waits; it counts itself out when it completes."""

    def try_complete(self) -> bool:
        """Complete by `force_complete` if the condition holds; True when this call completed it."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """What is to be done at completion; called exactly once."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Called after `on_complete` when it was the deadline that completed it."""

    def force_complete(self) -> bool:
        """Complete it now, whatever its condition; False when it was completed before."""
        if self.completed:
            return False
        self.completed = True
        self.cancel()
        home, self.home = self.home, None
        if home is not None:
            home.delayed -= 1
        self.on_complete()
        return True

    def expire(self) -> None:
        """The deadline has come."""
        if self.force_complete():
            self.on_expiration()


class Purgatory:
    """Operations of one kind, watched by key."""

    def __init__(self, name: str, timer: PurgatoryTimer, purge_interval: int = 1_000) -> None:
        self.name = name
        self.delayed = 0
        self._timer = timer
        self._purge_interval = purge_interval
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._gathered = 0

    @property
    def watched(self) -> int:
        """Entries in all watch lists, completed ones that are not purged yet included."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, op: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Complete `op` now, or watch it under `keys` until an event or its deadline; True when completed.

        It is tried once more after it was put on the lists: what happened between the first try and
        the watching (a try may itself cause events) is not missed.
        """
        if op.completed or op.try_complete():
            return True
        self._put(op, keys)
        if op.try_complete() or op.completed:
            return True
        self._timer.add(op)
        return False

    def watch(self, op: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Watch `op`, which was tried in vain just now by a try that causes no events itself."""
        self._put(op, keys)
        self._timer.add(op)

    def _put(self, op: DelayedOperation, keys: Iterable[Hashable]) -> None:
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
        if self._gathered - self.delayed > self._purge_interval:
            self.purge()

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation watching `key`; how many this call completed."""
        watching = self._watchers.get(key)
        if not watching:
            return 0
        if len(watching) == 1:
            op = watching[0]  # nearly always: no snapshot, and a list of nobody goes at once
            completed_here = not op.completed and op.try_complete()
            if op.completed:
                if len(watching) == 1 and self._watchers.get(key) is watching:
                    del self._watchers[key]
                else:  # its completion changed the list
                    self._sweep(key)
            return int(completed_here)
        done = 0
        for op in tuple(watching):
            if not op.completed and op.try_complete():
                done += 1
        self._sweep(key)
        return done

    def check_all(self) -> None:
        """Try every operation: for an event that may concern any key."""
        for key in list(self._watchers):
            self.check_and_complete(key)

    def waiting(self, key: Hashable) -> bool:
        """False when nothing is watched under `key`."""
        return key in self._watchers

    def operations(self, key: Hashable) -> list[DelayedOperation]:
        """What still waits under `key`."""
        return [op for op in self._watchers.get(key, ()) if not op.completed]

    def cancel_key(self, key: Hashable) -> list[DelayedOperation]:
        """Stop watching `key` and return what still waited for it; the deadline still holds."""
        return [op for op in self._watchers.pop(key, []) if not op.completed]

    def purge(self) -> None:
        """Take completed operations off every list."""
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
