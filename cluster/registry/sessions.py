"""Sessions of the registry: who has one, and when it expires. Sans-IO. After ZooKeeper's SessionTracker.

Owns: `Sessions`. Invariants: a session id is used once (the caller gives each new session a new transaction number); a
deadline never moves to an earlier time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .tree_rows import SessionRow


@dataclass(slots=True)
class Session:
    """A client's lease: the session expires at its deadline unless the client is heard before."""

    session_id: int
    name: str
    timeout_ms: int
    deadline_ms: int


class Sessions:
    """The live sessions, by id."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._newest = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def ids(self) -> list[int]:
        """The ids of all live sessions, in the order in which they began."""
        return list(self._sessions)

    def get(self, session_id: int) -> Session | None:
        """A live session; None where there is none of that id."""
        return self._sessions.get(session_id)

    def open(self, session_id: int, name: str, timeout_ms: int, now_ms: int) -> SessionRow:
        """Begin a session under an id that was never used."""
        assert session_id > self._newest, f"session id {session_id} after {self._newest}"
        self._newest = session_id
        self._sessions[session_id] = Session(session_id, name, timeout_ms, now_ms + timeout_ms)
        return SessionRow(session_id, name, timeout_ms)

    def remove(self, session_id: int) -> bool:
        """End a session; False when there is none of that id."""
        return self._sessions.pop(session_id, None) is not None

    def touch(self, session_id: int, now_ms: int) -> bool:
        """The client of a session was heard; False when there is no such session."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.deadline_ms = max(session.deadline_ms, now_ms + session.timeout_ms)
        return True

    def expired(self, now_ms: int) -> list[int]:
        """Sessions whose deadline has passed; the caller closes them."""
        return [s.session_id for s in self._sessions.values() if s.deadline_ms <= now_ms]

    def next_deadline_ms(self) -> int | None:
        """When the next session expires unless its client is heard; None without sessions."""
        return min((s.deadline_ms for s in self._sessions.values()), default=None)

    def extend(self, by_ms: int) -> None:
        """The server was stopped for so long: clients could not reach it, so every session gets that time."""
        assert by_ms >= 0, f"deadlines of sessions move by {by_ms} ms"
        for session in self._sessions.values():
            session.deadline_ms += by_ms

    def restore(self, rows: Iterable[SessionRow], now_ms: int) -> None:
        """Continue stored sessions; each gets its full timeout, because its client had no server."""
        for row in sorted(rows):
            self.open(row.session_id, row.name, row.timeout_ms, now_ms)
