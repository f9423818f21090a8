"""The registry's client over a real ZooKeeper (D3): same operations, same order, same watches, chosen by configuration.

Owns: `ZooKeeperClient`, a `RegistryClient` whose link is `SessionLink` (kazoo's, network/kazoo_link.py). What ZooKeeper
has not is put together from what it has:

* `make_parents`: the missing parents are created in the same transaction as the node itself, so that a term that
  is over cannot create them either;
* `DeleteTree`: read, then deleted in one transaction, read again when somebody was faster;
* `ReadTree`: read node by node. It is **not** of one moment, unlike the embedded registry's: whoever reads it has set
  a watch first and hears of what changed meanwhile (as Kafka's own controller);
* the stat of a created node: its transaction is that of the answer.

At reconnecting within its session kazoo has dropped the watches: they are set again, and what was missed fires.

What may fail: as `RegistryClient`. Link faults (`links.block registry`) do not reach a ZooKeeper's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from ..errors import RegistryError
from ..host.seam import Host, Promise
from .client import CONNECTION_TIMEOUT_MS, RegistryClient
from .client_link import Pending, Watch
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

Done = Callable[[Any, tuple[str, int] | None, int], None]


class SessionLink(Protocol):
    """What it asks of ZooKeeper; `done(result, (code, index) or None, zxid)` comes on the loop, in order."""

    def start(
        self, on_state: Callable[[str, int], None], on_event: Callable[[str, str], None], /
    ) -> None:
        """Begin to connect."""
        ...

    def close(self) -> None:
        """BLOCKS. End the session."""
        ...

    @property
    def last_zxid(self) -> int:
        """The newest transaction that was heard of."""
        ...

    def create(
        self, path: str, data: bytes, done: Done, /, *, ephemeral: bool, sequential: bool
    ) -> None:
        """A new node; the result is its path."""
        ...

    def exists(self, path: str, done: Done, /, *, watch: bool) -> None:
        """A stat or None."""
        ...

    def get(self, path: str, done: Done, /, *, watch: bool) -> None:
        """Data and stat."""
        ...

    def children(self, path: str, done: Done, /, *, watch: bool) -> None:
        """Names below."""
        ...

    def set(self, path: str, data: bytes, version: int, done: Done, /) -> None:
        """New data; the result is the stat."""
        ...

    def delete(self, path: str, version: int, done: Done, /) -> None:
        """Remove a node."""
        ...

    def multi(self, operations: Sequence[tuple[Any, ...]], done: Done, /) -> None:
        """All or nothing; the result lists the parts'."""
        ...


