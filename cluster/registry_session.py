"""The registry session of a broker: with Harrow's registry, or with a ZooKeeper ensemble (`zookeeper.connect`).

Owns: the choice between the two clients, which have one interface.
What may fail: RegistryError when `zookeeper.connect` is set and kazoo is not installed.
"""

from __future__ import annotations

from .config import BrokerConfig
from .host.seam import Host
from .ids import NodeId
from .network.kazoo_link import KazooLink
from .registry import RegistryClient, ZooKeeperClient


def registry_session(host: Host, node_id: NodeId, config: BrokerConfig, address: tuple[str, int]) -> RegistryClient:
    """The client of broker `node_id`; `address` is that of Harrow's registry. `start` opens the session."""
    name = f"broker {node_id}"
    session_ms = config.number("zookeeper.session.timeout.ms")
    connection_ms = config.number("zookeeper.connection.timeout.ms")
    connect = config.text("zookeeper.connect")
    if connect:
        link = KazooLink(connect, session_ms)
        return ZooKeeperClient(host, link, name, session_ms, connection_timeout_ms=connection_ms)
    return RegistryClient(host, address, name, session_ms, connection_timeout_ms=connection_ms)
