"""The proxy's process: all foreign brokers of one cluster, also those that appear while it runs.

Owns: the broker proxies by node id, the addresses that responses get, and what the taps of all brokers share. A node
id that a response names for the first time gets a host, a folder and a port of its own before the response leaves.

Options: `brokers`, a list of `{"node_id", "address": [host, port], "upstream": [host, port]}`, each optionally with
`own`: `{"address", "upstream"}` of the listener for Harrow's own clients; `keystore`, a file in PEM with the key and
the certificates with which clients speak TLS (empty: without TLS); `truststore`, a file in PEM: then clients show
certificates that come from it, and the brokers see them (`client_identities.py`); and `peer_links`, a list of
`{"source": node_id, "target": node_id, "address", "upstream"}`: where connections of one broker to another arrive
(`peer_links.py`).
Control operations of the process's own socket: `proxy`, the brokers as JSON.

What may fail: ConfigError where a port cannot be bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..broker_folder import broker_name
from ..events.links import ProxiedBroker
from ..host.seam import ProcessHost, Promise, TlsOptions
from ..listeners import Address
from ..ports import LOOPBACK, ReservedPort
from ..security.tls import pem_blocks
from .broker_proxy import BrokerProxy, OwnPort
from .client_identities import ClientIdentities
from .machine import MakeHost
from .peer_links import PeerListener, PeerSource
from .tap_transactions import TransactionViews
from .topic_names import TopicNames


class ProxyProcess:
    """All brokers behind one proxy."""

    def __init__(self, host: ProcessHost, make_host: MakeHost, options: Mapping[str, Any]) -> None:
        self._host = host
        self._make_host = make_host
        self._brokers: dict[int, BrokerProxy] = {}
        self._names = TopicNames()
        self._transactions = TransactionViews()
        self._ports: list[ReservedPort] = []
        self._failed: Promise[None] = host.tasks.promise()
        self._tls = _tls_of(host, str(options.get("keystore", "")), truststore := str(options.get("truststore", "")))
        self._identities = _identities_of(host, truststore)
        for row in options["brokers"]:
            self._add(int(row["node_id"]), Address(*row["upstream"]), Address(*row["address"]), row.get("own"))
        self._peer_listeners = self._listeners_for_peers(options.get("peer_links", ()))
        host.control.register("proxy", self._op_proxy)

    async def start(self) -> None:
        """Start the proxies of all brokers; returns when each has tried to reach its broker."""
        for listener in self._peer_listeners:
            listener.start()
        for broker in list(self._brokers.values()):
            await broker.start()

    async def failed(self) -> None:
        """Wait for an error that ends the process: there is none."""
        await self._failed

    async def stop(self) -> None:
        """Stop all proxies."""
        for broker in self._brokers.values():
            await broker.stop()
        for port in self._ports:
            port.release()

    def address_of(self, node_id: int, upstream: Address) -> Address | None:
        """The proxy's address of a broker that a response names; None for no broker (an error's -1)."""
        if node_id < 0 or not upstream.host:
            return None
        found = self._brokers.get(node_id)
        if found is None:
            port = ReservedPort()
            self._ports.append(port)
            found = self._add(node_id, upstream, Address(LOOPBACK, port.number))
            self._host.tasks.spawn(found.start(), name=f"proxy-{node_id}")
        return found.address

    def own_address_of(self, node_id: int, _upstream: Address) -> Address | None:
        """The same on connections of Harrow's own clients; their brokers are all known from the start."""
        found = self._brokers.get(node_id)
        return None if found is None or found.own is None else found.own.address

    def _add(
        self, node_id: int, upstream: Address, address: Address, own: Mapping[str, Any] | None = None
    ) -> BrokerProxy:
        host = self._make_host(broker_name(node_id))
        broker = self._brokers[node_id] = BrokerProxy(
            host,
            node_id,
            upstream=upstream,
            address=address,
            address_of=self.address_of,
            names=self._names,
            transactions=self._transactions,
            tls=self._tls,
            identities=self._identities,
            own=None
            if own is None
            else OwnPort(Address(*own["address"]), Address(*own["upstream"]), self.own_address_of),
        )
        event = ProxiedBroker(node_id=node_id, upstream=str(upstream), address=str(address))
        self._host.trace.emit(event)
        return broker

    def _listeners_for_peers(self, rows: Iterable[Mapping[str, Any]]) -> list[PeerListener]:
        """Return the listeners of all brokers for the other brokers: one for each address of a broker itself."""
        sources: dict[tuple[int, Address], dict[int, PeerSource]] = {}
        for row in rows:
            source = int(row["source"])
            found = PeerSource(source, self._brokers[source].host, Address(*row["address"]))
            sources.setdefault((int(row["target"]), Address(*row["upstream"])), {})[source] = found
        return [
            PeerListener(target, self._brokers[target].host, upstream, found)
            for (target, upstream), found in sources.items()
        ]

    def _op_proxy(self, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "brokers": [
                {
                    "node_id": node_id,
                    "address": list(broker.address),
                    "upstream": list(broker.upstream),
                    "open": broker.is_open,
                }
                for node_id, broker in sorted(self._brokers.items())
            ]
        }


def _tls_of(host: ProcessHost, keystore: str, truststore: str) -> TlsOptions | None:
    """The TLS of clients, whose key and certificates are in this file; None without one."""
    if not keystore:
        return None
    blocks = pem_blocks(host.disk.read(keystore).decode())
    trusted = host.disk.read(truststore).decode() if truststore else ""
    needed = "required" if truststore else "none"
    return TlsOptions(
        key=blocks.get("KEY", ""), chain=blocks.get("CERTIFICATE", ""), trusted=trusted, client_auth=needed
    )


def _identities_of(host: ProcessHost, truststore: str) -> ClientIdentities | None:
    """The keys of clients, beside the truststore; None where clients show no certificates."""
    if not truststore:
        return None
    folder = truststore.rpartition("/")[0]
    return ClientIdentities(folder, host.disk.read(truststore).decode(), host.disk.read)
