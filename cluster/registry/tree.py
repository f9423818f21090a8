"""The registry's tree: nodes, sessions, watches. Sans-IO: operations and a time come in, results and events go out.

Owns: `RegistryTree`. After ZooKeeper's DataTree and WatchManager (D3).

Invariants:

* Every node except "/" has a parent that exists and is not ephemeral; the owner of an ephemeral node is a live session.
* `zxid` grows by 1 with each transaction that changed something. A multi is one transaction: when one of its operations
  is refused, none takes effect and `zxid` stays.
* The version of a node grows by 1 with each write of its data; a conditional write needs exactly that version.
* A watch fires at most once, for the first change after the read that set it. The events of a transaction are returned
  with it, so a client that receives frames in order receives the event before it can read the change.
* `OperationResult.changes`, applied to what was stored, gives the tree: a tree that is loaded from the store is equal.

What may fail: `NodeError`s, `SessionExpiredError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import (
    BadRequestError,
    BadVersionError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from .operations import (
    ANY_VERSION,
    Check,
    Children,
    Create,
    Created,
    Delete,
    DeleteTree,
    Event,
    Exists,
    Get,
    Multi,
    Operation,
    ReadTree,
    Set,
    Stat,
    Tree,
    WriteOperation,
    is_path,
    parent_of,
)
from .sessions import Sessions
from .tree_rows import Changes, NodeRow, OperationResult, SessionRow
from .watches import Watches


@dataclass(slots=True)
class _Node:
    data: str
    version: int
    czxid: int
    mzxid: int
    pzxid: int  # the transaction that last created or deleted a child
    sequence: int  # the number of the next sequential child
    owner: int
    children: set[str] = field(default_factory=set[str])

    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.owner, len(self.children))


class _Transaction:
    """Touched paths, events, and how to undo everything."""

    __slots__ = ("touched", "triggers", "undo", "zxid")

    def __init__(self, zxid: int) -> None:
        self.zxid = zxid
        self.touched: dict[str, None] = {}
        self.triggers: list[Event] = []
        self.undo: list[Callable[[], object]] = []


class RegistryTree:
    """Nodes, sessions and watches of one registry."""

    def __init__(self) -> None:
        self.zxid = 0
        self.sessions = Sessions()
        self._nodes: dict[str, _Node] = {"/": _Node("", 0, 0, 0, 0, 0, 0)}
        self._ephemerals: dict[int, set[str]] = {}
        self._watches = Watches()

    # -------------------------------------------------------------- sessions

    def open_session(self, name: str, timeout_ms: int, now_ms: int) -> OperationResult:
        """Begin a session; the result is its id, which is never used again."""
        self.zxid += 1
        row = self.sessions.open(self.zxid, name, timeout_ms, now_ms)
        return OperationResult(result=row.session_id, changes=Changes(zxid=self.zxid, sessions_put=(row,)))

    def resume(
        self, session_id: int, zxid: int, watches: Mapping[str, Iterable[str]], now_ms: int
    ) -> tuple[Event, ...]:
        """A client continues its session on a new link: set its watches again; those whose change it missed fire now.

        `zxid` is the last transaction that it received. `watches` maps "data", "exists" and "children" to paths. As
        ZooKeeper's setWatches.
        """
        if not self.sessions.touch(session_id, now_ms):
            raise SessionExpiredError
        self._watches.forget(session_id)
        missed: list[Event] = []
        for kind, paths in watches.items():
            for path in paths:
                event = self._missed(kind, path, zxid)
                if event is None:
                    self._watches.add(kind, path, session_id)
                else:
                    missed.append(event)
        return tuple(missed)

    def _missed(self, kind: str, path: str, zxid: int) -> Event | None:
        node = self._nodes.get(path)
        if kind == "exists":
            return None if node is None else Event("created", path)
        if node is None:
            return Event("deleted", path)
        if kind == "children":
            return Event("children", path) if node.pzxid > zxid else None
        return Event("changed", path) if node.mzxid > zxid else None

    def close_session(self, session_id: int) -> OperationResult:
        """End a session, on request or by expiry; one transaction removes its ephemeral nodes."""
        if not self.sessions.remove(session_id):
            raise SessionExpiredError
        self._watches.forget(session_id)
        transaction = _Transaction(self.zxid + 1)
        for path in sorted(self._ephemerals.get(session_id, ())):
            self._remove(transaction, path)
        left = self._ephemerals.get(session_id)
        assert not left, f"session {session_id} has ended and owns {left}"
        self._ephemerals.pop(session_id, None)
        return self._commit(transaction, None, sessions_drop=(session_id,))

    # ------------------------------------------------------------ operations

    def apply(self, session_id: int, operation: Operation, now_ms: int) -> OperationResult:
        """Perform one operation of a live session."""
        if not self.sessions.touch(session_id, now_ms):
            raise SessionExpiredError
        match operation:
            case Get() | Exists() | Children() | ReadTree():
                return OperationResult(result=self._read(session_id, operation))
            case Multi(parts):
                return self._write(session_id, parts, single=False)
            case _:
                return self._write(session_id, (operation,), single=True)

    def _read(self, session_id: int, operation: Get | Exists | Children | ReadTree) -> Any:
        path = operation.path
        if isinstance(operation, ReadTree):
            return self._subtree(path)
        node = self._nodes.get(path)
        if isinstance(operation, Exists):
            if operation.watch:
                self._watches.add("data", path, session_id)
            return None if node is None else node.stat()
        if node is None:
            raise NoNodeError(path)
        if operation.watch:
            kind = "data" if isinstance(operation, Get) else "children"
            self._watches.add(kind, path, session_id)
        if isinstance(operation, Get):
            return node.data, node.stat()
        return sorted(node.children)

    def _subtree(self, path: str) -> Tree:
        found: Tree = {}
        todo = [path] if path in self._nodes else []
        while todo:
            here = todo.pop()
            node = self._nodes[here]
            found[here] = (node.data, node.stat())
            below = "/" if here == "/" else f"{here}/"
            todo.extend(below + name for name in sorted(node.children, reverse=True))
        return found

    def _write(self, session_id: int, operations: tuple[WriteOperation, ...], *, single: bool) -> OperationResult:
        transaction = _Transaction(self.zxid + 1)
        results: list[Any] = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._perform(transaction, session_id, operation))
            except NodeError as error:
                for undo in reversed(transaction.undo):
                    undo()
                if single:
                    raise
                raise type(error)(error.path, index) from None
        return self._commit(transaction, results[0] if single else results)

    def _commit(self, transaction: _Transaction, result: Any, sessions_drop: tuple[int, ...] = ()) -> OperationResult:
        if not transaction.touched and not sessions_drop:
            return OperationResult(result=result)
        assert transaction.zxid == self.zxid + 1, f"transaction {transaction.zxid} after {self.zxid}"
        self.zxid = transaction.zxid
        rows, gone = list[NodeRow](), list[str]()
        for path in transaction.touched:
            node = self._nodes.get(path)
            if node is None:
                gone.append(path)
            else:
                rows.append(_row(path, node))
        changes = Changes(zxid=self.zxid, put=tuple(rows), drop=tuple(gone), sessions_drop=sessions_drop)
        events = self._watches.fire(transaction.triggers)
        return OperationResult(result=result, events=events, changes=changes)

    def _perform(self, transaction: _Transaction, session_id: int, operation: WriteOperation) -> Any:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(transaction, session_id, operation)
        if isinstance(operation, DeleteTree):
            for found in reversed(self._subtree(path)):  # children before their parents
                if found != "/":
                    self._remove(transaction, found)
            return None
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        if isinstance(operation, Check):
            if operation.created not in (0, node.czxid):
                raise BadVersionError(path)
            return None
        if isinstance(operation, Delete):
            if path == "/":
                raise BadRequestError(path)
            if node.children:
                raise NotEmptyError(path)
            self._remove(transaction, path)
            return None
        return self._set(transaction, node, operation)

    # ------------------------------------------------------------- mutations

    def _create(self, transaction: _Transaction, session_id: int, operation: Create) -> Created:
        path = operation.path
        if not is_path(path) or path == "/":
            raise BadRequestError(path)
        above = parent_of(path)
        parent = self._nodes.get(above)
        if parent is None:
            if not operation.make_parents:
                raise NoNodeError(above)
            self._create(transaction, session_id, Create(above, make_parents=True))
            parent = self._nodes[above]
        if parent.owner:
            raise BadRequestError(path)
        if operation.sequential:
            path = f"{path}{parent.sequence:010d}"
        if path in self._nodes:
            raise NodeExistsError(path)
        owner = session_id if operation.ephemeral else 0
        assert not owner or owner in self.sessions, f"{path}: session {owner} is not live"
        zxid = transaction.zxid
        node = _Node(operation.data, 0, zxid, zxid, zxid, 0, owner)
        self._link(transaction, path, node)
        parent.sequence += 1
        transaction.undo.append(lambda: setattr(parent, "sequence", parent.sequence - 1))
        transaction.triggers += (Event("created", path), Event("children", above))
        return Created(path, node.stat())

    def _link(self, transaction: _Transaction, path: str, node: _Node) -> None:
        assert path not in self._nodes, f"{path} is there already"
        self._nodes[path] = node
        if node.owner:
            self._ephemerals.setdefault(node.owner, set()).add(path)
        parent = self._parent_changes(transaction, path)
        name = path.rpartition("/")[2]
        parent.children.add(name)

        def undo() -> None:
            del self._nodes[path]
            parent.children.discard(name)
            if node.owner:
                self._ephemerals[node.owner].discard(path)

        transaction.undo.append(undo)
        transaction.touched[path] = None

    def _set(self, transaction: _Transaction, node: _Node, operation: Set) -> Stat:
        before = (node.data, node.version, node.mzxid)
        assert node.mzxid <= transaction.zxid, f"{operation.path} was changed by {node.mzxid}, after {transaction.zxid}"

        def undo() -> None:
            node.data, node.version, node.mzxid = before

        node.data, node.version = operation.data, node.version + 1
        node.mzxid = transaction.zxid
        transaction.undo.append(undo)
        transaction.touched[operation.path] = None
        transaction.triggers.append(Event("changed", operation.path))
        return node.stat()

    def _remove(self, transaction: _Transaction, path: str) -> None:
        node = self._nodes.pop(path)
        assert not node.children, f"{path} is removed before its children {sorted(node.children)}"
        if node.owner:
            self._ephemerals[node.owner].discard(path)
        parent = self._parent_changes(transaction, path)
        name = path.rpartition("/")[2]
        parent.children.discard(name)

        def undo() -> None:
            self._nodes[path] = node
            parent.children.add(name)
            if node.owner:
                self._ephemerals[node.owner].add(path)

        transaction.undo.append(undo)
        transaction.touched[path] = None
        transaction.triggers += (Event("deleted", path), Event("children", parent_of(path)))

    def _parent_changes(self, transaction: _Transaction, path: str) -> _Node:
        above = parent_of(path)
        parent = self._nodes[above]
        before = parent.pzxid
        assert before <= transaction.zxid, f"{above} was changed by {before}, after {transaction.zxid}"
        parent.pzxid = transaction.zxid
        transaction.undo.append(lambda: setattr(parent, "pzxid", before))
        transaction.touched[above] = None
        return parent

    # ----------------------------------------------------------------- store

    def restore(self, zxid: int, nodes: Iterable[NodeRow], sessions: Iterable[SessionRow], now_ms: int) -> None:
        """Load what was stored; every session gets its full timeout, because its client had no server."""
        assert self.zxid == 0, "a tree is restored before it is used"
        self.zxid = zxid
        self.sessions.restore(sessions, now_ms)
        for row in sorted(nodes):
            self._nodes[row.path] = _Node(*row[1:])
            assert row.mzxid <= zxid and row.pzxid <= zxid, f"{row} was stored after the last transaction {zxid}"
            if row.path != "/":
                self._nodes[parent_of(row.path)].children.add(row.path.rpartition("/")[2])
            if row.owner:
                assert row.owner in self.sessions, f"{row.path} belongs to no session"
                self._ephemerals.setdefault(row.owner, set()).add(row.path)

    def rows(self) -> list[NodeRow]:
        """Every node as it would be stored, sorted by path."""
        return [_row(path, node) for path, node in sorted(self._nodes.items())]

    def dump(self) -> dict[str, str]:
        """Data by path, for humans, tests and the control socket."""
        return {path: node.data for path, node in sorted(self._nodes.items()) if path != "/"}


def _row(path: str, node: _Node) -> NodeRow:
    return NodeRow(path, node.data, node.version, node.czxid, node.mzxid, node.pzxid, node.sequence, node.owner)
