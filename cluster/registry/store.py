"""Where the registry's tree outlives its process: one sqlite3 file in WAL mode.

Owns: `Store` (what the server needs), `SqliteStore`, and `MemoryStore` for tests and simulated hosts.

Invariants: a transaction of the tree is a transaction of the store, committed before its response is sent.
`synchronous=NORMAL` in WAL mode: a killed process loses nothing and the file is never torn; a power cut may
lose the newest transactions (as ZooKeeper with forceSync=no), which `synchronous="FULL"` prevents.

This is the only file of the room that uses the machine without the Host seam: the registry is a process
of its own. What may fail: StorageError, naming the file; after it the server must end.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from typing import Protocol

from ..errors import StorageError
from .tree_rows import Changes, NodeRow, SessionRow

SCHEMA_VERSION = 1
PATH_BYTES_MOST = 500
"""SQLite opens paths of 512 bytes at most, those of its journals included (`-journal`)."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (path TEXT PRIMARY KEY, data TEXT NOT NULL, version INT NOT NULL,
    czxid INT NOT NULL, mzxid INT NOT NULL, pzxid INT NOT NULL, sequence INT NOT NULL,
    owner INT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS session (id INTEGER PRIMARY KEY, name TEXT NOT NULL, timeout_ms INT NOT NULL);
CREATE TABLE IF NOT EXISTS last (one INTEGER PRIMARY KEY CHECK (one = 1), zxid INT NOT NULL);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """Everything that was committed."""

    zxid: int = 0
    nodes: tuple[NodeRow, ...] = ()
    sessions: tuple[SessionRow, ...] = ()


class Store(Protocol):
    """Durable storage of a tree."""

    def load(self) -> StoredTree:
        """What was committed so far; empty in a new store."""
        ...

    def commit(self, changes: Changes) -> None:
        """Make one transaction durable, wholly or not at all."""
        ...

    def close(self) -> None:
        """Close the file; closing twice is no error."""
        ...


class MemoryStore:
    """Stores in memory what a file would store, as long as this object exists."""

    def __init__(self) -> None:
        self._zxid = 0
        self._nodes: dict[str, NodeRow] = {}
        self._sessions: dict[int, SessionRow] = {}

    def load(self) -> StoredTree:
        """What was committed so far."""
        return StoredTree(zxid=self._zxid, nodes=tuple(self._nodes.values()), sessions=tuple(self._sessions.values()))

    def commit(self, changes: Changes) -> None:
        """Store one transaction."""
        assert changes.zxid > self._zxid, f"transaction {changes.zxid} after {self._zxid}"
        self._zxid = changes.zxid
        for path in changes.drop:
            self._nodes.pop(path, None)
        self._nodes.update((row.path, row) for row in changes.put)
        self._sessions.update((row.session_id, row) for row in changes.sessions_put)
        for session_id in changes.sessions_drop:
            self._sessions.pop(session_id, None)

    def close(self) -> None:
        """Nothing to close."""


def _cannot_open(path: str, error: Exception) -> str:
    """Return why the file cannot be opened; SQLite itself does not say that the path is too long."""
    length = len(os.fsencode(path))
    if length <= PATH_BYTES_MOST:
        return f"the registry's file {path}: {error}"
    return (
        f"the registry's file has a path of {length} bytes, and SQLite opens {PATH_BYTES_MOST} at most with the names "
        f"of its journals: name a folder with a shorter path than {path[:80]}… ({error})"
    )


class SqliteStore:
    """The tree in a file at `path`, opened by `load`."""

    def __init__(self, path: str, *, synchronous: str = "NORMAL") -> None:
        self._path = path
        self._synchronous = synchronous
        self._connection: sqlite3.Connection | None = None

    def load(self) -> StoredTree:
        """Open or create the file and read it whole."""
        try:
            os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._connection = connection
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, SCHEMA_VERSION):
                raise StorageError(
                    f"{self._path} has schema {version}, this registry reads {SCHEMA_VERSION}; "
                    "start it with the release that wrote it, or with an empty folder"
                )
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            last = connection.execute("SELECT zxid FROM last").fetchone()
            nodes = connection.execute("SELECT path, data, version, czxid, mzxid, pzxid, sequence, owner FROM node")
            sessions = connection.execute("SELECT id, name, timeout_ms FROM session")
            return StoredTree(
                zxid=0 if last is None else last[0],
                nodes=tuple(NodeRow(*row) for row in nodes),
                sessions=tuple(SessionRow(*row) for row in sessions),
            )
        except (sqlite3.Error, OSError) as error:
            raise StorageError(_cannot_open(self._path, error)) from error

    def commit(self, changes: Changes) -> None:
        """One transaction."""
        connection = self._connection
        assert connection is not None, "a store is loaded before it is written"
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO last VALUES (1, ?)", (changes.zxid,))
            if changes.drop:
                connection.executemany("DELETE FROM node WHERE path = ?", [(path,) for path in changes.drop])
            if changes.put:
                connection.executemany("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changes.put)
            if changes.sessions_put:
                connection.executemany("INSERT OR REPLACE INTO session VALUES (?, ?, ?)", changes.sessions_put)
            if changes.sessions_drop:
                connection.executemany(
                    "DELETE FROM session WHERE id = ?", [(session_id,) for session_id in changes.sessions_drop]
                )
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"the registry's file {self._path}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
