"""Where each node listens, and how its connections to other nodes pass the proxy.

A node has three listeners on the loopback address: for clients, for other brokers, and for the quorum's voters; where
clients need credentials, a fourth one for Harrow's own clients. Those of brokers and voters are named by a host name
of the node (`kafka-2`). Each node's JVM has a hosts file of its own, in which its own
name is the loopback address and the name of another node is an address of this pair, 127.77.<source>.<target>, at which
the proxy listens. So the proxy knows by the address which broker connects to which, for replication and for the quorum.

Only Linux has all of 127.0.0.0/8. Elsewhere (`can_relay` is false) the nodes reach each other directly.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from harrow.cluster.listeners import HARROW, Address
from harrow.cluster.ports import LOOPBACK
from harrow.cluster.proxy_supervisor import PeerLink

NETWORK = "127.77"
NODES_MOST = 254


class NodeListeners(NamedTuple):
    """The addresses at which one node listens."""

    clients: Address
    brokers: Address
    voters: Address
    harrow: Address | None = None
    """For Harrow's own clients, where others need credentials."""

    @property
    def plain(self) -> Address:
        """Where Harrow asks the node itself."""
        return self.harrow or self.clients


@functools.cache
def can_relay() -> bool:
    """Whether this machine has the addresses of pairs of nodes."""
    with socket.socket() as probe:
        try:
            probe.bind((f"{NETWORK}.1.2", 0))
        except OSError:
            return False
    return True


def host_name(node: int) -> str:
    """The name by which other nodes know a node."""
    return f"kafka-{node}"


def hosts_file(source: int, nodes: Iterable[int]) -> str:
    """Return the hosts file of one node's JVM, which is all that it resolves."""
    rows = [(LOOPBACK, "localhost"), (LOOPBACK, socket.gethostname())]
    rows += [(_pair(source, target), host_name(target)) for target in nodes]
    return "".join(f"{address} {name}\n" for address, name in rows)


def peer_links(listeners: Mapping[int, NodeListeners]) -> list[PeerLink]:
    """Return where the connections between the nodes arrive, and where they lead."""
    return [
        PeerLink(source, target, Address(_pair(source, target), upstream.port), upstream)
        for target, own in listeners.items()
        for upstream in (own.brokers, own.voters)
        for source in listeners
        if source != target
    ]


def listener_settings(
    node: int, listeners: Mapping[int, NodeListeners], *, relayed: bool, protocol: str = "PLAINTEXT"
) -> dict[str, str]:
    """Return the settings of one node's listeners; `relayed`: nodes name each other by host names.

    `protocol`: that of clients, by Kafka's name.
    """

    def named(other: int, address: Address) -> str:
        return f"{host_name(other)}:{address.port}" if relayed else str(address)

    own = listeners[node]
    brokers = f"CLIENTS://{own.clients},BROKERS://{named(node, own.brokers)}"
    protocols = f"CLIENTS:{protocol},BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
    if own.harrow is not None:
        brokers = f"{brokers},{HARROW}://{own.harrow}"
        protocols = f"{protocols},{HARROW}:PLAINTEXT"
    return {
        "listeners": f"{brokers},CONTROLLER://{named(node, own.voters)}",
        "advertised.listeners": brokers,
        "inter.broker.listener.name": "BROKERS",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": protocols,
        "controller.quorum.voters": ",".join(
            f"{other}@{named(other, address.voters)}" for other, address in listeners.items()
        ),
    }


def _pair(source: int, target: int) -> str:
    return LOOPBACK if source == target else f"{NETWORK}.{source}.{target}"
