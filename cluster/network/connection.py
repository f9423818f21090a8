"""One client's connection on the server side: frames in, responses out in the order of requests.

Owns: the requests read and not yet answered. Invariants:

* Handlers of one connection run one at a time: the next request starts when the last handler returned or
  its coroutine ended; its response may come much later (purgatory).
* Responses leave in request order, whichever is complete first: each request takes a slot, and only the
  front of the queue is sent. A request without response (acks=0) frees its slot silently.
* With `queued.max.requests` slots taken, nothing more is read; reading goes on at half of that. (Unsent bytes are
  the link's to bound.)
* A response for a connection that is gone goes nowhere, and harms nobody.

Errors: KafkaError is answered by the API's own error response; WireError (garbage, an API or version that
is not served) closes the connection with one log line; any other exception is our bug: logged with its stack,
traced as `task.failed`, answered with `unknown_server_error`.

Whose idea: Kafka's SocketServer.Processor, without its muting of a channel until the response is gone.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, KafkaError, WireError
from ..host.seam import Host, Link, Part, Peer
from ..wire.api import ApiTable
from ..wire.headers import HeaderReader, RequestHeader, encode_response_header
from ..wire.request import Request

if TYPE_CHECKING:
    from .server import RequestServer

_BROKER = re.compile(r"broker-(\d+)")
BROKERS_LISTENER = "brokers"
UNNAMED = "unnamed"
"""The name of a client that gives none."""


def peer_of(listener: str, client_id: str, address: str = "") -> Peer:
    """Who a client id names: on the brokers' listener `broker-2` is that broker."""
    broker = _BROKER.fullmatch(client_id) if listener == BROKERS_LISTENER else None
    if broker is not None:
        return Peer("broker", broker[1], address)
    return Peer("client", client_id or UNNAMED, address)


class Slot:
    """The place of one response in the order of responses."""

    __slots__ = (
        "_connection", "api_key", "began_ns", "correlation_id", "done", "on_send", "parts", "version",
    )  # fmt: skip

    def __init__(self, connection: Connection, header: RequestHeader, began_ns: int) -> None:
        self._connection = connection
        self.began_ns = began_ns
        self.api_key = header.api_key
        self.version = header.version
        self.correlation_id = header.correlation_id
        self.done = False
        self.parts: Sequence[Part] | None = None
        self.on_send: Callable[[bool], None] | None = None

    def complete(
        self, parts: Sequence[Part] | None, on_send: Callable[[bool], None] | None
    ) -> None:
        """The request is answered; the bytes leave when every earlier response has."""
        self.parts = parts
        self.on_send = on_send
        self.done = True
        self._connection.completed()


class Connection:
    """A FrameHandler that serves the requests of one link."""

    __slots__ = (
        "_busy", "_headers", "_host", "_link", "_listener", "_most", "_named", "_open", "_paused", "_server", "_slots",
        "_table", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        server: RequestServer,
        host: Host,
        table: ApiTable,
        listener: str,
        link: Link,
        most: int,
    ) -> None:
        self._server = server
        self._host = host
        self._table = table
        self._listener = listener
        self._link = link
        self._most = most
        self._headers = HeaderReader()
        self._slots: deque[Slot] = deque()
        self._waiting: deque[Request] = deque()
        self._busy = False
        self._named = False
        self._paused = False
        self._open = True

    # ---------------------------------------------------------------- frames

    def frame_received(self, frame: bytes) -> None:
        """Serve one request, or keep it until the one before has been."""
        header = self._headers.read(frame)
        if not self._named:
            # before anything else: a blocked peer's frame goes back from here and comes again
            address = self._link.peer.address
            self._link.peer = peer_of(self._listener, header.client_id, address)
            self._named = True
        now_ns = self._host.clock.monotonic_ns()
        slot = Slot(self, header, now_ns)
        self._slots.append(slot)
        request = Request(
            header.api_key,
            header.version,
            header.correlation_id,
            header.client_id,
            frame,
            header.body_at,
            self._link.peer,
            now_ns,
            slot.complete,
        )
        if self._busy or self._waiting:
            self._waiting.append(request)
        else:
            self._begin(request)
        if len(self._slots) >= self._most and self._open and not self._paused:
            self._paused = True
            self._link.pause()

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - the seam's word
        """Forget what is unanswered; late answers find the connection closed."""
        self._open = False
        self._slots.clear()
        self._waiting.clear()
        self._server.forget(self)

    def close(self) -> None:
        """End the connection; answers already given still leave."""
        self._link.close()

    # -------------------------------------------------------------- handlers

    def _begin(self, request: Request) -> None:
        handler = self._table.lookup(request.api_key, request.version)
        try:
            running = handler(request)
        except WireError:
            raise
        except Exception as error:  # a handler's bug is answered, see the head
            self._handler_failed(request, error)
            return
        if running is not None:
            self._busy = True
            self._host.tasks.spawn(self._run(request, running), name=f"api-{request.api_key}")

    async def _run(self, request: Request, running: Coroutine[Any, Any, None]) -> None:
        try:
            await running
        except WireError as error:
            self._refuse(str(error))
        except Exception as error:  # as above
            self._handler_failed(request, error)
        self._busy = False
        self._next()

    def _next(self) -> None:
        try:
            while self._waiting and not self._busy:
                self._begin(self._waiting.popleft())
        except WireError as error:
            self._refuse(str(error))

    def _handler_failed(self, request: Request, error: Exception) -> None:
        code, message = ErrorCode.unknown_server_error, ""
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            self._server.report(request, error)
        if request.answered:
            return
        try:
            request.fail(code, message)
        except Exception as second:  # garbage has no error response either
            self._refuse(
                f"request {request.api_key} v{request.version} cannot be answered: {second}"
            )

    def _refuse(self, reason: str) -> None:
        if self._open:
            self._host.trace.log("warning", f"closing the link to {self._link.peer}: {reason}")
            self._shut(reset=False)

    def _shut(self, *, reset: bool) -> None:
        self._open = False
        self._slots.clear()
        self._waiting.clear()
        self._link.close(reset=reset)

    # ------------------------------------------------------------- responses

    def completed(self) -> None:
        """Send what is complete at the front of the queue."""
        slots = self._slots
        while slots and slots[0].done:
            slot = slots.popleft()
            if slot.parts is not None and not self._send(slot, slot.parts):
                return
        if self._paused and len(slots) <= self._most // 2:
            self._paused = False
            self._link.resume()

    def _send(self, slot: Slot, parts: Sequence[Part]) -> bool:
        lost = self._host.network.lose_response(self._link.peer, slot.api_key)
        if slot.on_send is not None:
            try:
                slot.on_send(lost)
            except Exception as error:  # what the tap cannot write must not be acknowledged
                self._refuse(f"response to API {slot.api_key} withheld: {error!r}")
                return False
        if lost:
            self._shut(reset=True)
            return False
        self._server.times.took(slot.api_key, self._host.clock.monotonic_ns() - slot.began_ns)
        header = encode_response_header(slot.api_key, slot.version, slot.correlation_id)
        self._link.send((header, *parts))
        return True
