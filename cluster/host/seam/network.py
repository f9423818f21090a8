"""Connections of a host: links that carry frames, acceptors, and the peer at the other end of a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .buffers import Part
from .tls import TlsOptions

CLOSED_BY_PEER = "closed by the peer"
"""The reason of a link that the other side has closed in order."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a link: `broker 2`, `registry`, `client orders-app`."""

    kind: str
    name: str
    address: str = field(default="", compare=False)
    """IP address of an accepted link, without its port; for display only, not part of the identity."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


class Link(Protocol):
    """One connection that carries frames: 4 bytes of big-endian size, then so many bytes."""

    max_frame_bytes: int
    """A larger frame closes the link; a server changes it when it knows the other side."""
    wire_error_level: str
    """The level of the log line for a frame that is not the protocol: `warning`, or what a server sets."""

    @property
    def peer(self) -> Peer:
        """The process it leads to; on an accepted link `Peer("unknown", address)` until the first request names it.

        An assignment applies the link rules of that peer at once, also to the frame that is being delivered: when
        they block it, the assignment raises through the handler and the frame is delivered again after healing.
        """
        ...

    @peer.setter
    def peer(self, peer: Peer, /) -> None: ...

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the other side has shown and that is trusted, as DER; None without one."""
        ...

    def when_established(self, call: Callable[[], object]) -> None:
        """Run `call` once, before the first frame is delivered: after the handshake of TLS, without TLS at once."""
        ...

    def send(self, parts: Sequence[Part]) -> None:
        """Queue one frame: the size prefix is added here, the parts are not copied. Never blocks.

        File regions leave by `sendfile`; a file that was cut under one resets the link.
        """
        ...

    def close(self, *, reset: bool = False) -> None:
        """Close the connection after queued frames were sent; with `reset` at once (the other side sees ECONNRESET)."""
        ...

    def pause(self) -> None:
        """Deliver no more frames until `resume` (backpressure)."""
        ...

    def resume(self) -> None:
        """Deliver frames again."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued and not yet taken by the kernel."""
        ...

    def when_unsent_below(self, limit: int, call: Callable[[], object]) -> None:
        """Run `call` once, when `unsent_bytes` is at most `limit`; never, when the link is closed before.

        A second call replaces the first.
        """
        ...


class FrameHandler(Protocol):
    """Receives the frames of a link."""

    def frame_received(self, frame: bytes) -> None:
        """One whole frame, without its size prefix. A WireError raised here closes the link with a log line."""
        ...

    def link_closed(self, reason: str) -> None:
        """The connection has ended; called once."""
        ...


class Acceptor(Protocol):
    """A bound and listening address that accepts links."""

    @property
    def port(self) -> int:
        """The port that was bound."""
        ...

    def pause(self) -> None:
        """Accept no link until `resume`; new connections wait in the backlog."""
        ...

    def resume(self) -> None:
        """Accept links again, first those that wait, from the next turn of the loop on."""
        ...

    def renew(self, tls: TlsOptions) -> None:
        """Use other keys of TLS for the links that are accepted from now on; ConfigError for unusable ones."""
        ...

    def close(self) -> None:
        """Accept no more connections; open links stay open."""
        ...


LOSE_RESPONSE, HOLD_RESPONSE = "lose", "hold"
"""Actions of a response that does not leave: its connection is reset, or stays open and is silent from now on."""


class RequestFacts(NamedTuple):
    """What a request is about, as far as a fault may choose by it: what it names itself, or its fetch session names."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str, int]] = frozenset()
    groups: frozenset[str] = frozenset()
    transactional_ids: frozenset[str] = frozenset()


class RequestBody(Protocol):
    """A request whose header was read."""

    @property
    def api_key(self) -> int:
        """What it asks for."""
        ...

    @property
    def version(self) -> int:
        """The version in the header."""
        ...

    @property
    def frame(self) -> bytes:
        """The whole request."""
        ...

    @property
    def body_at(self) -> int:
        """Where its body begins."""
        ...


class FactsReader(Protocol):
    """Reads requests, for a fault that chooses by what they are about."""

    def facts_of(self, request: RequestBody, /) -> RequestFacts:
        """Return what a request is about; nothing for one that does not decode."""
        ...


class RequestFault(Protocol):
    """What a fault wants done with one request (`knobs/request_faults.py`)."""

    @property
    def action(self) -> str:
        """`refuse`, `lose`, `drop`, `delay` or `duplicate`."""
        ...

    @property
    def error(self) -> int:
        """The error code of a refusal."""
        ...

    @property
    def delay_ms(self) -> int:
        """The delay."""
        ...


class ResponseFault(Protocol):
    """What a fault wants done with one response (`knobs/response_faults.py`)."""

    @property
    def action(self) -> str:
        """`lose`: the caller closes the link with `reset`; `fail`: the response has an error."""
        ...

    @property
    def error(self) -> int:
        """The error code of a failed response; 0 for a lost one."""
        ...


class AccessFaults(Protocol):
    """Counts who gets in, and refuses logins, by the rules that faults set."""

    def login(self, user: str, *, again: bool, failed: bool) -> bool:
        """Count a login that has ended, `again`: a re-authentication; True when a rule refuses it."""
        ...

    def token_expired(self, user: str, /) -> bool:
        """Count a login of `user` with a token; True when a rule lets the token be expired."""
        ...

    def denied(self, user: str, operation: str, kind: str, name: str, /) -> None:
        """Count an operation of `user` on a resource, by Kafka's names, that the authorizer denied."""
        ...

    def awaits_denials(self, user: str, /) -> bool:
        """Whether a rule counts denied operations of `user`."""
        ...


class Network(Protocol):
    """Sockets that carry frames, and the link rules that faults set (isolation, lost responses)."""

    @property
    def access(self) -> AccessFaults:
        """The rules of who gets in."""
        ...

    async def listen(
        self,
        name: str,
        make_handler: Callable[[Link], FrameHandler],
        *,
        max_frame_bytes: int,
        tls: TlsOptions | None = None,
    ) -> Acceptor:
        """Serve on this host's listener `name`; its socket was bound before the host started.

        With `tls` a link delivers its first frame after the handshake. ConfigError where the host has no TLS.
        """
        ...

    async def connect(
        self,
        peer: Peer,
        host: str,
        port: int,
        make_handler: Callable[[Link], FrameHandler],
        *,
        timeout_ms: int,
        tls: TlsOptions | None = None,
    ) -> Link:
        """Open a link to `peer`; OSError or TimeoutError when no process answers (an isolated peer never does).

        With `tls` the link is open after the handshake.
        """
        ...

    def response_fault(self, peer: Peer, request: RequestBody, reader: FactsReader) -> ResponseFault | None:
        """Count one response of a request that was served, and return the fault that acts on it."""
        ...

    def request_fault(self, peer: Peer, request: RequestBody, reader: FactsReader) -> RequestFault | None:
        """Count one request, and return the fault that acts on it."""
        ...

    def after_delivery(self, call: Callable[[], object]) -> None:
        """Run `call` after the delivery of frames that is in progress; without one, on the next turn of the loop."""
        ...

    def flush(self) -> None:
        """Send what the delivery in progress has queued now instead of at its end, because a client waits for it."""
        ...
