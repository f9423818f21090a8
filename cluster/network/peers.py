"""Requests to another broker, pipelined on one connection that is opened when a request needs it.

Owns: the connection to one broker, the requests in flight on it, and the callers that wait for the connection.
The client id `broker-<own id>` names this broker to the other side.

Invariants: a response is matched by its correlation id, on the connection of its request. A request without a response
at its deadline closes the connection, so that a late response reaches no later request. When a connection closes, the
requests in flight fail with ConnectionError, and the next request opens a new connection. The caller decides how
long to wait between attempts.

What may fail: OSError (no process listens, connection lost), TimeoutError (no connection, or no response, in time),
WireError (a response that is not the protocol).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..errors import HarrowError, WireError
from ..host.seam import Buffer, FrameHandler, Host, Link, Peer, Promise, Timer, TlsOptions
from ..ids import NodeId
from ..security.sasl.mechanisms import PeerLogin
from ..wire import messages
from ..wire.headers import encode_request_header, parse_response_header
from .sasl_client import again_ms, log_in

CONNECT_TIMEOUT_MS = 10_000
"""Kafka's default of socket.connection.setup.timeout.ms."""
CORRELATION_ID_MOST = 2**31 - 1


def no_tls() -> None:
    """The TLS of a PLAINTEXT listener: none."""


class ResponseReceiver(Protocol):
    """Takes a response: a promise, or an object that processes the response in the same turn in which it arrives."""

    def done(self) -> bool:
        """True when the receiver wants no response any more."""
        ...

    def set_result(self, result: memoryview, /) -> None:
        """Take the response's body. Raises nothing."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error: there will be no response."""
        ...


class InFlightRequest(NamedTuple):
    """A request without a response yet."""

    api_key: int
    version: int
    receiver: ResponseReceiver
    deadline_ms: float
    timeout_ms: float


