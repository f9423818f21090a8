"""One link of a registry client: greeting, pings, responses in order.

Owns: `ClientLink`, from its connection to its end, and `PendingOperation`, an operation without a response yet.
Sessions are the client's: the link passes what arrives to its `LinkOwner`, which outlives it.

The client closes a link that received nothing for two thirds of the session timeout (ZooKeeper's read timeout), so that
it can try another link within the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..errors import WireError
from ..host.seam import Host, Link, Promise, Timer
from .errors import RegistryUnavailableError, SessionExpiredError
from .operations import Children, Event, Exists, Get, Operation, ReadTree
from .server import framed, message_of

Watch = Callable[[Event], None]

_READS = (Get, Exists, Children, ReadTree)


class PendingOperation:
    """One operation that was sent and has no response yet."""

    __slots__ = ("operation", "promise", "watch")

    def __init__(self, operation: Operation | None, promise: Promise[Any] | None, watch: Watch | None) -> None:
        # a ping has no promise, ping and close have no operation
        self.operation = operation
        self.promise = promise
        self.watch = watch

    @property
    def writes(self) -> bool:
        """True when it may have changed something."""
        return self.operation is not None and not isinstance(self.operation, _READS)

    def fail(self, error: Exception) -> None:
        """Complete it with an error, unless the caller no longer waits."""
        if self.promise is not None and not self.promise.done():
            self.promise.set_exception(error)

    def succeed(self, result: Any) -> None:
        """Complete it with its result, unless the caller no longer waits."""
        if self.promise is not None and not self.promise.done():
            self.promise.set_result(result)


class LinkOwner(Protocol):
    """The client, as its link needs it."""

    @property
    def state(self) -> str:
        """The client's state; operations are sent while it is "connected"."""
        ...

    def response_received(self, pending: PendingOperation, message: dict[str, Any], /) -> None:
        """A response was received."""
        ...

    def watch_fired(self, event: Event, /) -> None:
        """A watch fired."""
        ...

    def welcomed(self, link: ClientLink, hello: dict[str, Any], /) -> None:
        """The server accepted this link."""
        ...

    def expired(self) -> None:
        """The server has ended the session."""
        ...

    def lost(self, link: ClientLink, /) -> None:
        """The link was closed."""
        ...


class ClientLink:
    """One link: greeting, pings, responses in order."""

    def __init__(self, host: Host, client: LinkOwner, link: Link, timeout_ms: int) -> None:
        self._host = host
        self._client = client
        self._link = link
        self._ping_ms = max(1, timeout_ms // 3)
        self._pending: dict[int, PendingOperation] = {}
        self._number = 0
        self._received_ms = host.clock.monotonic_ms()
        self._due_ms = 0
        self._timer: Timer | None = None
        self._over = False
        self.session_expired = False
        self.welcome: Promise[bool] = host.tasks.promise()
        """Completed once: True when the server accepted the link."""
        self.ended: Promise[None] = host.tasks.promise()
        """Completed when the link was closed."""

    def greet(self, hello: dict[str, Any]) -> None:
        """Send the hello and begin to watch the clock."""
        if not self._over:
            self._link.send((framed(hello),))
            self._schedule()

    def send(self, message: dict[str, Any], pending: PendingOperation) -> None:
        """Send one operation."""
        self._number += 1
        self._pending[self._number] = pending
        self._link.send((framed({"id": self._number, **message}),))

    # ----------------------------------------------------------------- pings

    def _schedule(self) -> None:
        self._due_ms = self._host.clock.monotonic_ms() + self._ping_ms
        self._timer = self._host.tasks.call_later(self._ping_ms, self._tick)

    def _tick(self) -> None:
        if self._over:
            return
        now_ms = self._host.clock.monotonic_ms()
        # when this process itself was stopped, the socket may hold unread responses: check again later
        punctual = now_ms - self._due_ms < self._ping_ms
        if punctual and now_ms - self._received_ms >= 2 * self._ping_ms:
            self.end(f"nothing received for {now_ms - self._received_ms} ms", reset=True)
            return
        if self._client.state == "connected":
            self.send({"op": "ping"}, PendingOperation(None, None, None))
        self._schedule()

    # ---------------------------------------------------------------- frames

    def frame_received(self, frame: bytes) -> None:
        """One message of the server."""
        self._received_ms = self._host.clock.monotonic_ms()
        message = message_of(frame)
        if self._over:
            return
        if "id" in message:
            pending = self._pending.pop(message["id"], None)
            if pending is None:
                raise WireError(f"a response {message['id']!r} without a request")
            self._client.response_received(pending, message)
        elif "event" in message:
            self._client.watch_fired(Event(*message["event"]))
        elif "hello" in message:
            self._client.welcomed(self, message["hello"])
            if not self.welcome.done():
                self.welcome.set_result(True)
        elif "expired" in message:
            self.session_expired = True
            self._fail(lambda _: SessionExpiredError())
            self._client.expired()
            self.end("the session has expired", reset=False)

    def link_closed(self, reason: str) -> None:
        """The link was closed."""
        self._finish(reason or "closed")

    def end(self, reason: str, *, reset: bool) -> None:
        """Close the link."""
        self._link.close(reset=reset)
        self._finish(reason)

    def _finish(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._client.lost(self)
        text = f"the link to the registry was closed: {reason}"
        self._fail(lambda pending: RegistryUnavailableError(text, maybe_applied=pending.writes))
        if not self.welcome.done():
            self.welcome.set_result(False)
        if not self.ended.done():
            self.ended.set_result(None)

    def _fail(self, error: Callable[[PendingOperation], Exception]) -> None:
        pending, self._pending = self._pending, {}
        for operation in pending.values():
            operation.fail(error(operation))
