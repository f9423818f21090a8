"""The backend `apache` as faults see it: processes by signals, links and requests at the proxy."""

from __future__ import annotations

from ...backend_choice import APACHE
from ..foreign_system import ForeignBroker, ForeignSystem
from ..local import LocalProcess
from .kafka_cluster import NO_REGISTRY, KafkaCluster

CAPABILITIES = frozenset(
    {"process", "pause", "client-links", "half-open", "responses", "reassignments"}
)
RELAYED = frozenset({"links"})
"""Where the links between the nodes pass the proxy."""


class KafkaBroker(LocalProcess, ForeignBroker):
    """One node's process, and what the proxy does before it."""

    def __init__(self, cluster: KafkaCluster, node: int) -> None:
        LocalProcess.__init__(self, cluster.brokers[node])
        ForeignBroker.__init__(self, lambda op, **fields: cluster.control(node, op, **fields))


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