class ZooKeeperClient(RegistryClient):
    """One session with a ZooKeeper."""

    def __init__(
        self,
        host: Host,
        link: SessionLink,
        name: str,
        session_timeout_ms: int,
        *,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
    ) -> None:
        super().__init__(
            host,
            ("zookeeper.connect", 0),
            name,
            session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
        )
        self._link = link
        self._suspended_at = 0

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Connect and begin a session; RegistryUnavailableError when nobody answers in time."""
        self._link.start(self._state_changed, lambda kind, path: self.happened(Event(kind, path)))
        try:
            await self.host.tasks.wait(self.until_connected(), self._connection_timeout_ms)
        except TimeoutError:
            await self.close()
            raise RegistryUnavailableError(
                f"ZooKeeper did not answer within {self._connection_timeout_ms} ms; is it running, and is "
                "zookeeper.connect its address?"
            ) from None

    async def close(self) -> None:
        """End the session now: its ephemeral nodes go at once."""
        if self.state != "closed":
            self._set_state("closed")
            self._fail_waiting()
            await self.host.tasks.run_blocking(self._link.close)

    def _state_changed(self, state: str, session_id: int) -> None:
        if self.state == "closed":
            return
        if state == "expired":
            self.expired()
        elif state == "disconnected":
            self._suspended_at = self._link.last_zxid
            self._set_state("disconnected")
        else:
            resumed = self.session_id == session_id
            self.session_id = session_id
            if resumed:
                self._watch_again()
            self._connected()

    # --------------------------------------------------------------- watches

    def _watch_again(self) -> None:
        """First on the new connection: what was missed fires before anything else is answered."""
        seen = self._suspended_at
        for path in self._watches["data"]:
            self._look_again("data", path, seen)
        for path in self._watches["exists"]:
            self._look_again("exists", path, seen)
        for path in self._watches["children"]:
            self._look_again("children", path, seen)

    def _look_again(self, kind: str, path: str, seen: int) -> None:
        def looked(stat: Any, error: tuple[str, int] | None, _zxid: int) -> None:
            missed: str | None = None
            if error is None and kind == "exists":
                missed = None if stat is None else "created"
            elif error is None and stat is None:
                missed = "deleted"
            elif error is None and (stat.pzxid if kind == "children" else stat.mzxid) > seen:
                missed = "children" if kind == "children" else "changed"
            if missed is not None:
                self.happened(Event(missed, path))

        if kind == "children":
            self._link.children(path, _nobody, watch=True)
            self._link.exists(path, looked, watch=False)
        else:
            self._link.exists(path, looked, watch=True)

    # ------------------------------------------------------------ operations

    def submit(self, operation: Operation, watch: Watch | None = None) -> Promise[Any]:
        """Send an operation now; the promise is for its result."""
        promise: Promise[Any] = self.host.tasks.promise()
        pending = Pending(operation, promise, watch)
        if self.state != "connected":
            pending.fail(RegistryUnavailableError(f"{self._name} has no link to ZooKeeper"))
            return promise
        match operation:
            case Get(path):
                self._link.get(path, self._done(pending, _got), watch=operation.watch)
            case Exists(path):
                self._link.exists(path, self._done(pending, _stat), watch=operation.watch)
            case Children(path):
                self._link.children(path, self._done(pending, sorted), watch=operation.watch)
            case Set(path, data, version):
                self._link.set(path, data.encode(), version, self._done(pending, _stat))
            case Delete(path, version):
                self._link.delete(path, version, self._done(pending, _nothing))
            case ReadTree(path):
                self._compose(pending, self._read_tree(path))
            case Multi(parts):
                self._compose(pending, self._multi(parts))
            case _:
                self._compose(pending, self._single(operation))
        return promise

    def _done(self, pending: Pending, convert: Callable[[Any], Any]) -> Done:
        def done(result: Any, error: tuple[str, int] | None, _zxid: int) -> None:
            if error is not None:
                pending.fail(self._error(error, pending.operation, writes=pending.writes))
                return
            found = convert(result)
            self._keep_watch(pending, found)
            pending.succeed(found)

        return done

    def _compose(self, pending: Pending, work: Coroutine[Any, Any, Any]) -> None:
        async def run() -> None:
            try:
                pending.succeed(await work)
            except RegistryError as error:
                pending.fail(error)

        self.host.tasks.spawn(run(), name="zookeeper-operation")

    def _error(
        self, error: tuple[str, int], operation: Operation | None, *, writes: bool, index: int = -1
    ) -> RegistryError:
        code = error[0]
        if code == "expired":
            return SessionExpiredError()
        if code not in NODE_ERRORS:
            return RegistryUnavailableError(
                "the connection to ZooKeeper is gone", maybe_applied=writes
            )
        path: str = getattr(operation, "path", "")
        if code == "no-node" and isinstance(operation, Create):
            path = parent_of(path)
        return NODE_ERRORS[code](path, index)

    # ---------------------------------------------------------- compositions

    async def _single(self, operation: WriteOperation) -> Any:
        try:
            return (await self._multi((operation,)))[0]
        except NodeError as error:
            raise type(error)(error.path) from None

    async def _multi(self, parts: Sequence[WriteOperation]) -> list[Any]:
        """One transaction; composed anew while somebody else makes or removes what it was composed of."""
        for part in parts:
            if isinstance(part, Create) and (not is_path(part.path) or part.path == "/"):
                raise NODE_ERRORS["bad-request"](part.path, parts.index(part))
        composed = any(
            isinstance(part, DeleteTree) or (isinstance(part, Create) and part.make_parents)
            for part in parts
        )
        while True:
            sent = await self._expanded(parts) if composed else list(enumerate(parts))
            try:
                return await self._commit(sent, len(parts))
            except _InterposedError:
                continue

    async def _expanded(self, parts: Sequence[WriteOperation]) -> list[tuple[int, WriteOperation]]:
        """Each operation with the index of the part it belongs to; interposed ones with -1 - index."""
        sent: list[tuple[int, WriteOperation]] = []
        made: set[str] = set()
        for index, part in enumerate(parts):
            if isinstance(part, DeleteTree):
                tree = await self._read_tree(part.path)
                below = sorted((path for path in tree if path != "/"), reverse=True)
                sent += [
                    (-1 - index, Delete(path)) for path in sorted(below, key=_depth, reverse=True)
                ]
                continue
            if isinstance(part, Create) and part.make_parents:
                for path in await self._missing(part.path, made):
                    made.add(path)
                    sent.append((-1 - index, Create(path)))
                made.add(part.path)
            sent.append((index, part))
        return sent

    async def _missing(self, path: str, made: set[str]) -> list[str]:
        """Parents that are not there and not made before, outermost first."""
        found: list[str] = []
        above = parent_of(path)
        while above != "/" and above not in made:
            if await self.submit(Exists(above)) is not None:
                break
            found.insert(0, above)
            above = parent_of(above)
        return found

    async def _commit(self, sent: Sequence[tuple[int, WriteOperation]], count: int) -> list[Any]:
        results: list[Any] = [None] * count
        if not sent:
            return results
        promise: Promise[tuple[list[Any], int]] = self.host.tasks.promise()

        def done(result: Any, error: tuple[str, int] | None, zxid: int) -> None:
            if promise.done():
                return
            if error is None:
                promise.set_result((result, zxid))
                return
            part, operation = sent[error[1]] if error[1] >= 0 else (-1, None)
            found = self._error(error, operation, writes=True, index=max(part, 0))
            if operation is not None and _may_be_composed_anew(part, operation, found):
                found = _InterposedError(str(found))
            promise.set_exception(found)

        if self.state != "connected":
            raise RegistryUnavailableError(f"{self._name} has no link to ZooKeeper")
        self._link.multi([_as_tuple(operation) for _, operation in sent], done)
        answers, zxid = await promise
        for (index, operation), answer in zip(sent, answers, strict=True):
            if index >= 0:
                results[index] = self._result(operation, answer, zxid)
        return results

    def _result(self, operation: WriteOperation, answer: Any, zxid: int) -> Any:
        if isinstance(operation, Create):
            owner = self.session_id if operation.ephemeral else 0
            return Created(str(answer), Stat(0, zxid, zxid, owner, 0))
        return _stat(answer) if isinstance(operation, Set) else None

    async def _read_tree(self, path: str) -> Tree:
        found: Tree = {}
        level = [path]
        while level:
            reads = [(self.submit(Get(one)), self.submit(Children(one))) for one in level]
            below: list[str] = []
            for one, (data, names) in zip(level, reads, strict=True):
                try:
                    found[one] = await data
                    below += [f"{one.rstrip('/')}/{name}" for name in await names]
                except NoNodeError:
                    found.pop(one, None)
                    names.cancel()
            level = below
        return dict(sorted(found.items()))


class _InterposedError(RegistryError):
    """Somebody else made or removed what a composed transaction counted on."""


def _may_be_composed_anew(part: int, operation: WriteOperation, error: RegistryError) -> bool:
    if part < 0:
        return isinstance(error, NodeExistsError | NoNodeError | NotEmptyError)
    return (
        isinstance(operation, Create) and operation.make_parents and isinstance(error, NoNodeError)
    )


def _as_tuple(operation: WriteOperation) -> tuple[Any, ...]:
    match operation:
        case Create(path, data):
            return "create", path, data.encode(), operation.ephemeral, operation.sequential
        case Set(path, data, version):
            return "set", path, data.encode(), version
        case Delete(path, version):
            return "delete", path, version
        case Check(path, version):
            return "check", path, version
        case DeleteTree():
            raise AssertionError("composed before")


def _depth(path: str) -> int:
    return path.count("/")


def _stat(raw: Any) -> Stat | None:
    if raw is None:
        return None
    return Stat(raw.version, raw.czxid, raw.mzxid, raw.ephemeralOwner, raw.numChildren)


def _got(raw: Any) -> tuple[str, Stat | None]:
    return raw[0].decode(), _stat(raw[1])


def _nothing(_raw: Any) -> None:
    return None


def _nobody(_result: Any, _error: Any, _zxid: int) -> None:
    """For an answer that nobody waits for."""


__all__ = ["SessionLink", "ZooKeeperClient"]
