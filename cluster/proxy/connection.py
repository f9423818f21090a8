"""One connection of a client and the connection to the broker that belongs to it.

Owns: both links and the requests between them. Invariants:

* Requests reach the broker in the order in which the client sent them, responses reach the client in the order of the
  requests, both with unchanged correlation ids. Frames pass whole.
* The client's link is paused until the connection to the broker stands, and while too much waits (`UNANSWERED_MOST`
  requests without a response). A side that does not read is not sent more: while `UNSENT_MOST` bytes for it wait here,
  the other side is not read.
* A link that ends ends the other one, after what was queued on it has left. When the broker refuses the connection,
  the client's is reset.

Errors: bytes that are not plain Kafka and requests that do not pass (`apis.py`) close the connection with one line in
the log, and so does a response that does not decode: no address of a foreign broker reaches a client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..host.seam import FrameHandler, Host, Link, Peer
from ..listeners import Address
from ..wire.api_keys import ApiKey
from ..wire.headers import (
    HeaderReader,
    RequestHeader,
    encode_response_header,
    parse_response_header,
)
from .addresses import AddressOf, rewrite
from .apis import check_passes, cut_api_versions, passing_versions, unsupported_api_versions
from .pending import PendingRequest, PendingRequests

CONNECT_TIMEOUT_MS = 10_000
UNANSWERED_MOST = 500
"""Requests of one connection without a response at which its client is not read; it is read again at half."""
UNNAMED = "unnamed"
"""The name of a client that gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionServices:
    """What all connections to one broker share."""

    host: Host
    upstream: Callable[[], Address]
    """Where the foreign broker is reached."""
    upstream_peer: Peer
    address_of: AddressOf
    on_closed: Callable[[ProxiedConnection], None]


class ProxiedConnection:
    """A FrameHandler of the client's link; `UpstreamHandler` is that of the broker's."""

    __slots__ = (
        "_client",
        "_full",
        "_headers",
        "_named",
        "_open",
        "_pending",
        "_services",
        "_upstream",
    )

    def __init__(self, services: ConnectionServices, client: Link) -> None:
        self._services = services
        self._client = client
        self._upstream: Link | None = None
        self._headers = HeaderReader()
        self._pending = PendingRequests()
        self._named = False
        self._full = False
        self._open = True
        client.pause()
        services.host.tasks.spawn(self._connect(), name="proxy-connect")

    async def _connect(self) -> None:
        services = self._services
        host, port = services.upstream()
        try:
            upstream = await services.host.network.connect(
                services.upstream_peer,
                host,
                port,
                self._upstream_handler,
                timeout_ms=CONNECT_TIMEOUT_MS,
            )
        except (OSError, TimeoutError):
            self._client.close(reset=True)
            return
        if not self._open:
            upstream.close()
            return
        self._upstream = upstream
        self._client.resume()

    def _upstream_handler(self, _link: Link) -> FrameHandler:
        return UpstreamHandler(self)

    # -------------------------------------------------------------- requests

    def frame_received(self, frame: bytes) -> None:
        """Forward one request."""
        header = self._headers.read(frame)
        if not self._named:
            # before anything else: naming a blocked peer raises from here, and the frame comes again after healing
            self._client.peer = Peer(
                "client", header.client_id or UNNAMED, self._client.peer.address
            )
            self._named = True
        request = PendingRequest(header, b"", self._services.host.clock.monotonic_ns())
        if header.api_key == ApiKey.API_VERSIONS and header.version not in passing_versions(
            ApiKey.API_VERSIONS
        ):
            request.own_response = (
                encode_response_header(header.api_key, 0, header.correlation_id)
                + unsupported_api_versions()
            )
            self._pending.add(request)
            self._send_own()
            return
        check_passes(header.api_key, header.version)
        if not _has_no_response(header, frame):
            self._pending.add(request)
            self._update_full()
        assert self._upstream is not None, "the client is not read before the broker is connected"
        self._upstream.send((frame,))

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - the seam's parameter
        """The client's link has ended: end the broker's, after the requests that were read."""
        self._end()
        if self._upstream is not None:
            self._upstream.close()
        self._services.on_closed(self)

    # ------------------------------------------------------------- responses

    def response_received(self, frame: bytes) -> None:
        """Forward one response of the broker."""
        if not self._open:
            return
        request = self._pending.answered(int.from_bytes(frame[:4], "big", signed=True))
        if not request.dropped:
            self._client.send((self._rewritten(request.header, frame),))
        self._send_own()
        self._update_full()

    def upstream_closed(self) -> None:
        """The broker's link has ended: end the client's, after the responses that were read."""
        self._end()
        self._client.close()

    def close(self) -> None:
        """End both links."""
        self._end()
        self._client.close()

    def _rewritten(self, header: RequestHeader, frame: bytes) -> bytes:
        _, body_at = parse_response_header(header.api_key, header.version, frame)
        if header.api_key == ApiKey.API_VERSIONS:
            return cut_api_versions(header.version, frame, body_at)
        changed = rewrite(header.api_key, header.version, frame, body_at, self._services.address_of)
        return frame if changed is None else changed

    def _send_own(self) -> None:
        while (request := self._pending.next_own()) is not None:
            assert request.own_response is not None, "next_own"
            self._client.send((request.own_response,))

    def _update_full(self) -> None:
        waiting = len(self._pending)
        if not self._full and waiting >= UNANSWERED_MOST:
            self._full = True
            self._client.pause()
        elif self._full and waiting <= UNANSWERED_MOST // 2:
            self._full = False
            self._client.resume()

    def _end(self) -> None:
        self._open = False
        self._pending.clear()


class UpstreamHandler:
    """The FrameHandler of the link to the broker."""

    __slots__ = ("_connection",)

    def __init__(self, connection: ProxiedConnection) -> None:
        self._connection = connection

    def frame_received(self, frame: bytes) -> None:
        """One response."""
        self._connection.response_received(frame)

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - the seam's parameter
        """The broker has closed the connection, or it was lost."""
        self._connection.upstream_closed()


def _has_no_response(header: RequestHeader, frame: bytes) -> bool:
    """True for a Produce with acks=0."""
    if header.api_key != ApiKey.PRODUCE:
        return False
    at = header.body_at  # the transactional id is before acks
    if header.version >= 9:
        raise_at = frame[at]
        return raise_at == 0 and frame[at + 1 : at + 3] == b"\0\0"
    return frame[at : at + 2] == b"\xff\xff" and frame[at + 2 : at + 4] == b"\0\0"