class PeerConnection:
    """One link to the peer and the requests in flight on it.

    One timer watches all deadlines: it is set for the earliest deadline, and when it fires it is set for the next.
    """

    __slots__ = ("_host", "_in_flight", "_link", "_timer", "_timer_ms", "closed")

    def __init__(self, host: Host, link: Link) -> None:
        self._host = host
        self._link = link
        self._in_flight: dict[int, InFlightRequest] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self.closed = ""
        """Why the connection is closed; empty while it is open."""

    def send(self, correlation_id: int, parts: Sequence[Buffer], request: InFlightRequest) -> None:
        """Send one request; `request.receiver` gets the body of its response."""
        if self.closed:
            error = ConnectionResetError(f"link to {self._link.peer}: {self.closed}")
            _fail(request.receiver, error)
            return
        assert correlation_id not in self._in_flight, f"request #{correlation_id} is in flight"
        self._in_flight[correlation_id] = request
        if self._timer is None or request.deadline_ms < self._timer_ms:
            self._set_timer(request.deadline_ms)
        self._link.send(parts)

    def _set_timer(self, deadline_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(1.0, deadline_ms - self._host.clock.monotonic_ms())
        self._timer = self._host.tasks.call_later(delay_ms, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Close the connection when a deadline has passed, so that a late response reaches no later request."""
        self._timer = None
        if not self._in_flight:
            return
        first = min(self._in_flight.values(), key=_deadline)
        if first.deadline_ms > self._host.clock.monotonic_ms():
            self._set_timer(first.deadline_ms)
            return
        reason = f"{self._link.peer} did not answer API {first.api_key} within {first.timeout_ms:.0f} ms"
        _fail(first.receiver, TimeoutError(reason))
        self.close(reason, reset=True)

    def frame_received(self, frame: bytes) -> None:
        """Give a response to the receiver of its request."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        request = self._in_flight.pop(correlation_id, None)
        if request is None:
            raise WireError(f"a response #{correlation_id} to a request that was never sent")
        try:
            _, body_at = parse_response_header(request.api_key, request.version, frame)
        except WireError as error:
            _fail(request.receiver, error)
            raise
        if not request.receiver.done():
            request.receiver.set_result(memoryview(frame)[body_at:])

    def link_closed(self, reason: str) -> None:
        """Fail the requests in flight."""
        self.closed = reason or "closed"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        in_flight, self._in_flight = self._in_flight, {}
        for request in in_flight.values():
            error = ConnectionResetError(f"link to {self._link.peer}: {self.closed}")
            _fail(request.receiver, error)

    def close(self, reason: str, *, reset: bool) -> None:
        """Close the link and fail the requests in flight now."""
        self._link.close(reset=reset)
        self.link_closed(reason)


def _fail(receiver: ResponseReceiver | Promise[None], error: BaseException) -> None:
    if not receiver.done():
        receiver.set_exception(error)


def _deadline(request: InFlightRequest) -> float:
    return request.deadline_ms


class PeerClient:
    """Requests to broker `node_id` at `address`:`port` from broker `self_id`."""

    def __init__(
        self,
        host: Host,
        self_id: NodeId,
        node_id: NodeId,
        address: str,
        port: int,
        *,
        login: PeerLogin | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        tls: Callable[[], TlsOptions | None] = no_tls,
    ) -> None:
        """`login`: how this broker logs in; None where brokers do not.

        `tls` says the TLS that the next connection has; None: it has none.
        """
        self._host = host
        self._client_id = f"broker-{self_id}"
        self.node_id = node_id
        self.address = (address, port)
        self._peer = Peer("broker", str(node_id))
        self._connect_timeout_ms = connect_timeout_ms
        self._tls = tls
        self._login = login
        self._again: Timer | None = None  # when to log in again
        self._connection: PeerConnection | None = None
        self._connecting = False
        self._waiters: list[Promise[None]] = []
        self._correlation_id = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        """True while a connection is open."""
        return self._connection is not None and not self._connection.closed

    async def request(self, api_key: int, version: int, entity: Any, timeout_ms: float) -> Any:
        """Send an entity; returns the response entity of the same version."""
        body = messages.encode_request(api_key, version, entity)
        response = await self.request_parts(api_key, version, (body,), timeout_ms)
        return messages.decode_response(api_key, version, response)

    async def request_parts(
        self, api_key: int, version: int, body_parts: Sequence[Buffer], timeout_ms: float
    ) -> memoryview:
        """Send the bytes of a body; returns the response's body, a view of its frame."""
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        connection = self._connection
        if connection is None or connection.closed:
            connection = await self._connected(api_key, timeout_ms)
        promise: Promise[memoryview] = self._host.tasks.promise()
        request = InFlightRequest(api_key, version, promise, deadline_ms, timeout_ms)
        self._send(connection, request, body_parts)
        return await promise

    async def connect(self, api_key: int, timeout_ms: float) -> None:
        """Open the connection for a request of `api_key`, unless it is open."""
        if not self.connected:
            await self._connected(api_key, timeout_ms)

    def request_if_connected(
        self, api_key: int, version: int, body_parts: Sequence[Buffer], timeout_ms: float, receiver: ResponseReceiver
    ) -> bool:
        """Send on the open connection and return; `receiver` gets the response in the turn in which it arrives.

        False, and nothing sent, when there is no open connection.
        """
        connection = self._connection
        if connection is None or connection.closed:
            return False
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        request = InFlightRequest(api_key, version, receiver, deadline_ms, timeout_ms)
        self._send(connection, request, body_parts)
        return True

    def _send(self, connection: PeerConnection, request: InFlightRequest, body_parts: Sequence[Buffer]) -> None:
        self._correlation_id = self._correlation_id % CORRELATION_ID_MOST + 1
        header = encode_request_header(request.api_key, request.version, self._correlation_id, self._client_id)
        connection.send(self._correlation_id, (header, *body_parts), request)

    def close(self) -> None:
        """Close the connection for good; the requests in flight fail with ConnectionError."""
        self._closed = True
        self._stop_timer()
        if self._connection is not None:
            self._connection.close("closed here", reset=False)
            self._connection = None
        self._finish_connecting(ConnectionAbortedError(f"the client of {self._peer} is closed"))

    # ------------------------------------------------------------ connecting

    async def _connected(self, api_key: int, timeout_ms: float) -> PeerConnection:
        if self._closed:
            raise ConnectionAbortedError(f"the client of {self._peer} is closed")
        # a promise for each waiter: a waiter that times out fails alone
        waiter: Promise[None] = self._host.tasks.promise()
        self._waiters.append(waiter)
        if not self._connecting:
            self._connecting = True
            self._host.tasks.spawn(self._connect(), name=f"connect-{self._peer}")
        try:
            await self._host.tasks.wait(waiter, timeout_ms)
        except TimeoutError as error:
            reason = str(error) or f"within {timeout_ms:.0f} ms"
            raise TimeoutError(f"no link to {self._peer} for API {api_key}: {reason}") from None
        if self._connection is None:  # closed between the opening of the link and our turn
            raise ConnectionAbortedError(f"the client of {self._peer} is closed")
        return self._connection

    async def _connect(self) -> None:
        address, port = self.address
        made: list[PeerConnection] = []

        def make(link: Link) -> FrameHandler:
            made.append(PeerConnection(self._host, link))
            return made[0]

        failure: BaseException | None = None
        try:
            link = await self._host.network.connect(
                self._peer, address, port, make, timeout_ms=self._connect_timeout_ms, tls=self._tls()
            )
            if self._login is not None:
                await self._log_in(made[0], self._login)
        except (OSError, HarrowError) as error:  # TimeoutError is an OSError
            failure = error
        else:
            if self._closed:
                link.close()
            else:
                self._connection = made[0]
        finally:
            self._connecting = False
        self._finish_connecting(failure)

    async def _log_in(self, connection: PeerConnection, login: PeerLogin) -> None:
        """Log in on an open link; where that fails, the link is closed."""

        async def ask(api_key: int, version: int, entity: Any) -> Any:
            promise: Promise[memoryview] = self._host.tasks.promise()
            deadline_ms = self._host.clock.monotonic_ms() + self._connect_timeout_ms
            request = InFlightRequest(api_key, version, promise, deadline_ms, self._connect_timeout_ms)
            self._send(connection, request, (messages.encode_request(api_key, version, entity),))
            return messages.decode_response(api_key, version, await promise)

        try:
            lifetime_ms = await log_in(ask, login)
        except (OSError, HarrowError) as error:
            connection.close(f"not logged in: {error}", reset=False)
            raise
        if lifetime_ms:
            self._stop_timer()
            delay_ms = again_ms(lifetime_ms, self._host.random)
            self._again = self._host.tasks.call_later(delay_ms, self._log_in_again, connection, login)

    def _log_in_again(self, connection: PeerConnection, login: PeerLogin) -> None:
        """Before the session ends (KIP-368): new requests wait until it has begun again."""
        self._again = None
        if connection is self._connection and not connection.closed and not self._connecting:
            self._connection = None
            self._connecting = True
            self._host.tasks.spawn(self._renew(connection, login), name=f"login-{self._peer}")

    async def _renew(self, connection: PeerConnection, login: PeerLogin) -> None:
        failure: BaseException | None = None
        try:
            await self._log_in(connection, login)
        except (OSError, HarrowError) as error:
            failure = error
        else:
            if self._closed:
                connection.close("closed here", reset=False)
            else:
                self._connection = connection
        finally:
            self._connecting = False
        self._finish_connecting(failure)

    def _stop_timer(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _finish_connecting(self, failure: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if failure is not None:
                _fail(waiter, failure)
            elif not waiter.done():
                waiter.set_result(None)
