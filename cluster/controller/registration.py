"""A broker's claim to exist: `/brokers/ids/N`, ephemeral, and the registry's permanent nodes.

Owns: `register`, the JSON of a registration, `BrokerInfo`. The transaction that created the node is the
**broker epoch** (D6, KIP-380): each registration has a larger one than all before it.

A node that an older session of the same broker left behind (the process was killed and is back before its
session ended) is replaced at once, by a conditional transaction, instead of being waited for; the
controller sees the new epoch and treats it as a failure followed by a start.

What may fail: RegistryError when the registry stays out of reach. Source: Kafka's KafkaZkClient.registerBroker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ..ids import BrokerEpoch, NodeId
from ..registry import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    RegistryClient,
    RegistryUnavailableError,
    SessionExpiredError,
    Stat,
)
from ..registry.paths import BROKER_IDS, PERSISTENT, broker_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one listener of a broker is reached."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A live broker as its registration describes it."""

    node_id: NodeId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint:
        """The endpoint of one of its listeners; KeyError where it has none of that name."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        raise KeyError(f"broker {self.node_id} has no listener {listener!r}")


def registration_json(
    host: str, ports: Mapping[str, int], wall_ms: int, rack: str | None = None
) -> str:
    """The data of `/brokers/ids/N`; `ports` by listener, in the order in which they are written."""
    value = {
        "version": 5,
        "host": host,
        "port": ports.get("clients", -1),
        "endpoints": [f"{name.upper()}://{host}:{port}" for name, port in ports.items()],
        "timestamp": str(wall_ms),
        "rack": rack,
    }
    return json.dumps(value, separators=(",", ":"))


def broker_info(node_id: NodeId, data: str, stat: Stat) -> BrokerInfo:
    """What a registration says."""
    value = json.loads(data)
    endpoints: list[Endpoint] = []
    for text in value["endpoints"]:
        listener, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        endpoints.append(Endpoint(listener=listener.lower(), host=host, port=int(port)))
    return BrokerInfo(
        node_id=node_id,
        epoch=BrokerEpoch(stat.czxid),
        endpoints=tuple(endpoints),
        rack=value.get("rack"),
    )


async def register(
    registry: RegistryClient,
    node_id: NodeId,
    host: str,
    ports: Mapping[str, int],
    *,
    rack: str | None = None,
) -> BrokerEpoch:
    """Create the broker's node in this client's session; the epoch of the registration.

    Waits for the registry while it cannot be reached, for a broker without registration does nothing.
    """
    data = registration_json(host, ports, registry.host.clock.wall_ms(), rack)
    while True:
        await registry.until_connected()
        try:
            await make_persistent_nodes(registry)
            return await _register(registry, broker_path(node_id), data)
        except (RegistryUnavailableError, SessionExpiredError):
            continue  # whether it was applied is read from the node's owner


async def _register(registry: RegistryClient, path: str, data: str) -> BrokerEpoch:
    create = Create(path, data, ephemeral=True)
    while True:
        found = await registry.exists(path)
        try:
            if found is None:
                created = await registry.create(path, data, ephemeral=True)
                return BrokerEpoch(created.czxid)
            if found.ephemeral_owner == registry.session_id:
                return BrokerEpoch(found.czxid)
            # an older session of this very broker: the supervisor runs one process for each id
            _, created = await registry.multi([Delete(path, found.version), create])
            return BrokerEpoch(created.czxid)
        except (NodeExistsError, NoNodeError, BadVersionError):
            continue  # the older session ended just now


async def make_persistent_nodes(registry: RegistryClient) -> None:
    """Make sure that every permanent node exists (Kafka's makeSurePersistentPathExists)."""
    if await registry.exists(BROKER_IDS) is not None and await registry.exists(PERSISTENT[-1]):
        return
    for path in PERSISTENT:
        await registry.ensure(path)
