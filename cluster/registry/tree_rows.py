"""Values of the registry's tree: stored nodes and sessions, changes of a transaction, the result of an operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .operations import Event


class NodeRow(NamedTuple):
    """A node as it is stored."""

    path: str
    data: str
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    sequence: int
    owner: int


class SessionRow(NamedTuple):
    """A session as it is stored."""

    session_id: int
    name: str
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of one transaction, for the store."""

    zxid: int
    put: tuple[NodeRow, ...] = ()
    drop: tuple[str, ...] = ()
    sessions_put: tuple[SessionRow, ...] = ()
    sessions_drop: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult:
    """The result of an operation, the watches it fired (session, event), and the changes to store (None: nothing)."""

    result: Any = None
    events: tuple[tuple[int, Event], ...] = ()
    changes: Changes | None = None
