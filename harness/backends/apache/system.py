"""The backend `apache` as faults see it: processes by signals, links and requests at the proxy."""

from __future__ import annotations

from harrow.faults.controls import PeerKind

from ...requests.operator import Operator
from ..choice import APACHE
from ..foreign_system import PASSING, ForeignBroker, ForeignSystem
from ..local import LocalProcess
from .kafka_cluster import KafkaCluster

CAPABILITIES = PASSING | {"process", "reassignments"}
"""What `harrow backends` says without a cluster."""
RELAYED = frozenset({"links"})
"""The same, where the links between the nodes pass the proxy."""


class KafkaSystem(ForeignSystem):
    """A `KafkaCluster` as the fault layer's `System`."""

    def __init__(self, cluster: KafkaCluster, backend: str = APACHE) -> None:
        ForeignSystem.__init__(self, cluster)
        self.backend = backend
        self.operator = Operator(lambda: cluster.own_servers)
        self._brokers = {node: _broker(cluster, node) for node in cluster.brokers}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    def broker(self, node: int) -> ForeignBroker:
        """Return one broker."""
        return self._brokers[node]


def _broker(cluster: KafkaCluster, node: int) -> ForeignBroker:
    peers = frozenset({PeerKind.BROKER, PeerKind.CLIENT} if cluster.relayed else {PeerKind.CLIENT})
    managed = cluster.brokers[node]
    broker = ForeignBroker(node, lambda op, **fields: cluster.control(node, op, **fields), managed.address, peers)
    broker.process = LocalProcess(managed)
    return broker
