"""The backend `apache` as faults see it: processes by signals, links and requests at the proxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harrow.faults.errors import CapabilityError
from harrow.faults.system import HasTraffic, ProcessControl

from ...backend_choice import APACHE
from ..knobs import HostKnobs, HostRule
from ..local import LocalProcess
from ..local_traffic import AcknowledgedTraffic
from ..operator_requests import OperatorRequests
from .kafka_cluster import NO_REGISTRY, KafkaCluster

if TYPE_CHECKING:
    from harrow.cluster.view import ClusterView

CAPABILITIES = frozenset(
    {"process", "pause", "client-links", "half-open", "responses", "reassignments"}
)
RELAYED = frozenset({"links"})
"""Where the links between the nodes pass the proxy."""


class KafkaBroker(LocalProcess, HostKnobs):
    """One node's process, and what the proxy does before it."""

    def __init__(self, cluster: KafkaCluster, node: int) -> None:
        LocalProcess.__init__(self, cluster.brokers[node])
        HostKnobs.__init__(self, lambda op, **fields: cluster.control(node, op, **fields))

    def lose_power(self, *, seed: str, kept_fraction: float | None = None) -> None:
        """Kafka keeps no journal of unsynced writes."""
        raise CapabilityError(
            f"no power loss ({seed}, {kept_fraction}): what Kafka has not fsynced is not recorded"
        )

    def power_lost(self) -> Mapping[str, int] | None:
        """No power was lost."""
        return None

    def wipe(self) -> None:
        """Harrow does not own Kafka's data folders."""
        raise CapabilityError("no wipe: the data folders are Kafka's")

    def wiped(self) -> int | None:
        """Nothing was wiped."""
        return None

    def damage_disk(
        self, *, damages: Sequence[str], partitions: Sequence[str], seed: str, clean: bool
    ) -> None:
        """Kafka's files are not Harrow's."""
        raise CapabilityError(f"no {damages} in the files of {partitions} ({seed}, {clean})")

    def disk_damaged(self) -> Mapping[str, Any] | None:
        """Nothing was damaged."""
        return None

    def limit_descriptors(self) -> HostRule:
        """Not possible here."""
        raise CapabilityError("the limit of open files of this broker's process is not Harrow's")

    def slow_disk(self, delay_ms: int) -> HostRule:
        """Kafka's disk is the machine's."""
        raise CapabilityError(f"Kafka's disk cannot be slowed down by {delay_ms} ms")


class KafkaSystem(OperatorRequests):
    """A `KafkaCluster` as the fault layer's `System`."""

    def __init__(self, cluster: KafkaCluster, backend: str = APACHE) -> None:
        OperatorRequests.__init__(self, lambda: cluster.bootstrap_servers)
        self.backend = backend
        self._cluster = cluster
        self.capabilities = CAPABILITIES | (RELAYED if cluster.relayed else frozenset[str]())
        self._brokers = {node: KafkaBroker(cluster, node) for node in cluster.brokers}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    @property
    def session_timeout_ms(self) -> int:
        """`broker.session.timeout.ms`."""
        return self._cluster.session_timeout_ms

    @property
    def offsets_partitions(self) -> int:
        """`offsets.topic.num.partitions`."""
        return self._cluster.config.number("offsets.topic.num.partitions")

    def broker(self, node: int) -> KafkaBroker:
        """Return one broker."""
        return self._brokers[node]

    @property
    def registry(self) -> ProcessControl:
        """There is none."""
        raise CapabilityError(NO_REGISTRY)

    def expire_session(self, node: int) -> int:
        """There is no registry."""
        raise CapabilityError(f"no session of broker {node} to end: {NO_REGISTRY}")

    def depose_controller(self) -> None:
        """There is no registry."""
        raise CapabilityError(NO_REGISTRY)

    def describe(self) -> ClusterView:
        """Ask a running broker."""
        return self._cluster.describe()

    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector over the proxy's taps."""
        return AcknowledgedTraffic(self._cluster.folder)
