"""The proxy in front of one foreign broker: its port, and its connections.

Owns: the host that stands for the broker (folder, control socket, trace, tap), the listening port, the connections of
clients, and the certificate that clients with TLS see. The port is open exactly while the broker accepts connections
(`upstream_watch.py`): a client sees a dead broker as it would see it without the proxy, as a refused connection.

Control operations of the host, beside its own:

    connections.close  `user`: end the connections of this user, null: of all clients with TLS; `closed`: how many
    certificate        `key`, `chain`: what new connections see, PEM; empty: that of the start
    credentials        `certificates`: the fingerprint of what new connections see, by listener (`CLIENTS`)

What may fail: ConfigError where the port cannot be bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..events.links import ProxyClosed, ProxyOpened
from ..host.seam import Acceptor, FrameHandler, Link, Peer, Promise, TlsOptions
from ..listeners import CLIENTS, Address
from ..mutants.changing_link import with_mutant
from ..network.unanswered import UnansweredWatch
from ..security.fingerprints import of_certificate
from .addresses import AddressOf
from .client_identities import ClientIdentities
from .connection import ConnectionServices, ProxiedConnection
from .machine import ProxyHost
from .tap import ProxyTap
from .tap_transactions import TransactionViews
from .topic_names import TopicNames
from .upstream_watch import watch_upstream

LISTENER, OWN_LISTENER = "proxy", "proxy-own"
FRAME_BYTES_MOST = 104_857_600
"""Kafka's default of socket.request.max.bytes."""
UPSTREAM = "upstream"
"""The kind of peer that the foreign broker is on its own links."""


class OwnPort(NamedTuple):
    """A second port, without TLS, that leads to another listener of the broker: for Harrow's own clients."""

    address: Address
    upstream: Address
    address_of: AddressOf


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
        tls: TlsOptions | None = None,
        identities: ClientIdentities | None = None,
        own: OwnPort | None = None,
    ) -> None:
        self.node_id = node_id
        self.address = address
        self.upstream = upstream
        self._host = host
        self._peer = Peer(UPSTREAM, str(node_id))
        self.own = own
        self._tls = self._first_tls = tls
        self._services = ConnectionServices(
            host=host,
            upstream=lambda: self.upstream,
            upstream_peer=self._peer,
            address_of=address_of,
            tap=ProxyTap(host.tap, names, transactions),
            on_closed=self._closed,
            identities=identities,
        )
        self._own_services = (
            None
            if own is None
            else replace(self._services, upstream=lambda: own.upstream, address_of=own.address_of, identities=None)
        )
        self._connections: dict[ProxiedConnection, bool] = {}
        """Whether each is one of the port for clients."""
        self._acceptor: Acceptor | None = None
        self._own_acceptor: Acceptor | None = None
        self._watch = UnansweredWatch(host, lambda: self._connections)
        host.control.register("connections.close", self._op_close)
        host.control.register("certificate", self._op_certificate)
        host.control.register("credentials", self._op_credentials)

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
            network = self._host.network
            self._host.bind_listener(LISTENER, self.address)
            accept = with_mutant(partial(self._accept, self._services), self._host.trace)
            self._acceptor = await network.listen(LISTENER, accept, max_frame_bytes=FRAME_BYTES_MOST, tls=self._tls)
            if self.own is not None and self._own_services is not None:
                self._host.bind_listener(OWN_LISTENER, self.own.address)
                self._own_acceptor = await network.listen(
                    OWN_LISTENER, partial(self._accept, self._own_services), max_frame_bytes=FRAME_BYTES_MOST
                )
            self._host.trace.emit(ProxyOpened(upstream=str(self.upstream)))

    def _close_port(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
            if self._own_acceptor is not None:
                self._own_acceptor.close()
                self._own_acceptor = None
            self._host.trace.emit(ProxyClosed(upstream=str(self.upstream)))

    def _accept(self, services: ConnectionServices, link: Link) -> FrameHandler:
        connection = ProxiedConnection(services, link)
        self._connections[connection] = services is self._services
        return connection

    def _closed(self, connection: ProxiedConnection) -> None:
        self._connections.pop(connection, None)

    # ----------------------------------------------------------- credentials

    def close_connections(self, user: str | None) -> int:
        """End the connections of a user; None: of all clients with TLS. Return how many there were."""
        if user is None:
            found = [row for row, of_clients in self._connections.items() if of_clients and self._tls is not None]
        else:
            found = [row for row in self._connections if user and row.user == user]
        found = [row for row in found if row.is_open]
        for connection in found:
            connection.close()
        return len(found)

    def show_certificate(self, tls: TlsOptions | None) -> None:
        """Show another certificate to new connections; None: the first one. ConfigError for an unusable one."""
        tls = tls or self._first_tls
        if tls is None or self._first_tls is None:
            raise ConfigError(f"the clients of broker {self.node_id} speak without TLS: give the proxy a keystore")
        if self._acceptor is not None:
            self._acceptor.renew(tls)
        self._tls = tls

    def _op_close(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        user = fields.get("user")
        return {"closed": self.close_connections(None if user is None else str(user))}

    def _op_certificate(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        key, chain = str(fields.get("key") or ""), str(fields.get("chain") or "")
        if bool(key) != bool(chain):
            raise ConfigError("a certificate needs a key and a chain; without both, the first one is shown again")
        first = self._first_tls or TlsOptions()
        self.show_certificate(replace(first, key=key, chain=chain) if key else None)
        return self._op_credentials(fields)

    def _op_credentials(self, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"certificates": {} if self._tls is None else {CLIENTS: of_certificate(self._tls.chain)}}
