"""The requests of one connection that have no response yet, in the order in which their responses must leave.

Owns: `PendingRequest` and their queue. A broker answers the requests of a connection in order, so the first response
that arrives belongs to the first request that was forwarded. A response that the proxy makes itself waits in the queue
for its turn. A request without a response (Produce with acks=0) is never in the queue.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import WireError
from ..wire.api_keys import ApiKey
from ..wire.headers import RequestHeader
from ..wire.waiting_times import HEAD_BYTES

if TYPE_CHECKING:
    from .logins import SaslStep

_CORRELATION = struct.Struct(">i")


class WatchedRequest(NamedTuple):
    """What tells how long the broker may wait with a response (`wire/waiting_times.py`)."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body_at: int
    frame: bytes
    """The request's bytes; of a Produce the first ones."""
    invoked_ns: int


class PendingRequest:
    """One request, and what becomes of its response; `RequestBytes` of the wire."""

    __slots__ = (
        "_head",
        "_watched",
        "api_key",
        "body_at",
        "client_id",
        "correlation_id",
        "dropped",
        "error",
        "frame",
        "hit",
        "in_tap",
        "invoked_ns",
        "lost",
        "own_response",
        "refused",
        "sasl",
        "subject",
        "tapped",
        "version",
    )

    def __init__(self, header: RequestHeader, frame: bytes, invoked_ns: int) -> None:
        self.api_key, self.version, self.correlation_id, self.client_id, self.body_at = header
        self.invoked_ns = invoked_ns
        self.frame = frame
        """The request's bytes; empty after it was forwarded, unless the tap needs them."""
        self._head = frame[:HEAD_BYTES] if self.api_key == ApiKey.PRODUCE else frame
        self._watched: WatchedRequest | None = None
        self.own_response: bytes | None = None
        """A response that the proxy made: the request was not forwarded."""
        self.lost = False
        """True when a fault drops the response."""
        self.error = 0
        """The error code that a fault puts into the response; 0 without such a fault."""
        self.refused = False
        """True for a request that is refused and forwarded all the same, for the rest of its response."""
        self.dropped = False
        """True for the copy of a duplicated request: its response does not reach the client."""
        self.hit = False
        """Whether a fault of requests acted on it."""
        self.subject: str | None = None
        """What it names (`wire/tapped_requests.py`)."""
        self.sasl: SaslStep | None = None
        """What it is in the login of its client; None for every other request."""
        self.in_tap = False
        """Whether the tap has its row as a request."""
        self.tapped: Any = None
        """What the tap keeps of the request until its response."""

    @property
    def _header(self) -> RequestHeader:
        return RequestHeader(self.api_key, self.version, self.correlation_id, self.client_id, self.body_at)

    def whole(self) -> WatchedRequest:
        """Return the request with all its bytes, which a Produce has until its response."""
        return WatchedRequest(*self._header, self.frame or self._head, self.invoked_ns)

    def watched(self) -> WatchedRequest:
        """Return what the watch for late responses looks at: always the same object."""
        if self._watched is None:
            self._watched = WatchedRequest(*self._header, self._head, self.invoked_ns)
        return self._watched

    def replace_body(self, body: bytes) -> None:
        """Keep `body` in the place of the one that was forwarded, which is not kept."""
        self._head = self.frame[: self.body_at] + body
        self.frame = b""

    def copy(self) -> PendingRequest:
        """Return the same request, whose response does not reach the client."""
        copied = PendingRequest(self._header, self.frame, self.invoked_ns)
        copied.dropped = True
        return copied


class PendingRequests:
    """The queue of one connection."""

    __slots__ = ("_queue", "kept_bytes")

    def __init__(self) -> None:
        self._queue: deque[PendingRequest] = deque()
        self.kept_bytes = 0
        """Bytes of requests in the queue."""

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[PendingRequest]:
        return iter(self._queue)

    def add(self, request: PendingRequest) -> None:
        """Append a request."""
        self._queue.append(request)
        self.kept_bytes += len(request.frame)

    def answered(self, response: bytes) -> PendingRequest:
        """Take the request to which a response of the broker belongs; WireError when it is another's."""
        if len(response) < _CORRELATION.size:
            raise WireError(f"the broker sent a response of {len(response)} bytes")
        correlation_id: int = _CORRELATION.unpack_from(response, 0)[0]
        if not self._queue:
            raise WireError(f"the broker sent response #{correlation_id} to no request")
        request = self._queue[0]
        if request.own_response is not None or request.correlation_id != correlation_id:
            raise WireError(
                f"the broker sent response #{correlation_id}, but the next request is #{request.correlation_id}"
            )
        return self._take()

    def next_own(self) -> PendingRequest | None:
        """Take the first request when the proxy made its response."""
        if self._queue and self._queue[0].own_response is not None:
            return self._take()
        return None

    def clear(self) -> None:
        """Forget all requests."""
        self._queue.clear()
        self.kept_bytes = 0

    def _take(self) -> PendingRequest:
        request = self._queue.popleft()
        self.kept_bytes -= len(request.frame)
        assert self._queue or not self.kept_bytes, f"{self.kept_bytes} bytes of no request; a frame changed here"
        return request
