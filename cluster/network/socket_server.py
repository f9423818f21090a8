"""All listeners of a broker: Kafka's SocketServer.

Owns: one `RequestServer` for each listener, and what they share: the quotas of connections, the queue of waiting
requests, the request times. Each listener has an API table of its own: the inter-broker APIs are served, and
advertised, on the inter-broker listener only.

The inter-broker listener starts first, because the controller must reach the broker before clients may.
What may fail: ConfigError for a listener that the host has no socket for, or whose TLS cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from ..authorizer import USER_TYPE, Authorizer, Principal
from ..config import BrokerConfig
from ..host.seam import Host, TlsOptions
from ..listeners import Listener, inter_broker_listener
from ..metrics.request_times import RequestTimes
from ..security.certificates import PrincipalNames
from ..security.fingerprints import of_certificate, of_secret
from ..security.sasl.mechanisms import Credentials, ListenerMechanisms, NoCredentials
from ..wire.api_table import ApiRow, ApiTable, Identity
from ..wire.features import Feature
from ..wire.release_table import RELEASES
from ..wire.request_facts import NO_SCOPE, RequestScope
from .connection import UNANSWERED_MOST
from .connection_quotas import ConnectionQuotas
from .issuer_keys import BACKOFF, BACKOFF_MOST, REFRESH, IssuerKeys
from .listener_tls import ListenerTls
from .request_queue import RequestQueue
from .request_server import RequestServer
from .sasl_server import ListenerSasl, Logins, sasl_rows

INTER_BROKER_QUEUE = 2**31 - 1
"""Requests of brokers are bounded for each connection only: see `request_queue.py`."""


class ConnectionBounds(TypedDict):
    """Bounds of open connections: of the broker, of each address, of single addresses."""

    connections_most: int
    per_address_most: int
    overrides: Mapping[str, int]


def connection_bounds(config: BrokerConfig) -> ConnectionBounds:
    """The bounds from the settings of a broker."""
    overrides = config.text("max.connections.per.ip.overrides")
    rows = (row.strip().rpartition(":") for row in overrides.split(",") if row.strip())
    return {
        "connections_most": config.number("max.connections"),
        "per_address_most": config.number("max.connections.per.ip"),
        "overrides": {address: int(most) for address, _, most in rows},
    }


class SocketServer:
    """Serves the APIs of `rows` on `listeners`."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        listeners: Sequence[Listener],
        rows: Iterable[ApiRow],
        *,
        scope: RequestScope = NO_SCOPE,
        authorizer: Authorizer | None = None,
        credentials: Credentials | None = None,
        unanswered_most: int = UNANSWERED_MOST,
        identity: Callable[[], Identity] = Identity,
    ) -> None:
        """`credentials`: whose clients log in by SCRAM; `identity`: which node of which cluster this is."""
        self.times = RequestTimes()
        """How long the requests of all listeners took."""
        self._inter_broker = inter_broker_listener(listeners)
        self._max_frame_bytes = config.number("socket.request.max.bytes")
        self._config = config
        self._tls = ListenerTls(host, config, listeners)
        self._quotas = quotas = ConnectionQuotas(**connection_bounds(config))
        clients_queue = RequestQueue(config.number("queued.max.requests"))
        # a single listener serves clients too, so the bound of clients applies to it
        brokers_queue = RequestQueue(INTER_BROKER_QUEUE) if len(listeners) > 1 else clients_queue
        apis = (*rows, *sasl_rows())
        release = RELEASES.get(config.text("harrow.as.version"))
        # what every listener names: no API that only brokers send has a feature
        self.features: tuple[Feature, ...] = ApiTable(apis, release=release).features()
        self._host = host
        self._mechanisms: dict[str, ListenerMechanisms] = {}
        self._credentials = NoCredentials() if credentials is None else credentials
        self._servers = {
            listener.name: RequestServer(
                host,
                ApiTable(apis, inter_broker=listener.inter_broker, identity=identity, release=release),
                listener,
                times=self.times,
                quotas=quotas,
                queue=brokers_queue if listener.inter_broker else clients_queue,
                scope=scope,
                authorizer=authorizer,
                names=PrincipalNames(str(config.of_listener(listener.name, "ssl.principal.mapping.rules"))),
                unanswered_most=unanswered_most,
                idle_ms_max=config.number("connections.max.idle.ms"),
                sasl=self._sasl_of(listener) if listener.has_sasl else None,
            )
            for listener in listeners
        }
        assert len(self._servers) == len(listeners), f"two listeners of one name: {listeners}"

    def _sasl_of(self, listener: Listener) -> ListenerSasl:
        host = self._host
        mechanisms = ListenerMechanisms(
            config=self._config,
            listener=listener,
            credentials=self._credentials,
            random=host.random,
            now_ms=host.clock.wall_ms,
            token_expired=host.network.access.token_expired,
        )
        mechanisms.check()
        self._mechanisms[listener.name] = mechanisms
        keys: IssuerKeys | None = None
        if mechanisms.has_signed_tokens:
            refresh, backoff, backoff_most = map(mechanisms.time_ms, (REFRESH, BACKOFF, BACKOFF_MOST))
            keys = IssuerKeys(host, mechanisms.keys_url, (refresh, backoff, backoff_most))
            mechanisms = replace(mechanisms, key=keys.key)
        return ListenerSasl(
            mechanisms=mechanisms,
            logins=Logins(host),
            failure_delay_ms=self._config.number("connection.failed.authentication.delay.ms"),
            frame_bytes_most=self._config.number("sasl.server.max.receive.size"),
            ready=None if keys is None else keys.ready,
        )

    def settings_changed(self) -> None:
        """Use the bounds of connections, and the keys of TLS, that the settings of the broker have now."""
        self._quotas.change(**connection_bounds(self._config))
        self._tls.read_again(self._renew)

    def _renew(self, listener: Listener, tls: TlsOptions) -> None:
        self._servers[listener.name].renew(tls)

    def inter_broker_tls(self) -> TlsOptions | None:
        """The TLS of links to other brokers; None where the inter-broker listener has none."""
        return self._tls.of(self._inter_broker)

    async def start_inter_broker(self) -> None:
        """Serve the inter-broker listener."""
        await self._start(self._servers[self._inter_broker.name])

    async def start_others(self) -> None:
        """Serve every other listener."""
        for server in self._servers.values():
            if not server.inter_broker:
                await self._start(server)

    async def _start(self, server: RequestServer) -> None:
        await server.start(max_frame_bytes=self._max_frame_bytes, tls=self._tls.begin(server.listener))

    def close(self) -> None:
        """Accept no more and end every connection; responses that were given still leave."""
        for server in self._servers.values():
            server.close()

    def logins(self) -> Iterator[tuple[str, int, int]]:
        """`(listener, logins, failed logins)` of each listener with SASL."""
        for name, server in self._servers.items():
            if server.sasl is not None:
                yield name, server.sasl.logins.succeeded, server.sasl.logins.failed

    def close_connections(self, user: str | None) -> int:
        """End the connections of a user; None: those of all clients on listeners with TLS. Return how many there were.

        Connections of other brokers stay.
        """
        if user is not None:
            principal = Principal(USER_TYPE, user)
            return sum(server.close_connections(principal) for server in self._servers.values())
        with_tls = (row for row in self._servers.values() if self._tls.of(row.listener) is not None)
        return sum(server.close_connections(None) for server in with_tls)

    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """What an observer may know of certificates, and of the passwords of PLAIN by user, by listener."""
        tls = {name: self._tls.of(server.listener) for name, server in self._servers.items()}
        users = {name: mechanisms.plain_users() for name, mechanisms in self._mechanisms.items()}
        return {
            "certificates": {name: of_certificate(found.chain) for name, found in tls.items() if found is not None},
            "plain": {
                name: {user: of_secret(password.encode()) for user, password in row.items()}
                for name, row in users.items()
                if row
            },
        }

    def connections(self) -> Iterator[tuple[str, int]]:
        """`(listener, open connections)` of each listener."""
        for name, server in self._servers.items():
            yield name, server.connections
