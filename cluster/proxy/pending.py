"""The requests of one connection that have no response yet, in the order in which their responses must leave.

Owns: `PendingRequest` and their queue. A broker answers the requests of a connection in order, so the first response
that arrives belongs to the first request that was forwarded. A response that the proxy makes itself waits in the queue
for its turn. A request without a response (Produce with acks=0) is never in the queue.
"""

from __future__ import annotations

from collections import deque

from ..errors import WireError
from ..wire.headers import RequestHeader


class PendingRequest:
    """One request, and what becomes of its response."""

    __slots__ = ("dropped", "frame", "header", "invoked_ns", "own_response", "tapped")

    def __init__(self, header: RequestHeader, frame: bytes, invoked_ns: int) -> None:
        self.header = header
        self.invoked_ns = invoked_ns
        self.frame = frame
        """The request's bytes while the tap needs them, else empty."""
        self.own_response: bytes | None = None
        """A response that the proxy made: the request was not forwarded."""
        self.dropped = False
        """True for the copy of a duplicated request: its response does not reach the client."""
        self.tapped: object = None
        """What the tap keeps of the request until its response."""


class PendingRequests:
    """The queue of one connection."""

    __slots__ = ("_queue", "held_bytes")

    def __init__(self) -> None:
        self._queue: deque[PendingRequest] = deque()
        self.held_bytes = 0
        """Bytes of the requests that are kept for the tap."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: PendingRequest) -> None:
        """Append a request."""
        self._queue.append(request)
        self.held_bytes += len(request.frame)

    def answered(self, correlation_id: int) -> PendingRequest:
        """Take the request to which a response of the broker belongs; WireError when it is another's."""
        if not self._queue:
            raise WireError(f"the broker sent response #{correlation_id} to no request")
        request = self._queue[0]
        if request.own_response is not None or request.header.correlation_id != correlation_id:
            raise WireError(
                f"the broker sent response #{correlation_id}, but the next request is #{request.header.correlation_id}"
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
        self.held_bytes = 0

    def _take(self) -> PendingRequest:
        request = self._queue.popleft()
        self.held_bytes -= len(request.frame)
        return request
