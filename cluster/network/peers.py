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
from typing import Any

from ..errors import HarrowError, WireError
from ..host.seam import Buffer, FrameHandler, Host, Link, Peer, Promise
from ..ids import NodeId
from ..wire import messages
from ..wire.headers import encode_request_header, parse_response_header

CONNECT_TIMEOUT_MS = 10_000
"""Kafka's default of socket.connection.setup.timeout.ms."""
CORRELATION_MOST = 2**31 - 1


class Channel:
    """One link's life: what was asked on it and not answered yet."""

    __slots__ = ("_link", "_pending", "closed")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._pending: dict[int, tuple[int, int, Promise[memoryview]]] = {}
        self.closed = ""

    def ask(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        parts: Sequence[Buffer],
        promise: Promise[memoryview],
    ) -> None:
        """Send one request; `promise` gets the body of its response."""
        if self.closed:
            _fail(promise, ConnectionResetError(f"link to {self._link.peer}: {self.closed}"))
            return
        self._pending[correlation_id] = (api_key, version, promise)
        self._link.send(parts)

    def frame_received(self, frame: bytes) -> None:
        """Settle the request that this response belongs to."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        asked = self._pending.pop(correlation_id, None)
        if asked is None:
            raise WireError(f"a response #{correlation_id} to a request that was never sent")
        api_key, version, promise = asked
        try:
            _, body_at = parse_response_header(api_key, version, frame)
        except WireError as error:
            _fail(promise, error)
            raise
        if not promise.done():
            promise.set_result(memoryview(frame)[body_at:])

    def link_closed(self, reason: str) -> None:
        """Fail what is unanswered."""
        self.closed = reason or "closed"
        pending, self._pending = self._pending, {}
        for _, _, promise in pending.values():
            _fail(promise, ConnectionResetError(f"link to {self._link.peer}: {self.closed}"))

    def close(self, reason: str, *, reset: bool) -> None:
        """End the link and fail what is unanswered now."""
        self._link.close(reset=reset)
        self.link_closed(reason)


def _fail(promise: Promise[Any], error: BaseException) -> None:
    if not promise.done():
        promise.set_exception(error)


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
        clock, tasks = self._host.clock, self._host.tasks
        deadline_ms = clock.monotonic_ms() + timeout_ms
        channel = self._channel
        if channel is None or channel.closed:
            channel = await self._connected(api_key, timeout_ms)
        self._correlation_id = self._correlation_id % CORRELATION_MOST + 1
        header = encode_request_header(api_key, version, self._correlation_id, self._client_id)
        promise: Promise[memoryview] = tasks.promise()
        channel.ask(api_key, version, self._correlation_id, (header, *body_parts), promise)
        try:
            return await tasks.wait(promise, deadline_ms - clock.monotonic_ms())
        except TimeoutError:
            reason = f"{self._peer} did not answer API {api_key} within {timeout_ms:.0f} ms"
            channel.close(reason, reset=True)
            raise TimeoutError(reason) from None

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
            made.append(Channel(link))
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
