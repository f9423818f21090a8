"""The registry's server: sessions over links, the tree behind them, every transaction durable before its response.

Owns: which link belongs to which session, when sessions expire, the order of events and responses.

Protocol: frames of JSON. A link begins with `{"op": "hello", "name": "broker 1", "session": 0 or id,
"timeout_ms", "zxid", "watches": {"data": […], "exists": […], "children": […]}}`, answered by `{"hello": {"session",
"timeout_ms", "zxid"}}` or `{"expired": true}` and the end of the link. Then `{"id": n, "op": …}` (see
operations.py, and "ping", "close"), with a response to each, in order: `{"id", "zxid", "ok"}` or `{"id", "zxid",
"error": [code, path, index]}`. Between responses the server sends `{"event": [kind, path]}`.

Invariants:

* The events of an operation are sent before its response and before any later response on their link: a response
  with zxid z says that every event up to z has been sent.
* A session has at most one link, the newest that named it; requests of an older link are not applied.
* A closed link does not end its session; silence for its timeout does, and `close` does at once (ZooKeeper).
* When the server itself was stopped or starved, its timer is late; every session gets that lateness in addition.

What may fail: a failed store ends the server (`failed` raises StorageError): a transaction that is not durable has no
response.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import StorageError, WireError
from ..events.controllers import RegistryReady, RegistrySessionExpired
from ..host.seam import Acceptor, Host, Link, Peer, Promise, Timer
from .errors import NodeError, SessionExpiredError
from .operations import Event, decode
from .store import Store
from .tree import RegistryTree
from .tree_rows import Changes, OperationResult

LISTENER = "registry"
TICK_MS = 100
"""Longest time between two ticks; the lateness of a tick is measured from it."""
LATE_MS = 50
"""Lateness below this is scheduling noise and does not extend the sessions."""
MAX_FRAME_BYTES = 64 * 1024 * 1024


def framed(message: Any) -> bytes:
    """A message as it goes over the wire."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def message_of(data: bytes) -> dict[str, Any]:
    """The object of a frame; WireError for anything else."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise WireError(f"a registry frame of {len(data)} bytes is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise WireError("a registry frame is not a JSON object")
    return found  # pyright: ignore[reportUnknownVariableType] - checked where it is used


class RegistryServer:
    """Serves one tree on the host's listener "registry"."""

    def __init__(self, host: Host, store: Store, *, tick_ms: int = TICK_MS) -> None:
        self._host = host
        self._store = store
        self._tick_ms = tick_ms
        self.tree = RegistryTree()
        self._links: dict[int, _Connection] = {}
        self._acceptor: Acceptor | None = None
        self._timer: Timer | None = None
        self._due_ms = 0
        self._failure: Promise[None] = host.tasks.promise()

    async def start(self) -> None:
        """Load the tree and serve it; StorageError when the store cannot be used."""
        stored = self._store.load()
        now_ms = self._host.clock.monotonic_ms()
        self.tree.restore(stored.zxid, stored.nodes, stored.sessions, now_ms)
        self._acceptor = await self._host.network.listen(
            LISTENER, lambda link: _Connection(self, link), max_frame_bytes=MAX_FRAME_BYTES
        )
        self._schedule(now_ms)
        self._host.trace.emit(RegistryReady(zxid=self.tree.zxid, sessions=len(self.tree.sessions)))

    async def stop(self) -> None:
        """Stop serving; the sessions continue when the next server loads this store."""
        if self._timer is not None:
            self._timer.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
        links, self._links = self._links, {}
        for connection in links.values():
            connection.link.close()
        self._store.close()

    async def failed(self) -> None:
        """Wait for a failure that must end this process: StorageError."""
        await self._failure

    # ---------------------------------------------------------------- expiry

    def _schedule(self, now_ms: int) -> None:
        deadline_ms = self.tree.sessions.next_deadline_ms()
        wait_ms = self._tick_ms
        if deadline_ms is not None:
            wait_ms = min(wait_ms, max(1, deadline_ms - now_ms))
        self._due_ms = now_ms + wait_ms
        self._timer = self._host.tasks.call_later(wait_ms, self._tick)

    def _tick(self) -> None:
        now_ms = self._host.clock.monotonic_ms()
        late_ms = now_ms - self._due_ms
        if late_ms > LATE_MS:
            self.tree.sessions.extend(late_ms)
            self._host.trace.log(
                "warning", f"the registry was stopped for {late_ms} ms; every session is extended by as much"
            )
        for session_id in self.tree.sessions.expired(now_ms):
            session = self.tree.sessions.get(session_id)
            assert session is not None, f"session {session_id} has expired"
            self._host.trace.emit(RegistrySessionExpired(session=session_id, name=session.name))
            self.end_session(session_id)
        self._schedule(now_ms)

    def end_session(self, session_id: int, *, wished: bool = False) -> None:
        """Remove the session's ephemeral nodes, send the events, close its link.

        `wished`: the client closed the session itself, so it receives no expiry message.
        """
        done = self.tree.close_session(session_id)
        self.commit(done.changes)
        connection = self._links.pop(session_id, None)
        self.send_events(done)
        if connection is not None:
            if not wished:
                connection.send({"expired": True})
            connection.link.close()

    # -------------------------------------------------------------- sessions

    def expire(self, name: str) -> list[int]:
        """End every session of a client, as if it had expired; their ids. For faults."""
        found = [
            row.session_id
            for row in map(self.tree.sessions.get, self.tree.sessions.ids())
            if row is not None and row.name == name
        ]
        for session_id in found:
            self._host.trace.emit(RegistrySessionExpired(session=session_id, name=name))
            self.end_session(session_id)
        return found

    def remove_ephemeral(self, path: str) -> bool:
        """Remove an ephemeral node in the name of the session that owns it; False where there is none. For faults."""
        for session_id in self.tree.sessions.ids():
            stat = self.perform(session_id, {"op": "exists", "path": path})
            if stat is None:
                return False
            if stat.ephemeral_owner == session_id:
                self.perform(session_id, {"op": "delete", "path": path})
                return True
        return False

    def attach(self, connection: _Connection, hello: dict[str, Any]) -> int:
        """Begin or resume the session that a hello asks for; SessionExpiredError when it is gone."""
        now_ms = self._host.clock.monotonic_ms()
        name, session_id = str(hello["name"]), int(hello["session"])
        missed: tuple[Event, ...] = ()
        if session_id:
            session = self.tree.sessions.get(session_id)
            if session is None or session.name != name:
                raise SessionExpiredError
            missed = self.tree.resume(session_id, int(hello["zxid"]), hello["watches"], now_ms)
        else:
            done = self.tree.open_session(name, int(hello["timeout_ms"]), now_ms)
            self.commit(done.changes)
            session_id = done.result
        older = self._links.pop(session_id, None)
        if older is not None:
            older.link.close(reset=True)
        self._links[session_id] = connection
        attached = self.tree.sessions.get(session_id)
        assert attached is not None, f"session {session_id} was opened or resumed above"
        connection.send({"hello": {"session": session_id, "timeout_ms": attached.timeout_ms, "zxid": self.tree.zxid}})
        for event in missed:
            connection.send({"event": event})
        return session_id

    def speaks_for(self, connection: _Connection, session_id: int) -> bool:
        """True while this link is the newest of its session."""
        return self._links.get(session_id) is connection

    def detach(self, connection: _Connection, session_id: int) -> None:
        """A link was closed; its session continues until its deadline."""
        if self.speaks_for(connection, session_id):
            del self._links[session_id]

    # ------------------------------------------------------------ operations

    def perform(self, session_id: int, raw: dict[str, Any]) -> Any:
        """Apply one operation of a session, make it durable, send its events; returns the result for the response."""
        operation = decode(raw)
        done = self.tree.apply(session_id, operation, self._host.clock.monotonic_ms())
        self.commit(done.changes)
        self.send_events(done)
        return done.result

    def touch(self, session_id: int) -> bool:
        """A ping was received."""
        return self.tree.sessions.touch(session_id, self._host.clock.monotonic_ms())

    def send_events(self, done: OperationResult) -> None:
        """Send fired watches to the links of their sessions; a session without a link gets them when it resumes."""
        for session_id, event in done.events:
            connection = self._links.get(session_id)
            if connection is not None:
                connection.send({"event": event})

    def commit(self, changes: Changes | None) -> None:
        """Make a transaction durable, or end the server: after a failure memory is ahead of the disk."""
        if changes is None:
            return
        try:
            self._store.commit(changes)
        except StorageError as error:
            if not self._failure.done():
                self._failure.set_exception(error)
            for connection in self._links.values():
                connection.link.close(reset=True)
            if self._acceptor is not None:
                self._acceptor.close()
            raise WireError(str(error)) from error


