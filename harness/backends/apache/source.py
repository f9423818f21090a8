"""A source of Kafka clusters for `Harrow` (`ClusterSource` of `harness/clusters.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.supervisor import cluster_defaults
from harrow.faults.errors import CapabilityError

from .kafka_cluster import KafkaCluster
from .kafka_settings import SESSION_TIMEOUT_MS
from .system import KafkaSystem

if TYPE_CHECKING:
    from harrow.faults.system import System

    from ...running_cluster import RunningCluster
    from .installation import KafkaInstallation

DEFAULTS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
}
"""As for Harrow's own brokers; the session becomes `broker.session.timeout.ms`."""


class KafkaClusters:
    """Starts a new Kafka cluster for each `Harrow` and stops it when the `Harrow` closes."""

    shared = False
    backend = "apache"

    def __init__(
        self, installation: KafkaInstallation, before_start: Callable[[], None] | None = None
    ) -> None:
        self._installation = installation
        self._before_start = before_start

    def acquire(
        self,
        folder: Path,
        *,
        brokers: int,
        config: Mapping[str, object],
        seed: int,
        plants: Sequence[str] = (),
    ) -> KafkaCluster:
        """Start a cluster; when the start fails, no process stays."""
        if plants:
            raise CapabilityError(
                f"the bugs {', '.join(plants)} can be planted in Harrow's own brokers only; use the backend local"
            )
        if self._before_start is not None:
            self._before_start()
        cluster = KafkaCluster(
            self._installation,
            folder=folder / "cluster",
            brokers=brokers,
            config={**cluster_defaults(brokers), **DEFAULTS, **config},
            seed=seed,
        )
        cluster.start()
        return cluster

    def system(self, cluster: RunningCluster) -> System:
        """Return the nodes and the proxy."""
        assert isinstance(cluster, KafkaCluster)
        return KafkaSystem(cluster)

    def release(self, cluster: RunningCluster) -> None:
        """Stop it."""
        cluster.stop()
