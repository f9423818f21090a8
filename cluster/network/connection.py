"""The server side of one connection: frames in, responses out in the order of the requests.

Owns: the requests that were read and are not answered, and dispatch: a request is looked up in the API table of its
listener (`wire/api_table.py`), the authorizer is asked, the handler runs. Invariants:

* The handlers of one connection run one at a time: the next request begins when the previous handler has returned or
  its coroutine has ended. The response may come much later (purgatory).
* Responses leave in the order of the requests, whichever is complete first: each request takes a slot, and only
  the front of the queue is sent. A request without a response (acks=0) frees its slot silently.
* With UNANSWERED_MOST slots taken, or with requests of UNANSWERED_BYTES_MOST bytes in them, the connection reads no
  more; at half of that it reads again. It also stops while the queue of waiting requests is full (`request_queue.py`).
  (The link bounds the unsent bytes.) The unanswered bytes fit in one fetch of a follower. So followers catch up with a
  producer with acks=all at each fetch, however many requests it pipelines, and stay in the ISR at full speed.
* The context of the requests is made once, by the first request: its client id names the peer, the listener and the
  peer give the principal, and the authorizer says whether the peer may act as a broker.
* A response for a closed connection is dropped, without effect on other connections.

Errors: KafkaError is answered by the API's own error response, and so is a sender without the operation that an API
needs (CLUSTER_AUTHORIZATION_FAILED). WireError (garbage, an API or a version that the listener does not serve) closes
the connection with one log line. Any other exception is our bug: it is logged with its stack, traced as
`task.failed` and answered with `unknown_server_error`.

Source: Kafka's SocketServer.Processor, which mutes a channel from each request until its response is gone: with large
requests this connection reads like that, too; small ones are pipelined.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..authorizer import CLUSTER, Authorizer, Operation, Principal
from ..errors import ErrorCode, KafkaError, WireError
from ..events.processes import TaskFailed
from ..host.seam import (
    HOLD_RESPONSE,
    LOSE_RESPONSE,
    Host,
    Link,
    Part,
    Peer,
    RequestBody,
    RequestFacts,
    RequestFault,
    bytes_of,
)
from ..listeners import Listener
from ..metrics.request_times import RequestTimes
from ..security.certificates import PrincipalNames
from ..wire.api_table import ApiRow, ApiTable
from ..wire.error_versions import code_at
from ..wire.headers import HeaderReader, encode_response_header
from ..wire.refusals import is_served, refusal_bytes, struck_bytes
from ..wire.request import ARRIVES, LOST, Fate, OnSend, Request, RequestContext
from ..wire.request_facts import RequestScope, request_facts
from .peer_names import peer_of, principal_of
from .request_queue import RequestQueue
from .response_slot import ResponseSlot
from .tapped_connection import TappedConnection

UNANSWERED_MOST = 500
"""Requests of one connection that were read and are not answered; a pipelining client meets this bound."""
UNANSWERED_BYTES_MOST = 512 * 1024
"""Bytes of those requests: half of Kafka's `replica.fetch.max.bytes`, so that two large requests fit in a fetch."""


