"""The links between foreign brokers: each connection from one broker to another passes here, frame by frame.

Owns: for one listener of a broker (the target), an address for each other broker (a source), and the connections that
arrive there. The address says who connects: each broker resolves the name of another to an address of the pair.

Each connection has two links. The one to the source belongs to the target's host, the one to the target belongs to the
source's host, with the other broker as their peer. So the link rules of both hosts apply, each once, as they do to a
connection between two of Harrow's brokers: what a rule holds back, delays or resets, and what a probe finds.

Invariants: frames pass whole, unchanged and in order. A link is not read while more than `UNSENT_MOST` bytes wait on
the other. The port is open exactly while the target accepts connections. A link that was reset resets the other, and
one that the other side closed ends it after what was queued on it.

What may fail: ConfigError where an address cannot be bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from ..host.seam import CLOSED_BY_PEER, Acceptor, FrameHandler, Link, Peer, Promise
from ..listeners import Address
from ..network.passing_end import PassingEnd
from .connection import UNSENT_MOST
from .machine import ProxyHost
from .upstream_watch import CONNECT_TIMEOUT_MS, watch_upstream

BROKER = "broker"
"""The kind of peer."""
FRAME_BYTES_MOST = 2**31 - 1
"""Brokers trust each other: a fetch response has no bound."""


class PeerSource(NamedTuple):
    """A broker that connects to the target."""

    node_id: int
    host: ProxyHost
    address: Address
    """Where its connections to the target arrive."""


class PeerListener:
    """One listener of the broker `node_id`, for the other brokers."""

    def __init__(self, node_id: int, host: ProxyHost, upstream: Address, sources: Mapping[int, PeerSource]) -> None:
        self.node_id = node_id
        self.host = host
        self.upstream = upstream
        self._sources = sources
        self._acceptors: list[Acceptor] = []

    def start(self) -> None:
        """Open the ports when the broker accepts connections, and close them when it does not."""
        watched: Promise[None] = self.host.tasks.promise()
        watch = watch_upstream(
            self.host,
            Peer("upstream", str(self.node_id)),
            lambda: self.upstream,
            on_up=self._open,
            on_down=self._close,
            watched=watched,
        )
        self.host.tasks.spawn(watch, name="proxy-peer-watch")

    async def _open(self) -> None:
        if self._acceptors:
            return
        for source in self._sources.values():
            listener = f"{source.address}"
            self.host.bind_listener(listener, source.address)
            acceptor = await self.host.network.listen(
                listener, partial(self._accept, source), max_frame_bytes=FRAME_BYTES_MOST
            )
            self._acceptors.append(acceptor)

    def _close(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()

    def _accept(self, source: PeerSource, link: Link) -> FrameHandler:
        link.peer = Peer(BROKER, str(source.node_id))
        near = RelayEnd(link)
        link.pause()  # until the target is connected
        source.host.tasks.spawn(self._connect(source, near), name="proxy-peer-connect")
        return near

    async def _connect(self, source: PeerSource, near: RelayEnd) -> None:
        try:
            link = await source.host.network.connect(
                Peer(BROKER, str(self.node_id)),
                *self.upstream,
                partial(RelayEnd, other=near.link),
                timeout_ms=CONNECT_TIMEOUT_MS,
            )
        except (OSError, TimeoutError):
            near.link.close(reset=True)
            return
        near.connected(link)


class RelayEnd(PassingEnd[Link]):
    """The FrameHandler of one of the two links of a connection; it sends what it receives on the other link."""

    __slots__ = ("_closed_by",)

    def __init__(self, link: Link, other: Link | None = None) -> None:
        super().__init__(link, other, UNSENT_MOST)
        self._closed_by = ""

    def connected(self, other: Link) -> None:
        """Take the other link, and read this one."""
        self._other = other
        if self._closed_by:
            self.link_closed(self._closed_by)
        else:
            self.link.resume()

    def link_closed(self, reason: str) -> None:
        """End the other link too."""
        self._closed_by = reason
        if self._other is not None:
            self._other.close(reset=reason != CLOSED_BY_PEER)