class _Connection:
    """One link: without a session until its hello, then the link of that session."""

    __slots__ = ("_server", "_session_id", "link")

    def __init__(self, server: RegistryServer, link: Link) -> None:
        self._server = server
        self.link = link
        self._session_id = 0

    def send(self, message: Any) -> None:
        """Queue one message."""
        self.link.send((framed(message),))

    def frame_received(self, frame: bytes) -> None:
        """One message of the client."""
        message = message_of(frame)
        op = message.get("op")
        if op == "hello":
            self._hello(message)
            return
        session_id = self._session_id
        if not self._server.speaks_for(self, session_id):
            # a link that a newer link has replaced, or a link without a session
            self.link.close(reset=True)
            return
        number = message.get("id")
        if op == "ping":
            self._server.touch(session_id)
            self._respond(number, "ok", None)
        elif op == "close":
            self._respond(number, "ok", None)
            self._server.end_session(session_id, wished=True)
        else:
            self._perform(number, session_id, message)

    def _hello(self, hello: dict[str, Any]) -> None:
        kind, _, name = str(hello.get("name", "")).partition(" ")
        self.link.peer = Peer(kind, name)  # first: a blocked peer's hello is held back here
        try:
            self._session_id = self._server.attach(self, hello)
        except SessionExpiredError:
            self.send({"expired": True})
            self.link.close()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(f"a malformed hello: {error!r}") from None

    def _perform(self, number: Any, session_id: int, message: dict[str, Any]) -> None:
        try:
            result = self._server.perform(session_id, message)
        except NodeError as error:
            self._respond(number, "error", [error.code, error.path, error.index])
        except SessionExpiredError:
            self.send({"expired": True})
            self.link.close()
        else:
            self._respond(number, "ok", result)

    def _respond(self, number: Any, kind: str, value: Any) -> None:
        self.send({"id": number, "zxid": self._server.tree.zxid, kind: value})

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - why it closed changes nothing
        """The client's process or host ended; the session continues until its timeout."""
        self._server.detach(self, self._session_id)
