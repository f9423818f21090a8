"""Changes of the disk of one broker that ends (`DiskControl`): due when it is dead, and before it starts again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harrow.faults.controls import DEAD, DiskChange, ProcessControl

Make = Callable[[Any], Mapping[str, Any]]
"""Makes a change of one class on the disk of a dead broker; returns its facts."""


class DiskChanges:
    """The disk of the broker whose process is `process`, by a table of what makes each class of changes."""

    def __init__(self, process: ProcessControl, makers: Mapping[type[DiskChange], Make]) -> None:
        self._process = process
        self._makers = dict(makers)
        self.kinds = frozenset(makers)
        self._due: dict[type[DiskChange], DiskChange] = {}
        self._made: dict[type[DiskChange], Mapping[str, Any]] = {}

    def end_with(self, change: DiskChange, *, clean: bool = False) -> None:
        """Plan the change, and end the broker; what was made before of the same class is forgotten."""
        assert type(change) in self._makers, f"nothing makes {change} on the disk of this broker"
        self._due[type(change)] = change
        self._made.pop(type(change), None)
        self.end(change, clean=clean)

    def end(self, change: DiskChange, *, clean: bool) -> None:
        """End the broker."""
        del change
        if clean:
            self._process.terminate()
        else:
            self._process.kill()

    def make(self) -> None:
        """Make what is due, where the broker is dead."""
        if self._due and self._process.status().state == DEAD:
            for kind, change in list(self._due.items()):
                del self._due[kind]
                self._made[kind] = self._makers[kind](change)

    def changed(self, kind: type[DiskChange]) -> Mapping[str, Any] | None:
        """Return the facts of the last change of this class; None until it is made."""
        self.make()
        return next((facts for made, facts in self._made.items() if issubclass(made, kind)), None)
