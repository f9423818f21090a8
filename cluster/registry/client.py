"""A client of the registry: one session at a time, over one link at a time.

Owns: the session's id, the operations without a response, the watches and their callbacks, reconnecting.

    client = RegistryClient(host, ("127.0.0.1", 2181), name="broker 1", session_timeout_ms=1500)
    await client.start()
    data, stat = await client.get("/controller", watch=lambda event: …)

Invariants:

* Operations are sent, and responses arrive, in the order of submission; several may be in flight.
  flight.
* The callback of a watch runs at most once, on the loop, before the response of any later read that sees the change.
  Watches survive a lost link: after reconnecting, those whose change was missed fire at once (ZooKeeper's setWatches).
* Only the server ends a session. A client that receives nothing is **disconnected**, and its session may still be live.
  When the server reports that the session has expired, the client drops its watches, calls `on_expired` and begins a
  new session by itself.

What may fail: the `NodeError`s; `RegistryUnavailableError` while there is no link (`maybe_applied` when the operation
was in flight); `SessionExpiredError` for operations that were in flight when the session ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..errors import RegistryError
from ..host.seam import Host, Link, Peer, Promise, Task
from .client_link import ClientLink, PendingOperation, Watch
from .errors import NODE_ERRORS, NodeExistsError, NoNodeError, RegistryUnavailableError, SessionExpiredError
from .operations import (
    ANY_VERSION,
    Children,
    Create,
    Created,
    Delete,
    DeleteTree,
    Event,
    Exists,
    Get,
    Operation,
    ReadTree,
    Set,
    Stat,
    Tree,
    WriteOperation,
    encode,
    multi_parts,
    result_of,
)

State = Literal["disconnected", "connected", "closed"]

CONNECTION_TIMEOUT_MS = 18_000
RETRY_MS = (10, 200)
"""First and longest pause between two tries to connect; drawn between half and whole of it."""
CLOSE_TIMEOUT_MS = 1_000

# which callbacks an event calls; as the server's tables
_CALLED_BY: dict[str, tuple[str, ...]] = {
    "created": ("data", "exists"),
    "changed": ("data", "exists"),
    "deleted": ("data", "exists", "children"),
    "children": ("children",),
}


async def results_or_errors(*promises: Promise[Any]) -> list[Any]:
    """Wait for pipelined operations; for each its result, or the RegistryError that it raised."""
    found: list[Any] = []
    try:
        for promise in promises:
            try:
                found.append(await promise)
            except RegistryError as error:
                found.append(error)
    finally:  # the caller was cancelled: nothing will read the others
        for promise in promises[len(found) :]:
            promise.cancel()
    return found


def value_of(found: Any) -> Any:
    """A result of `results_or_errors`; raised when it is an error."""
    if isinstance(found, RegistryError):
        raise found
    return found


class RegistryClient:
    """One session with the registry at `address`; `name` ("broker 1") names the link to the server."""

    def __init__(
        self,
        host: Host,
        address: tuple[str, int],
        name: str,
        session_timeout_ms: int,
        *,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
    ) -> None:
        self.host = host
        """The host it runs on."""
        self._address = address
        self._name = name
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self.session_id = 0
        """The server's id of this session; 0 before the first session and between two."""
        self.state: State = "disconnected"
        self.on_expired: list[Callable[[], None]] = []
        """Called when the server has ended the session, before a new one begins."""
        self.on_state: list[Callable[[State], None]] = []
        """Called with the new state at each change of it."""
        self._zxid = 0  # of the last response: every event up to it has been received
        self._watches: dict[str, dict[str, list[Watch]]] = {"data": {}, "exists": {}, "children": {}}
        self._client_link: ClientLink | None = None
        self._waiting: list[Promise[None]] = []
        self._task: Task | None = None

    def __repr__(self) -> str:
        return f"<RegistryClient {self._name} session {self.session_id} {self.state}>"

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Connect and begin a session; RegistryUnavailableError when the server does not respond in time."""
        self._task = self.host.tasks.spawn(self._run(), name="registry-client")
        try:
            await self.host.tasks.wait(self.until_connected(), self._connection_timeout_ms)
        except TimeoutError:
            self._task.cancel()
            host, port = self._address
            raise RegistryUnavailableError(
                f"the registry at {host}:{port} did not respond within {self._connection_timeout_ms} ms; is it running?"
            ) from None

    async def close(self) -> None:
        """End the session now: the registry deletes its ephemeral nodes at once."""
        if self.state == "connected":
            # without a response the session ends by its timeout
            with contextlib.suppress(RegistryUnavailableError, SessionExpiredError, TimeoutError):
                await self.host.tasks.wait(self._send({"op": "close"}, None), CLOSE_TIMEOUT_MS)
        self._set_state("closed")
        if self._task is not None:
            self._task.cancel()
        if self._client_link is not None:
            self._client_link.end("closed here", reset=False)
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            if not promise.done():
                promise.set_exception(RegistryUnavailableError("the registry client is closed"))

    async def until_connected(self) -> None:
        """Return when there is a session and a link; RegistryUnavailableError after `close`."""
        if self.state == "closed":
            raise RegistryUnavailableError("the registry client is closed")
        if self.state != "connected":
            promise: Promise[None] = self.host.tasks.promise()
            self._waiting.append(promise)
            await promise

    # ------------------------------------------------------------ operations

    async def create(
        self,
        path: str,
        data: str = "",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        """A new node; NodeExistsError, or NoNodeError without its parent."""
        operation = Create(path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents)
        found: Created = await self.submit(operation)
        return found

    async def ensure(self, path: str, data: str = "") -> None:
        """A persistent node and its parents, unless it is there."""
        try:
            await self.create(path, data, make_parents=True)
        except NodeExistsError:
            return

    async def get(self, path: str, watch: Watch | None = None) -> tuple[str, Stat]:
        """Data and stat; NoNodeError (and no watch) where there is none."""
        found: tuple[str, Stat] = await self.submit(Get(path, watch=watch is not None), watch)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Stat, or None; the watch is set in either case."""
        found: Stat | None = await self.submit(Exists(path, watch=watch is not None), watch)
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names directly below, sorted; NoNodeError (and no watch) where there is no such node."""
        found: list[str] = await self.submit(Children(path, watch=watch is not None), watch)
        return found

    async def read_tree(self, path: str) -> Tree:
        """Data and stat by path of a node and all below, at one instant; empty where there is none."""
        found: Tree = await self.submit(ReadTree(path))
        return found

    async def set(self, path: str, data: str, version: int = ANY_VERSION) -> Stat:
        """New data; BadVersionError when the version is another."""
        found: Stat = await self.submit(Set(path, data, version))
        return found

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node; NotEmptyError, BadVersionError, NoNodeError."""
        await self.submit(Delete(path, version))

    async def delete_tree(self, path: str) -> None:
        """Remove a node and all below in one transaction; no error where there is none."""
        await self.submit(DeleteTree(path))

    async def multi(self, operations: Sequence[WriteOperation]) -> list[Any]:
        """All or nothing; the error names the operation that was refused (`index`)."""
        found: list[Any] = await self.submit(multi_parts(operations))
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[str, Stat] | None]:
        """Data and stat of many nodes in one round trip, None where there is none."""
        found = await results_or_errors(*[self.submit(Get(path)) for path in paths])
        return [None if isinstance(node, NoNodeError) else value_of(node) for node in found]

    def submit(self, operation: Operation, watch: Watch | None = None) -> Promise[Any]:
        """Send an operation now; the promise is for its result. For callers that pipeline."""
        return self._send(encode(operation), operation, watch)

    def _send(self, message: dict[str, Any], operation: Operation | None, watch: Watch | None = None) -> Promise[Any]:
        promise = self.host.tasks.promise()
        pending = PendingOperation(operation, promise, watch)
        if self._client_link is None or self.state != "connected":
            pending.fail(RegistryUnavailableError(f"{self._name} has no link to the registry"))
        else:
            self._client_link.send(message, pending)
        return promise

    # ---------------------------------------------------------------- frames

    def response_received(self, pending: PendingOperation, message: dict[str, Any]) -> None:
        """One response: store its zxid and its watch, complete its promise."""
        self._zxid = max(self._zxid, int(message["zxid"]))
        error = message.get("error")
        if error is not None:
            code, path, index = error
            pending.fail(NODE_ERRORS[code](path, index))
            return
        operation = pending.operation
        result = None if operation is None else result_of(operation, message["ok"])
        self._keep_watch(pending, result)
        pending.succeed(result)

    def _keep_watch(self, pending: PendingOperation, result: Any) -> None:
        if pending.watch is not None:
            operation = pending.operation
            assert isinstance(operation, Get | Exists | Children), "only reads have watches"
            kind = "children" if isinstance(operation, Children) else "data"
            if isinstance(operation, Exists) and result is None:
                kind = "exists"
            self._watches[kind].setdefault(operation.path, []).append(pending.watch)

    def watch_fired(self, event: Event) -> None:
        """A watch fired."""
        called: list[Watch] = []
        for kind in _CALLED_BY[event.kind]:
            called += self._watches[kind].pop(event.path, ())
        for watch in called:
            watch(event)

    def welcomed(self, link: ClientLink, hello: dict[str, Any]) -> None:
        """The server has begun or resumed the session."""
        resumed = self.session_id == hello["session"]
        self.session_id = int(hello["session"])
        if not resumed:
            self._zxid = int(hello["zxid"])
        self._client_link = link
        self._connected()

    def _connected(self) -> None:
        self._set_state("connected")
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            if not promise.done():
                promise.set_result(None)

    def expired(self) -> None:
        """The server has ended the session."""
        if self.session_id == 0:
            return
        self.host.trace.log("warning", f"registry session {self.session_id} has expired")
        self.session_id, self._zxid = 0, 0
        for table in self._watches.values():
            table.clear()
        self._set_state("disconnected")
        for call in list(self.on_expired):
            call()

    def lost(self, link: ClientLink) -> None:
        """The link was closed; the session may continue."""
        if self._client_link is link:
            self._client_link = None
            if self.state == "connected":
                self._set_state("disconnected")

    def _set_state(self, state: State) -> None:
        if self.state not in (state, "closed"):
            self.state = state
            for call in list(self.on_state):
                call(state)

    # ------------------------------------------------------------ connecting

    async def _run(self) -> None:
        pause_ms = RETRY_MS[0]
        while self.state != "closed":
            link = await self._connect()
            if link is not None and await link.welcome:
                pause_ms = RETRY_MS[0]
                await link.ended
                continue
            if link is not None and link.session_expired:
                continue  # a new session, at once
            await self.host.tasks.sleep(pause_ms * (0.5 + self.host.random.random() / 2))
            pause_ms = min(RETRY_MS[1], pause_ms * 2)

    async def _connect(self) -> ClientLink | None:
        made: list[ClientLink] = []

        def make(link: Link) -> ClientLink:
            made.append(ClientLink(self.host, self, link, self._session_timeout_ms))
            return made[0]

        host, port = self._address
        try:
            await self.host.network.connect(Peer("registry", ""), host, port, make, timeout_ms=self._session_timeout_ms)
        except OSError as error:  # TimeoutError is one
            self.host.trace.log("debug", f"no link to the registry at {host}:{port}: {error!r}")
            return None
        watches = {kind: list(table) for kind, table in self._watches.items()}
        made[0].greet(
            {
                "op": "hello",
                "name": self._name,
                "session": self.session_id,
                "zxid": self._zxid,
                "timeout_ms": self._session_timeout_ms,
                "watches": watches,
            }
        )
        return made[0]
