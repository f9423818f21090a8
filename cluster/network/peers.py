"""Calls to another broker: requests pipelined on one link, opened when it is needed.

Owns: the link to one broker, the requests on it that are not answered, and who waits for the link.
The client id `broker-<own id>` is how the other side names the link.

Invariants: a response is matched by correlation id and to the link it was asked on; a request that is not
answered in time closes the link, for a late response must meet nobody. What was on a link that closes fails
with ConnectionError; the next request opens a new one. How long to wait between tries is the caller's to say.

What may fail: OSError (nobody listens, connection lost), TimeoutError (no link, or no answer, in time),
WireError (an answer that is not the protocol).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ..errors import HarrowError, WireError
from ..host.seam import Buffer, FrameHandler, Host, Link, Peer, Promise, Timer
from ..ids import NodeId
from ..wire import messages
from ..wire.headers import encode_request_header, parse_response_header

CONNECT_TIMEOUT_MS = 10_000
"""Kafka's default of socket.connection.setup.timeout.ms."""
CORRELATION_MOST = 2**31 - 1


class Settled(Protocol):
    """What an answer is given to: a promise, or anything that wants it in the very turn it comes."""

    def done(self) -> bool:
        """True when nothing is wanted any more."""
        ...

    def set_result(self, result: memoryview, /) -> None:
        """The response's body. Raises nothing."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """There will be no response."""
        ...


class Asked(NamedTuple):
    """One request that is not answered."""

    api_key: int
    version: int
    settled: Settled
    deadline_ms: float
    timeout_ms: float


class Channel:
    """One link's life: what was asked on it and not answered yet.

    One timer watches all deadlines: it is set for the earliest when it was last set, and looks anew then.
    """

    __slots__ = ("_host", "_link", "_pending", "_timer", "_timer_ms", "closed")

    def __init__(self, host: Host, link: Link) -> None:
        self._host = host
        self._link = link
        self._pending: dict[int, Asked] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self.closed = ""

    def ask(self, correlation_id: int, parts: Sequence[Buffer], asked: Asked) -> None:
        """Send one request; `asked.settled` gets the body of its response."""
        if self.closed:
            error = ConnectionResetError(f"link to {self._link.peer}: {self.closed}")
            _fail(asked.settled, error)
            return
        self._pending[correlation_id] = asked
        if self._timer is None or asked.deadline_ms < self._timer_ms:
            self._set_timer(asked.deadline_ms)
        self._link.send(parts)

    def _set_timer(self, deadline_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(1.0, deadline_ms - self._host.clock.monotonic_ms())
        self._timer = self._host.tasks.call_later(delay_ms, self._look)

    def _look(self) -> None:
        """A deadline may have passed: the link ends with it, for a late response must meet nobody."""
        self._timer = None
        if not self._pending:
            return
        first = min(self._pending.values(), key=_deadline)
        if first.deadline_ms > self._host.clock.monotonic_ms():
            self._set_timer(first.deadline_ms)
            return
        reason = (
            f"{self._link.peer} did not answer API {first.api_key} within {first.timeout_ms:.0f} ms"
        )
        _fail(first.settled, TimeoutError(reason))
        self.close(reason, reset=True)

    def frame_received(self, frame: bytes) -> None:
        """Settle the request that this response belongs to."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        asked = self._pending.pop(correlation_id, None)
        if asked is None:
            raise WireError(f"a response #{correlation_id} to a request that was never sent")
        try:
            _, body_at = parse_response_header(asked.api_key, asked.version, frame)
        except WireError as error:
            _fail(asked.settled, error)
            raise
        if not asked.settled.done():
            asked.settled.set_result(memoryview(frame)[body_at:])

    def link_closed(self, reason: str) -> None:
        """Fail what is unanswered."""
        self.closed = reason or "closed"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        for asked in pending.values():
            error = ConnectionResetError(f"link to {self._link.peer}: {self.closed}")
            _fail(asked.settled, error)

    def close(self, reason: str, *, reset: bool) -> None:
        """End the link and fail what is unanswered now."""
        self._link.close(reset=reset)
        self.link_closed(reason)


def _fail(settled: Settled | Promise[None], error: BaseException) -> None:
    if not settled.done():
        settled.set_exception(error)


def _deadline(asked: Asked) -> float:
    return asked.deadline_ms


