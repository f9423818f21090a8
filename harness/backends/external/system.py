"""The backend `external` as faults see it: links of clients and requests at the proxy, and no process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harrow.faults.errors import CapabilityError
from harrow.faults.system import RUNNING, HasTraffic, ProcessControl, ProcessStatus

from ...backend_choice import EXTERNAL
from ..knobs import HostKnobs, HostRule
from ..local_traffic import AcknowledgedTraffic
from ..operator_requests import OperatorRequests
from .external_cluster import NO_REGISTRY, ExternalCluster

if TYPE_CHECKING:
    from harrow.cluster.view import ClusterView

CAPABILITIES = frozenset({"client-links", "half-open", "responses"})


class ExternalBrokerControl(HostKnobs):
    """What the proxy does before one broker."""

    def __init__(self, cluster: ExternalCluster, node: int) -> None:
        super().__init__(lambda op, **fields: cluster.control(node, op, **fields))
        self._broker = cluster.brokers[node]

    def status(self) -> ProcessStatus:
        """Running: faults act on the proxy, which lives. Which brokers are dead is in the view of the cluster."""
        return ProcessStatus(state=RUNNING, incarnation=self._broker.incarnations)

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

    def lose_power(self, *, seed: str, kept_fraction: float | None = None) -> None:
        """Harrow cannot."""
        raise CapabilityError(
            f"no power loss ({seed}, {kept_fraction}): the broker is not Harrow's"
        )

    def power_lost(self) -> Mapping[str, int] | None:
        """No power was lost."""
        return None

    def wipe(self) -> None:
        """Harrow cannot."""
        raise CapabilityError("no wipe: the broker is not Harrow's")

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
        """Harrow cannot."""
        raise CapabilityError(
            f"the disk cannot be slowed down by {delay_ms} ms: it is not Harrow's"
        )


class ExternalSystem(OperatorRequests):
    """An `ExternalCluster` as the fault layer's `System`."""

    backend = EXTERNAL
    capabilities = CAPABILITIES

    def __init__(self, cluster: ExternalCluster) -> None:
        OperatorRequests.__init__(self, lambda: cluster.bootstrap_servers)
        self._cluster = cluster
        self._brokers: dict[int, ExternalBrokerControl] = {}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id, also of brokers that appeared later."""
        return tuple(sorted(self._cluster.brokers))

    @property
    def session_timeout_ms(self) -> int:
        """As the brokers have it, else Kafka's default."""
        return self._cluster.session_timeout_ms

    @property
    def offsets_partitions(self) -> int:
        """`offsets.topic.num.partitions`."""
        return self._cluster.config.number("offsets.topic.num.partitions")

    def broker(self, node: int) -> ExternalBrokerControl:
        """Return one broker."""
        if node not in self._brokers:
            self._brokers[node] = ExternalBrokerControl(self._cluster, node)
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
        """Ask one of the brokers."""
        return self._cluster.describe()

    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector over the proxy's taps."""
        return AcknowledgedTraffic(self._cluster.folder)
