"""The registration of a broker: the ephemeral node `/brokers/ids/N`, and the registry's permanent nodes.

Owns: `register`, the JSON of a registration (version 5, as Kafka 3.9 writes it: every advertised endpoint with its
security protocol), `BrokerInfo`. The transaction that creates the node is the **broker epoch** (D6, KIP-380):
each registration of a broker has a larger epoch than all registrations before it.

When an older session of the same broker left its node behind (the process was killed and has started again before the
session ended), the node is replaced at once by a conditional transaction. The controller sees the new epoch and
treats it as a failure followed by a start.

What may fail: RegistryError when the registry stays out of reach. Source: Kafka's KafkaZkClient.registerBroker,
BrokerIdZNode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ..ids import BrokerEpoch, NodeId
from ..listeners import Address, Listener, SecurityProtocol, parse_address
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
    """The advertised address of one listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    def __str__(self) -> str:
        return f"{self.listener}://{Address(self.host, self.port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A live broker as its registration describes it."""

    node_id: NodeId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint:
        """The endpoint of the listener of that name; KeyError when the broker advertises none."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        raise KeyError(f"broker {self.node_id} has no listener {listener!r}")


def endpoints_of(listeners: Sequence[Listener]) -> tuple[Endpoint, ...]:
    """The endpoints that a broker with these listeners advertises."""
    return tuple(
        Endpoint(
            listener=listener.name,
            host=listener.advertised.host,
            port=listener.advertised.port,
            security_protocol=listener.security_protocol,
        )
        for listener in listeners
        if listener.advertised is not None
    )


def registration_json(endpoints: Sequence[Endpoint], wall_ms: int, rack: str | None = None) -> str:
    """The data of `/brokers/ids/N`; `host` and `port` are those of the first PLAINTEXT endpoint, for old clients."""
    assert endpoints, "a broker without endpoints cannot be reached"
    assert all(row.port > 0 for row in endpoints), f"an endpoint without a port: {endpoints}"
    plaintext = [row for row in endpoints if row.security_protocol is SecurityProtocol.PLAINTEXT]
    value: dict[str, object] = {
        "version": 5,
        "host": plaintext[0].host if plaintext else None,
        "port": plaintext[0].port if plaintext else -1,
        "endpoints": [str(row) for row in endpoints],
        "listener_security_protocol_map": {row.listener: row.security_protocol.name for row in endpoints},
        "jmx_port": -1,
        "features": {},
        "timestamp": str(wall_ms),
    }
    if rack is not None:
        value["rack"] = rack
    return json.dumps(value, separators=(",", ":"))


def broker_info(node_id: NodeId, data: str, stat: Stat) -> BrokerInfo:
    """Read a registration; before version 4 it has no security protocols, and each endpoint is PLAINTEXT."""
    value = json.loads(data)
    protocols: dict[str, str] = value.get("listener_security_protocol_map", {})
    endpoints: list[Endpoint] = []
    for text in value["endpoints"]:
        name, address = parse_address(text)
        protocol = SecurityProtocol[protocols.get(name, SecurityProtocol.PLAINTEXT.name)]
        endpoints.append(Endpoint(listener=name, host=address.host, port=address.port, security_protocol=protocol))
    return BrokerInfo(
        node_id=node_id, epoch=BrokerEpoch(stat.czxid), endpoints=tuple(endpoints), rack=value.get("rack")
    )


async def register(
    registry: RegistryClient, node_id: NodeId, listeners: Sequence[Listener], *, rack: str | None = None
) -> BrokerEpoch:
    """Create the broker's node in this client's session; returns the epoch of the registration.

    Waits while the registry cannot be reached, because a broker without a registration has nothing to do.
    """
    data = registration_json(endpoints_of(listeners), registry.host.clock.wall_ms(), rack)
    while True:
        await registry.until_connected()
        try:
            await make_persistent_nodes(registry)
            return await _register(registry, broker_path(node_id), data)
        except (RegistryUnavailableError, SessionExpiredError):
            continue  # the owner of the node says whether the request was applied


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
            # an older session of this broker owns the node: the supervisor runs one process for each id
            _, created = await registry.multi([Delete(path, found.version), create])
            return BrokerEpoch(created.czxid)
        except (NodeExistsError, NoNodeError, BadVersionError):
            continue  # the older session ended meanwhile


async def make_persistent_nodes(registry: RegistryClient) -> None:
    """Make sure that every permanent node exists (Kafka's makeSurePersistentPathExists)."""
    if await registry.exists(BROKER_IDS) is not None and await registry.exists(PERSISTENT[-1]):
        return
    for path in PERSISTENT:
        await registry.ensure(path)
