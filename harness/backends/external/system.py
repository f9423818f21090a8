"""The backend `external` as faults see it: links of clients and requests at the proxy, and no process."""

from __future__ import annotations

from harrow.faults.controls import RUNNING, PeerKind, ProcessStatus

from ..choice import EXTERNAL
from ..foreign_system import PASSING, ForeignBroker, ForeignSystem
from .external_cluster import ExternalCluster

CAPABILITIES = PASSING
"""What `harrow backends` says without a cluster."""


class ExternalBrokerControl(ForeignBroker):
    """What the proxy does before one broker."""

    def __init__(self, cluster: ExternalCluster, node: int) -> None:
        self._broker = cluster.brokers[node]
        super().__init__(
            node,
            lambda op, **fields: cluster.control(node, op, **fields),
            self._broker.address,
            frozenset({PeerKind.CLIENT}),
        )

    def status(self) -> ProcessStatus:
        """Running: faults act on the proxy, which lives. Which brokers are dead is in the view of the cluster."""
        return ProcessStatus(state=RUNNING, incarnation=self._broker.incarnations)


class ExternalSystem(ForeignSystem):
    """An `ExternalCluster` as the fault layer's `System`."""

    backend = EXTERNAL

    def __init__(self, cluster: ExternalCluster) -> None:
        ForeignSystem.__init__(self, cluster)
        self._cluster = cluster
        self._brokers: dict[int, ExternalBrokerControl] = {}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id, also of brokers that appeared later."""
        return tuple(sorted(self._cluster.brokers))

    def broker(self, node: int) -> ExternalBrokerControl:
        """Return one broker."""
        if node not in self._brokers:
            self._brokers[node] = ExternalBrokerControl(self._cluster, node)
        return self._brokers[node]