class PeerClient:
    """Requests to broker `node_id` at `address`:`port` from broker `self_id`."""

    def __init__(
        self, host: Host, self_id: NodeId, node_id: NodeId, address: str, port: int,
        *, connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:  # fmt: skip
        self._host = host
        self._client_id = f"broker-{self_id}"
        self.node_id = node_id
        self.address = (address, port)
        self._peer = Peer("broker", str(node_id))
        self._connect_timeout_ms = connect_timeout_ms
        self._channel: Channel | None = None
        self._connecting = False
        self._waiters: list[Promise[None]] = []
        self._correlation_id = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        """True while there is a link."""
        return self._channel is not None and not self._channel.closed

    async def request(self, api_key: int, version: int, entity: Any, timeout_ms: float) -> Any:
        """Send an entity; the response entity of the same version."""
        body = messages.encode_request(api_key, version, entity)
        answer = await self.request_parts(api_key, version, (body,), timeout_ms)
        return messages.decode_response(api_key, version, answer)

    async def request_parts(
        self, api_key: int, version: int, body_parts: Sequence[Buffer], timeout_ms: float
    ) -> memoryview:
        """Send a body written by hand; the response's body, a view of the frame it came in."""
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        channel = self._channel
        if channel is None or channel.closed:
            channel = await self._connected(api_key, timeout_ms)
        promise: Promise[memoryview] = self._host.tasks.promise()
        asked = Asked(api_key, version, promise, deadline_ms, timeout_ms)
        self._ask(channel, asked, body_parts)
        return await promise

    async def connect(self, api_key: int, timeout_ms: float) -> None:
        """Open the link for a request of `api_key`, unless it is open."""
        if not self.connected:
            await self._connected(api_key, timeout_ms)

    def ask(
        self,
        api_key: int,
        version: int,
        body_parts: Sequence[Buffer],
        timeout_ms: float,
        settled: Settled,
    ) -> bool:
        """Send on the open link and return; the answer goes to `settled` in the turn in which it comes.

        False, and nothing asked, when there is no link.
        """
        channel = self._channel
        if channel is None or channel.closed:
            return False
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        asked = Asked(api_key, version, settled, deadline_ms, timeout_ms)
        self._ask(channel, asked, body_parts)
        return True

    def _ask(self, channel: Channel, asked: Asked, body_parts: Sequence[Buffer]) -> None:
        self._correlation_id = self._correlation_id % CORRELATION_MOST + 1
        header = encode_request_header(
            asked.api_key, asked.version, self._correlation_id, self._client_id
        )
        channel.ask(self._correlation_id, (header, *body_parts), asked)

    def close(self) -> None:
        """End the link for good; what is unanswered fails with ConnectionError."""
        self._closed = True
        if self._channel is not None:
            self._channel.close("closed here", reset=False)
            self._channel = None
        self._settle(ConnectionAbortedError(f"the client of {self._peer} is closed"))

    # ------------------------------------------------------------ connecting

    async def _connected(self, api_key: int, timeout_ms: float) -> Channel:
        if self._closed:
            raise ConnectionAbortedError(f"the client of {self._peer} is closed")
        # each waiter its own promise: one that gives up takes nobody with it
        waiter: Promise[None] = self._host.tasks.promise()
        self._waiters.append(waiter)
        if not self._connecting:
            self._connecting = True
            self._host.tasks.spawn(self._connect(), name=f"connect-{self._peer}")
        try:
            await self._host.tasks.wait(waiter, timeout_ms)
        except TimeoutError as error:
            said = str(error) or f"within {timeout_ms:.0f} ms"
            raise TimeoutError(f"no link to {self._peer} for API {api_key}: {said}") from None
        if self._channel is None:  # closed between the link's coming and our turn
            raise ConnectionAbortedError(f"the client of {self._peer} is closed")
        return self._channel

    async def _connect(self) -> None:
        address, port = self.address
        made: list[Channel] = []

        def make(link: Link) -> FrameHandler:
            made.append(Channel(self._host, link))
            return made[0]

        failure: BaseException | None = None
        try:
            link = await self._host.network.connect(
                self._peer, address, port, make, timeout_ms=self._connect_timeout_ms
            )
        except (OSError, HarrowError) as error:  # TimeoutError is an OSError
            failure = error
        else:
            if self._closed:
                link.close()
            else:
                self._channel = made[0]
        finally:
            self._connecting = False
        self._settle(failure)

    def _settle(self, failure: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if failure is not None:
                _fail(waiter, failure)
            elif not waiter.done():
                waiter.set_result(None)
