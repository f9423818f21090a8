"""One-shot watches by kind and path, each of one session. After ZooKeeper's WatchManager.

Two tables, as there: a data watch (set by get and exists) fires when the node is created, changed or deleted; a child
watch (set by children) fires when the node's children change or when it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from .operations import Event

_TABLES_OF: dict[str, tuple[str, ...]] = {
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
        """Set a watch; setting it twice has no further effect. `kind` "exists" is a data watch."""
        table = self._tables["data" if kind == "exists" else kind]
        table.setdefault(path, set()).add(session_id)

    def fire(self, triggers: Iterable[Event]) -> tuple[tuple[int, Event], ...]:
        """Remove and return every watch that `triggers` fire, in the order of these events."""
        fired: list[tuple[int, Event]] = []
        for event in triggers:
            sessions: set[int] = set()
            for table in _TABLES_OF[event.kind]:
                sessions |= self._tables[table].pop(event.path, set())
            fired += ((session_id, event) for session_id in sorted(sessions))
        return tuple(fired)

    def forget(self, session_id: int) -> None:
        """Remove every watch of a session."""
        for table in self._tables.values():
            for path in [path for path, sessions in table.items() if session_id in sessions]:
                table[path].discard(session_id)
                if not table[path]:
                    del table[path]
