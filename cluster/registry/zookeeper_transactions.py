"""Operations that ZooKeeper does not have, composed of those that it has (D3).

Owns: `ZooKeeperTransactions`.

* `make_parents`: the missing parents are created in the same transaction as the node itself, so a controller that was
  replaced cannot create them either;
* `DeleteTree`: read, then deleted in one transaction; read again when another client was faster;
* `ReadTree`: read node by node. Unlike the embedded registry's it is **not** of one instant: the caller has set a watch
  before, which reports what changed in between (as Kafka's own controller does);
* `Check` with `created`: read, then checked by its version in the transaction. A node that was replaced in between by
  one of the same version passes, unlike in the embedded registry;
* the stat of a created node: its transaction is that of the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import RegistryError
from ..host.seam import Host, Promise
from .errors import (
    NODE_ERRORS,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RegistryUnavailableError,
    SessionExpiredError,
)
from .operations import (
    Check,
    Children,
    Create,
    Created,
    Delete,
    DeleteTree,
    Exists,
    Get,
    Operation,
    Set,
    Stat,
    Tree,
    WriteOperation,
    is_path,
    parent_of,
)
from .zookeeper_link import SessionLink

__all__ = ["ZooKeeperTransactions", "error_of", "stat_of"]


class Submitter(Protocol):
    """The client, as a composed operation needs it."""

    @property
    def host(self) -> Host:
        """The host it runs on."""
        ...

    @property
    def state(self) -> str:
        """Operations are sent while it is "connected"."""
        ...

    @property
    def session_id(self) -> int:
        """The owner of ephemeral nodes."""
        ...

    def submit(self, operation: Operation, /) -> Promise[Any]:
        """Send an operation that ZooKeeper has."""
        ...


class ZooKeeperTransactions:
    """Composed operations of one client."""

    def __init__(self, client: Submitter, link: SessionLink) -> None:
        self._client = client
        self._link = link

    async def single(self, operation: WriteOperation) -> Any:
        """One write; the error does not name a part."""
        try:
            return (await self.multi((operation,)))[0]
        except NodeError as error:
            raise type(error)(error.path) from None

    async def multi(self, parts: Sequence[WriteOperation]) -> list[Any]:
        """One transaction; composed again while another client creates or deletes nodes that it was composed of."""
        for part in parts:
            if isinstance(part, Create) and (not is_path(part.path) or part.path == "/"):
                raise NODE_ERRORS["bad-request"](part.path, parts.index(part))
        composed = any(
            isinstance(part, DeleteTree)
            or (isinstance(part, Create) and part.make_parents)
            or (isinstance(part, Check) and part.created)
            for part in parts
        )
        while True:
            sent = await self._expanded(parts) if composed else list(enumerate(parts))
            try:
                return await self._commit(sent, len(parts))
            except _ConcurrentChangeError:
                continue

    async def _expanded(self, parts: Sequence[WriteOperation]) -> list[tuple[int, WriteOperation]]:
        """Each operation with the index of its part; added operations with -1 - index."""
        sent: list[tuple[int, WriteOperation]] = []
        made: set[str] = set()
        for index, part in enumerate(parts):
            if isinstance(part, DeleteTree):
                tree = await self.read_tree(part.path)
                below = sorted((path for path in tree if path != "/"), reverse=True)
                sent += [(-1 - index, Delete(path)) for path in sorted(below, key=_depth, reverse=True)]
                continue
            if isinstance(part, Check) and part.created:
                stat = await self._client.submit(Exists(part.path))
                if stat is None or stat.czxid != part.created:
                    raise NODE_ERRORS["no-node" if stat is None else "bad-version"](part.path, index)
            if isinstance(part, Create) and part.make_parents:
                for path in await self._missing(part.path, made):
                    made.add(path)
                    sent.append((-1 - index, Create(path)))
                made.add(part.path)
            sent.append((index, part))
        return sent

    async def _missing(self, path: str, made: set[str]) -> list[str]:
        """Parents that do not exist and are not created before, outermost first."""
        found: list[str] = []
        above = parent_of(path)
        while above != "/" and above not in made:
            if await self._client.submit(Exists(above)) is not None:
                break
            found.insert(0, above)
            above = parent_of(above)
        return found

    async def _commit(self, sent: Sequence[tuple[int, WriteOperation]], count: int) -> list[Any]:
        results: list[Any] = [None] * count
        if not sent:
            return results
        promise: Promise[tuple[list[Any], int]] = self._client.host.tasks.promise()

        def done(result: Any, error: tuple[str, int] | None, zxid: int) -> None:
            if promise.done():
                return
            if error is None:
                promise.set_result((result, zxid))
                return
            part, operation = sent[error[1]] if error[1] >= 0 else (-1, None)
            found = error_of(error, operation, writes=True, index=max(part, 0))
            if operation is not None and _may_be_composed_again(part, operation, found):
                found = _ConcurrentChangeError(str(found))
            promise.set_exception(found)

        if self._client.state != "connected":
            raise RegistryUnavailableError(f"{self._client!r} has no link to ZooKeeper")
        self._link.multi([_as_tuple(operation) for _, operation in sent], done)
        answers, zxid = await promise
        for (index, operation), answer in zip(sent, answers, strict=True):
            if index >= 0:
                results[index] = self._result(operation, answer, zxid)
        return results

    def _result(self, operation: WriteOperation, answer: Any, zxid: int) -> Any:
        if isinstance(operation, Create):
            owner = self._client.session_id if operation.ephemeral else 0
            return Created(str(answer), Stat(0, zxid, zxid, owner, 0))
        return stat_of(answer) if isinstance(operation, Set) else None

    async def read_tree(self, path: str) -> Tree:
        """Data and stat by path, node by node; empty where there is no such node."""
        found: Tree = {}
        level = [path]
        while level:
            reads = [(self._client.submit(Get(node)), self._client.submit(Children(node))) for node in level]
            below: list[str] = []
            for node, (data, names) in zip(level, reads, strict=True):
                try:
                    found[node] = await data
                    below += [f"{node.rstrip('/')}/{name}" for name in await names]
                except NoNodeError:
                    found.pop(node, None)
                    names.cancel()
            level = below
        return dict(sorted(found.items()))


class _ConcurrentChangeError(RegistryError):
    """Another client created or deleted a node that a composed transaction needs."""


def _may_be_composed_again(part: int, operation: WriteOperation, error: RegistryError) -> bool:
    if part < 0:
        return isinstance(error, NodeExistsError | NoNodeError | NotEmptyError)
    return isinstance(operation, Create) and operation.make_parents and isinstance(error, NoNodeError)


def _as_tuple(operation: WriteOperation) -> tuple[Any, ...]:
    match operation:
        case Create(path, data):
            return "create", path, data.encode(), operation.ephemeral, operation.sequential
        case Set(path, data, version):
            return "set", path, data.encode(), version
        case Delete(path, version):
            return "delete", path, version
        case Check(path, version):  # `created` was compared before
            return "check", path, version
        case DeleteTree():
            raise AssertionError("composed before")


def _depth(path: str) -> int:
    return path.count("/")


def error_of(error: tuple[str, int], operation: Operation | None, *, writes: bool, index: int = -1) -> RegistryError:
    """The error of a failed operation: (code, index of the failed part)."""
    code = error[0]
    if code == "expired":
        return SessionExpiredError()
    if code not in NODE_ERRORS:
        return RegistryUnavailableError("the connection to ZooKeeper was closed", maybe_applied=writes)
    path: str = getattr(operation, "path", "")
    if code == "no-node" and isinstance(operation, Create):
        path = parent_of(path)
    return NODE_ERRORS[code](path, index)


def stat_of(raw: Any) -> Stat | None:
    """A stat of ours; None for a node that does not exist."""
    if raw is None:
        return None
    return Stat(raw.version, raw.czxid, raw.mzxid, raw.ephemeralOwner, raw.numChildren)
