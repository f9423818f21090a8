"""Who waits for what: one-shot watches by kind and path. After ZooKeeper's WatchManager.

Two tables, as there: data watches (set by get and exists) hear that a node was created, changed or deleted;
child watches (set by children) hear that its children changed or that it was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from .operations import Event

_HEARD_BY: dict[str, tuple[str, ...]] = {
    "created": ("data",),
    "changed": ("data",),
    "deleted": ("data", "children"),
    "children": ("children",),
}


class Watches:
    """The watches of every session."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, set[int]]] = {"data": {}, "children": {}}

    def add(self, kind: str, path: str, session_id: int) -> None:
        """Set a watch; the same one twice is one. `kind` "exists" is a data watch."""
        table = self._tables["data" if kind == "exists" else kind]
        table.setdefault(path, set()).add(session_id)

    def fire(self, triggers: Iterable[Event]) -> tuple[tuple[int, Event], ...]:
        """Take out and return every watch that hears of `triggers`, in their order."""
        fired: list[tuple[int, Event]] = []
        for event in triggers:
            told: set[int] = set()
            for table in _HEARD_BY[event.kind]:
                told |= self._tables[table].pop(event.path, set())
            fired += ((session_id, event) for session_id in sorted(told))
        return tuple(fired)

    def forget(self, session_id: int) -> None:
        """Take out every watch of a session."""
        for table in self._tables.values():
            for path in [path for path, sessions in table.items() if session_id in sessions]:
                table[path].discard(session_id)
                if not table[path]:
                    del table[path]
