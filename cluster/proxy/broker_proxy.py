"""The proxy in front of one foreign broker: its port, and its connections.

Owns: the host that stands for the broker (folder, control socket, trace, tap), the listening port, the connections of
clients. The port is open exactly while the broker accepts connections (`upstream_watch.py`): a client sees a dead
broker as it would see it without the proxy, as a refused connection.

What may fail: ConfigError where the port cannot be bound.
"""

from __future__ import annotations

from ..events.links import ProxyClosed, ProxyOpened
from ..host.seam import Acceptor, FrameHandler, Link, Peer, Promise
from ..listeners import Address
from ..network.unanswered import UnansweredWatch
from .addresses import AddressOf
from .connection import ConnectionServices, ProxiedConnection
from .machine import ProxyHost
from .tap import ProxyTap
from .tap_transactions import TransactionViews
from .topic_names import TopicNames
from .upstream_watch import watch_upstream

LISTENER = "proxy"
FRAME_BYTES_MOST = 104_857_600
"""Kafka's default of socket.request.max.bytes."""
UPSTREAM = "upstream"
"""The kind of peer that the foreign broker is on its own links."""


class BrokerProxy:
    """One foreign broker behind a port of this machine."""

    def __init__(
        self,
        host: ProxyHost,
        node_id: int,
        *,
        upstream: Address,
        address: Address,
        address_of: AddressOf,
        names: TopicNames,
        transactions: TransactionViews,
    ) -> None:
        self.node_id = node_id
        self.address = address
        self.upstream = upstream
        self._host = host
        self._peer = Peer(UPSTREAM, str(node_id))
        self._services = ConnectionServices(
            host=host,
            upstream=lambda: self.upstream,
            upstream_peer=self._peer,
            address_of=address_of,
            tap=ProxyTap(host.tap, names, transactions),
            on_closed=self._closed,
        )
        self._connections: dict[ProxiedConnection, None] = {}
        self._acceptor: Acceptor | None = None
        self._watch = UnansweredWatch(host, lambda: self._connections)

    @property
    def host(self) -> ProxyHost:
        """The host that stands for the broker."""
        return self._host

    @property
    def is_open(self) -> bool:
        """True while the port accepts connections."""
        return self._acceptor is not None

    async def start(self) -> None:
        """Open the control socket, and the port when the broker accepts connections."""
        await self._host.start()
        if self._host.tap.enabled:
            self._watch.start()
        watched: Promise[None] = self._host.tasks.promise()
        watch = watch_upstream(
            self._host,
            self._peer,
            lambda: self.upstream,
            on_up=self._open_port,
            on_down=self._close_port,
            watched=watched,
        )
        self._host.tasks.spawn(watch, name="proxy-watch")
        await watched

    async def stop(self) -> None:
        """Close the port and the connections, then the host."""
        self._watch.stop()
        self._close_port()
        for connection in list(self._connections):
            connection.close()
        await self._host.stop()

    async def _open_port(self) -> None:
        if self._acceptor is None:
            self._host.bind_listener(LISTENER, self.address)
            self._acceptor = await self._host.network.listen(LISTENER, self._accept, max_frame_bytes=FRAME_BYTES_MOST)
            self._host.trace.emit(ProxyOpened(upstream=str(self.upstream)))

    def _close_port(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
            self._host.trace.emit(ProxyClosed(upstream=str(self.upstream)))

    def _accept(self, link: Link) -> FrameHandler:
        connection = ProxiedConnection(self._services, link)
        self._connections[connection] = None
        return connection

    def _closed(self, connection: ProxiedConnection) -> None:
        self._connections.pop(connection, None)
