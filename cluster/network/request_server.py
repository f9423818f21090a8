"""The server of one listener: it accepts connections and serves one API table on them.

Owns: the accepting socket of a listener and its open connections (`connection.py` has their rules), as far as the
broker's quotas let it accept (`connection_quotas.py`).
What may fail: `start` where the host has no socket for the listener (ConfigError).
"""

from __future__ import annotations

from ..authorizer import Authorizer, ListenerAuthorizer, Principal
from ..host.seam import Acceptor, FrameHandler, Host, Link, TlsOptions
from ..listeners import Listener, SecurityProtocol
from ..metrics.request_times import RequestTimes
from ..mutants.changing_link import with_mutant
from ..security.certificates import PrincipalNames
from ..wire.api_table import ApiTable
from ..wire.request_facts import NO_SCOPE, RequestScope
from .connection import UNANSWERED_MOST, Connection, ListenerServices
from .connection_quotas import ConnectionQuotas, QuotaConnection
from .idle_connections import IdleWatch
from .request_queue import RequestQueue
from .sasl_server import ListenerSasl, SaslConnection
from .unanswered import UnansweredWatch

FRAME_BYTES_MOST = 104_857_600
"""Kafka's default of socket.request.max.bytes."""


class RequestServer:
    """Serves `table` on `listener`; the servers of one broker share `times`, `quotas` and `queue`."""

    def __init__(
        self,
        host: Host,
        table: ApiTable,
        listener: Listener,
        *,
        times: RequestTimes,
        quotas: ConnectionQuotas,
        queue: RequestQueue,
        scope: RequestScope = NO_SCOPE,
        authorizer: Authorizer | None = None,
        names: PrincipalNames | None = None,
        unanswered_most: int = UNANSWERED_MOST,
        idle_ms_max: int = -1,
        sasl: ListenerSasl | None = None,
    ) -> None:
        """`idle_ms_max`: a connection of a client without traffic for so long is closed; -1: never.

        `sasl`: how clients log in; None where they do not.
        """
        self.sasl = sasl
        self._host = host
        self.listener = listener
        self._quotas = quotas
        self._services = ListenerServices(
            host=host,
            listener=listener,
            table=table,
            authorizer=_default_authorizer(listener) if authorizer is None else authorizer,
            names=PrincipalNames() if names is None else names,
            times=times,
            queue=queue,
            scope=scope,
            on_closed=self._closed,
            unanswered_most=unanswered_most,
        )
        self._connections: dict[Connection, None] = {}
        self._acceptor: Acceptor | None = None
        self._watch = UnansweredWatch(host, lambda: self._connections)
        self._idle = IdleWatch(host, idle_ms_max, self._clients)
        quotas.add(self)

    @property
    def inter_broker(self) -> bool:
        """True for the inter-broker listener."""
        return self.listener.inter_broker

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def start(self, *, max_frame_bytes: int = FRAME_BYTES_MOST, tls: TlsOptions | None = None) -> None:
        """Listen and serve."""
        assert self._acceptor is None, f"{self.listener} is served already"
        self._acceptor = await self._host.network.listen(
            self.listener.name,
            with_mutant(self._accept, self._host.trace),
            max_frame_bytes=max_frame_bytes,
            tls=tls,
        )
        if not self._quotas.may_accept(self):
            self._acceptor.pause()
        if self._host.tap.enabled and not self.inter_broker:
            self._watch.start()
        self._idle.start()

    def renew(self, tls: TlsOptions) -> None:
        """Use other keys of TLS for new connections; ConfigError for unusable ones."""
        if self._acceptor is not None:
            self._acceptor.renew(tls)

    def close(self) -> None:
        """Accept no more and end every connection; responses that were given still leave."""
        self._watch.stop()
        self._idle.stop()
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in list(self._connections):
            connection.close()

    # ---------------------------------------------------------------- quotas

    def open_connections(self) -> list[QuotaConnection]:
        """The open connections, oldest first."""
        return [connection for connection in self._connections if connection.is_open]

    def _clients(self) -> list[Connection]:
        return [row for row in self._connections if row.is_open and row.is_of_client]

    def close_connections(self, principal: Principal | None) -> int:
        """End the open connections of a principal, None: of all clients; return how many there were."""
        found = [row for row in self._connections if row.is_open and row.is_of(principal)]
        for connection in found:
            connection.close_by_operator()
        return len(found)

    def pause_accepting(self) -> None:
        """Let new connections wait in the backlog of the kernel."""
        if self._acceptor is not None:
            self._acceptor.pause()

    def resume_accepting(self) -> None:
        """Accept again."""
        if self._acceptor is not None:
            self._acceptor.resume()

    def _accept(self, link: Link) -> FrameHandler:
        sasl = self.sasl
        connection = Connection(self._services, link) if sasl is None else SaslConnection(self._services, link, sasl)
        if self._quotas.opened(self, connection.address):
            self._connections[connection] = None
            self._services.queue.join(connection)
            return connection
        self._host.trace.log(
            "warning",
            f"closing the link to {link.peer}: {self._quotas.most_of(connection.address)} connections from "
            "its address are open (max.connections.per.ip)",
        )
        link.close(reset=True)  # before it has a handler: no `link_closed` follows
        return connection

    def _closed(self, connection: Connection) -> None:
        del self._connections[connection]
        self._quotas.closed(connection.address)


def _default_authorizer(listener: Listener) -> Authorizer:
    """Without ACLs: a listener that authenticates its clients has let in those that it trusts, as in Kafka."""
    return ListenerAuthorizer(
        trusts_clients=listener.inter_broker and listener.security_protocol is not SecurityProtocol.PLAINTEXT
    )