class RowLookup(Protocol):
    """The API table of a listener, or what stands before it while a client logs in."""

    def lookup(self, api_key: int, version: int, /) -> ApiRow:
        """The row of a request; WireError when it is not served."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerServices:
    """What all connections of one listener share."""

    host: Host
    listener: Listener
    table: ApiTable
    authorizer: Authorizer
    names: PrincipalNames
    """What principals the certificates of clients give."""
    times: RequestTimes
    queue: RequestQueue
    scope: RequestScope
    """What the broker knows beside a request that a fault may choose."""
    on_closed: Callable[[Connection], None]
    """Called when the link of a connection is gone."""
    unanswered_most: int = UNANSWERED_MOST


class Connection:
    """A FrameHandler that serves the requests of one link."""

    __slots__ = (
        "_busy",
        "_context",
        "_dropping",
        "_full",
        "_headers",
        "_held",
        "_host",
        "_link",
        "_most",
        "_open",
        "_services",
        "_slots",
        "_table",
        "_tapped",
        "_unanswered_bytes",
        "_waiting",
        "address",
        "used_ns",
    )

    def __init__(self, services: ListenerServices, link: Link) -> None:
        self._services = services
        self._host = services.host
        self._table: RowLookup = services.table
        self._most = services.unanswered_most
        self._link = link
        self.address = link.peer.address
        """Where the link came from; connections are counted by it."""
        self.used_ns = services.host.clock.monotonic_ns()
        """When the last request arrived, the last response left, or the link was accepted."""
        self._headers = HeaderReader()
        self._context: RequestContext | None = None
        self._slots: deque[ResponseSlot] = deque()
        self._unanswered_bytes = 0  # of the requests in the slots
        self._waiting: deque[Request] = deque()
        self._busy = False
        self._dropping = False  # a fault drops every request from now on
        self._full = False  # as many requests, or as many bytes of them, are unanswered as may be
        self._held = False  # the queue of waiting requests is full
        self._open = True
        with_tap = self._host.tap.enabled and not services.listener.inter_broker
        self._tapped = TappedConnection(self._host) if with_tap else None

    @property
    def is_open(self) -> bool:
        """False as soon as either side ends the connection."""
        return self._open

    @property
    def is_of_client(self) -> bool:
        """True unless a broker named itself."""
        return self._link.peer.kind != "broker"

    def oldest_unanswered(self) -> ResponseSlot | None:
        """Return the oldest request without a response; None without one, or where a fault drops the requests."""
        if self._dropping or not self._open:
            return None
        return next((slot for slot in self._slots if not slot.done), None)

    # ---------------------------------------------------------------- frames

    def frame_received(self, frame: bytes) -> None:
        """Serve one request, or keep it until the handler of the previous request has ended."""
        header = self._headers.read(frame)
        context = self._context
        if context is None:
            assert not self._slots, "an unnamed connection has no requests"
            # before anything else: naming a blocked peer raises from here, and the frame comes again after healing
            context = self._name(header.client_id)
        self.used_ns = now_ns = self._host.clock.monotonic_ns()
        slot = ResponseSlot(self, header, len(frame), frame, now_ns)
        self._slots.append(slot)
        self._unanswered_bytes += slot.size
        request = Request(
            header.api_key,
            header.version,
            header.correlation_id,
            header.client_id,
            frame,
            header.body_at,
            context,
            now_ns,
            slot.complete,
        )
        if self._busy or self._waiting:
            if self._dropping:
                slot = self._slots.pop()
                self._unanswered_bytes -= slot.size
                self._end_unanswered(slot, hit=True)
                return
            self._waiting.append(request)
            self._services.queue.added()
        else:
            self._begin(request)
        much = len(self._slots) >= self._most or self._unanswered_bytes >= UNANSWERED_BYTES_MOST
        if much and self._open and not self._full and not self._dropping:
            self._full = True
            self._link.pause()

    def _name(self, client_id: str) -> RequestContext:
        listener = self._services.listener
        peer = peer_of(listener, client_id, self.address)
        self._link.peer = peer
        if self._tapped is not None:
            self._tapped.opened(client_id)
        principal = principal_of(listener, peer, self._link.certificate, self._services.names)
        self._context = context = self._context_of(peer, principal)
        return context

    def _context_of(self, peer: Peer, principal: Principal) -> RequestContext:
        listener, authorizer = self._services.listener, self._services.authorizer
        from_broker = peer.kind == "broker" and authorizer.authorize(
            principal, self.address, Operation.CLUSTER_ACTION, CLUSTER
        )
        return RequestContext(
            peer=peer, listener=listener, principal=principal, authorizer=authorizer, from_broker=from_broker
        )

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - the seam's parameter
        """Drop the unanswered requests; later responses find the connection closed."""
        self._drop()
        if self._context is not None:
            for call in self._context.closing:
                call()
        if self._tapped is not None:
            self._tapped.closed()
        self._services.queue.leave(self)
        self._services.on_closed(self)

    def close(self) -> None:
        """End the connection; responses that were given still leave."""
        self._link.close()

    def close_excess(self) -> None:
        """End the connection, because the inter-broker listener needs its place (`max.connections`)."""
        self._refuse("a connection of the inter-broker listener needs its place (max.connections)")

    def close_idle(self) -> None:
        """End the connection, because it has no traffic (`connections.max.idle.ms`)."""
        self._host.trace.log("info", f"closing the link to {self._link.peer}: it is idle (connections.max.idle.ms)")
        self._shut(reset=False)

    def is_of(self, principal: Principal | None) -> bool:
        """True for a connection of `principal`; of None: for every connection of a client."""
        if principal is None:
            return self.is_of_client
        return self._context is not None and self._context.principal == principal

    def close_by_operator(self) -> None:
        """End the connection without its responses."""
        self._shut(reset=False)

    def hold(self) -> None:
        """Read no more: the queue of waiting requests is full."""
        if not self._held:
            self._held = True
            self._link.pause()

    def release(self) -> None:
        """Read again, unless too many requests are unanswered here."""
        self._held = False
        if self._open and not self._full:
            self._link.resume()

    # -------------------------------------------------------------- handlers

    def _begin(self, request: Request) -> None:
        assert not self._busy, f"{request!r} begins while another handler runs"
        row = self._table.lookup(request.api_key, request.version)
        try:
            if row.operations:
                _authorize(request, row.operations)
            fault = self._host.network.request_fault(self._link.peer, request, self)
            if fault is not None:
                self._inject(fault, request, row)
                return
            self._serve_at_once(request, row)
        except WireError:
            raise
        except MemoryError as error:
            self._host.tasks.out_of_memory(error)
        except Exception as error:  # a bug of the handler is answered, see the head of the module
            self._handler_failed(request, error)

    def _serve_at_once(self, request: Request, row: ApiRow) -> None:
        running = row.handler(request)
        if running is not None:
            self._busy = True
            self._host.tasks.spawn(self._run(request, running), name=f"api-{request.api_key}")

    def _inject(self, fault: RequestFault, request: Request, row: ApiRow) -> None:
        """Do what a fault wants done with a request."""
        slot = next(slot for slot in self._slots if request.is_completed_by(slot.complete))
        slot.hit = True
        if fault.action == "refuse":
            self._refuse_request(slot, request, row, ErrorCode(fault.error))
        elif fault.action == "lose":
            self._shut(reset=True)
        elif fault.action == "drop":
            self._end_unanswered(slot)
            self._drop_later()
        else:
            self._busy = True
            serve = self._serve_late if fault.action == "delay" else self._serve_twice
            running = self._run(request, serve(fault, request, row))
            self._host.tasks.spawn(running, name=f"api-{request.api_key}")

    def _refuse_request(self, slot: ResponseSlot, request: Request, row: ApiRow, code: ErrorCode) -> None:
        slot.refused = True
        if is_served(request.api_key, request.version, code):
            slot.error = code
            self._serve_at_once(request, row)
        else:
            (row.refuse or Request.refuse)(request, code)

    def facts_of(self, request: RequestBody) -> RequestFacts:
        """What a request is about, for a fault that chooses by it."""
        return request_facts(request, self._services.scope)

    async def _serve_late(self, fault: RequestFault, request: Request, row: ApiRow) -> None:
        await self._host.tasks.sleep(fault.delay_ms)
        await _serve(row, request)

    async def _serve_twice(self, _: RequestFault, request: Request, row: ApiRow) -> None:
        copy = request.copy(_without_response)
        await _serve(row, request)
        await _serve(row, copy)

    async def _run(self, request: Request, running: Coroutine[Any, Any, None]) -> None:
        try:
            await running
        except WireError as error:
            self._refuse(str(error))
        except MemoryError as error:
            self._host.tasks.out_of_memory(error)
        except Exception as error:  # as above
            self._handler_failed(request, error)
        if not self._dropping:
            self._busy = False
            self._next()

    def _next(self) -> None:
        try:
            while self._waiting and not self._busy:
                request = self._waiting.popleft()
                self._services.queue.removed()
                self._begin(request)
        except WireError as error:
            self._refuse(str(error))

    def _handler_failed(self, request: Request, error: Exception) -> None:
        code, message = ErrorCode.unknown_server_error, ""
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            _report_bug(self._host, request, error)
        if request.answered:
            return
        try:
            request.fail(code, message)
        except MemoryError as memory:
            self._host.tasks.out_of_memory(memory)
        except Exception as second:  # a body that cannot be read has no error response either
            self._refuse(f"request {request.api_key} v{request.version} cannot be answered: {second}")

    def _refuse(self, reason: str) -> None:
        if self._open:
            self._host.trace.log("warning", f"closing the link to {self._link.peer}: {reason}")
            self._shut(reset=False)

    def _shut(self, *, reset: bool) -> None:
        self._drop()
        self._link.close(reset=reset)

    def _drop_later(self) -> None:
        """Serve no request any more; the connection stays open."""
        self._busy = self._dropping = True
        self._drop_waiting()

    def _fall_silent(self) -> None:
        """Send nothing any more, and serve no request; the connection stays open, and is read: its end is seen."""
        self._drop_later()
        self._drop_slots(hit=True)

    def _drop(self) -> None:
        self._open = False
        self._drop_slots()
        self._drop_waiting()

    def _drop_slots(self, *, hit: bool = False) -> None:
        while self._slots:
            self._end_unanswered(self._slots.popleft(), hit=hit)
        self._unanswered_bytes = 0

    def _drop_waiting(self) -> None:
        dropped = len(self._waiting)
        self._waiting.clear()
        if dropped:
            self._services.queue.removed(dropped)

    def _end_unanswered(self, slot: ResponseSlot, *, hit: bool = False) -> None:
        """A request ends without a response."""
        if self._tapped is not None:
            slot.hit = slot.hit or hit
            slot.learn_subject()
            self._tapped.unanswered(slot)

    # ------------------------------------------------------------- responses

    def completed(self) -> None:
        """Send the responses that are complete at the front of the queue."""
        slots = self._slots
        while slots and slots[0].done:
            slot = slots.popleft()
            self._unanswered_bytes -= slot.size
            left = self._unanswered_bytes
            assert left > 0 if slots else not left, f"{left} bytes of {len(slots)} requests are unanswered"
            if slot.parts is not None and not self._send(slot, slot.parts):
                return
        few = len(slots) <= self._most // 2 and self._unanswered_bytes <= UNANSWERED_BYTES_MOST // 2
        if self._full and few:
            self._full = False
            if not self._held:
                self._link.resume()

    def _send(self, slot: ResponseSlot, parts: Sequence[Part]) -> bool:
        """Send a response, or do what a fault wants done with it; False when that ended the connection."""
        fault = None if slot.refused else self._host.network.response_fault(self._link.peer, slot, self)
        lost = fault is not None and fault.action in (LOSE_RESPONSE, HOLD_RESPONSE)
        slot.hit = slot.hit or (fault is not None and not lost)
        injected = slot.error if fault is None else fault.error
        if injected:
            injected = int(code_at(slot.api_key, slot.version, injected))
        try:
            fate = Fate(lost, injected) if lost or injected else ARRIVES
            error = None if slot.on_send is None else slot.on_send(fate)
            if self._tapped is not None:
                slot.learn_subject()
                self._tapped.sent(slot, parts, injected or error, lost=lost)
        except Exception as problem:  # a record that the tap cannot write must not be acknowledged
            self._refuse(f"response to API {slot.api_key} withheld: {problem!r}")
            return False
        if fault is not None and fault.action == HOLD_RESPONSE:
            self._fall_silent()
            return True
        if lost:
            self._shut(reset=True)
            return False
        if injected:
            parts = (_with_error(slot, parts, injected),)
        self.used_ns = now_ns = self._host.clock.monotonic_ns()
        self._services.times.took(slot.api_key, now_ns - slot.invoked_ns)
        header = encode_response_header(slot.api_key, slot.version, slot.correlation_id)
        self._link.send((header, *parts))
        return True


def _authorize(request: Request, operations: Sequence[Operation]) -> None:
    """KafkaError when the sender has none of the operations on the cluster."""
    if not any(request.allows(operation, *CLUSTER) for operation in operations):
        needed = " or ".join(operation.name for operation in operations)
        raise KafkaError(ErrorCode.cluster_authorization_failed, f"{request.principal} needs {needed} on {CLUSTER}")


async def _serve(row: ApiRow, request: Request) -> None:
    running = row.handler(request)
    if running is not None:
        await running


def _without_response(_: Sequence[Part] | None, on_send: OnSend | None) -> None:
    """Take a response that does not leave: what it says took effect, and no client learns of it."""
    if on_send is not None:
        on_send(LOST)


def _with_error(slot: ResponseSlot, parts: Sequence[Part], error: int) -> bytes:
    """The response of a request that was served, with the error that a fault puts into it."""
    if is_served(slot.api_key, slot.version, error):
        body = b"".join(bytes(bytes_of(part)) for part in parts)
        return struck_bytes(slot.api_key, slot.version, body, error)
    return refusal_bytes(slot.api_key, slot.version, slot.frame, slot.body_at, error)


def _report_bug(host: Host, request: Request, error: Exception) -> None:
    """Trace and log the exception of a handler with its stack."""
    stack = "".join(traceback.format_exception(error)).rstrip()
    host.trace.emit(TaskFailed(name=f"api-{request.api_key}", error=f"{type(error).__name__}: {error}"))
    host.trace.log("error", f"handler of {request!r} failed\n{stack}")
