"""The backend `apache` as faults see it: processes by signals, links and requests at the proxy."""

from __future__ import annotations

from ..choice import APACHE
from ..fault_clients import BESIDE_BROKERS
from ..foreign_system import ForeignBroker, ForeignSystem
from ..local import LocalProcess
from ..strangers import StrangerConnections
from .kafka_cluster import NO_REGISTRY, KafkaCluster

CAPABILITIES = frozenset(
    {"process", "pause", "connections", "client-links", "half-open", "responses", "reassignments"} | BESIDE_BROKERS
)
RELAYED = frozenset({"links"})
"""Where the links between the nodes pass the proxy."""


class KafkaBroker(LocalProcess, ForeignBroker):
    """One node's process, and what the proxy does before it."""

    def __init__(self, cluster: KafkaCluster, node: int) -> None:
        LocalProcess.__init__(self, cluster.brokers[node])
        ForeignBroker.__init__(self, lambda op, **fields: cluster.control(node, op, **fields))
        self._address = cluster.brokers[node].address

    def fill_connections(self, most: int) -> StrangerConnections:
        """Connect to it until it serves no further connection."""
        return StrangerConnections(self._address, most)


class KafkaSystem(ForeignSystem):
    """A `KafkaCluster` as the fault layer's `System`."""

    def __init__(self, cluster: KafkaCluster, backend: str = APACHE) -> None:
        ForeignSystem.__init__(self, cluster, NO_REGISTRY)
        self.backend = backend
        self.capabilities = CAPABILITIES | (RELAYED if cluster.relayed else frozenset[str]())
        self._brokers = {node: KafkaBroker(cluster, node) for node in cluster.brokers}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    def broker(self, node: int) -> KafkaBroker:
        """Return one broker."""
        return self._brokers[node]
