"""The backend `external` as faults see it: links of clients and requests at the proxy, and no process."""

from __future__ import annotations

from harrow.faults.system import RUNNING, ProcessStatus

from ..choice import EXTERNAL
from ..fault_clients import BESIDE_BROKERS
from ..foreign_system import ForeignBroker, ForeignSystem
from ..strangers import StrangerConnections
from .external_cluster import NO_REGISTRY, ExternalCluster

CAPABILITIES = frozenset({"connections", "client-links", "half-open", "responses"}) | BESIDE_BROKERS


class ExternalBrokerControl(ForeignBroker):
    """What the proxy does before one broker."""

    def __init__(self, cluster: ExternalCluster, node: int) -> None:
        super().__init__(lambda op, **fields: cluster.control(node, op, **fields))
        self._broker = cluster.brokers[node]

    def status(self) -> ProcessStatus:
        """Running: faults act on the proxy, which lives. Which brokers are dead is in the view of the cluster."""
        return ProcessStatus(state=RUNNING, incarnation=self._broker.incarnations)

    def fill_connections(self, most: int) -> StrangerConnections:
        """Connect to it until it serves no further connection."""
        return StrangerConnections(self._broker.address, most)

    def kill(self) -> None:
        """Harrow cannot."""
        self._broker.kill()

    def terminate(self) -> None:
        """Harrow cannot."""
        self._broker.terminate()

    def pause(self) -> None:
        """Harrow cannot."""
        self._broker.pause()

    def resume(self) -> None:
        """Harrow cannot."""
        self._broker.resume()

    def start(self) -> None:
        """Harrow cannot."""
        self._broker.start()


class ExternalSystem(ForeignSystem):
    """An `ExternalCluster` as the fault layer's `System`."""

    backend = EXTERNAL
    capabilities = CAPABILITIES

    def __init__(self, cluster: ExternalCluster) -> None:
        ForeignSystem.__init__(self, cluster, NO_REGISTRY)
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
