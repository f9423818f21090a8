"""A source of Kafka clusters for `Harrow` (`ClusterSource` of `harness/backends/clusters.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.defaults import cluster_defaults

from ..choice import APACHE
from ..clusters import TEST_DEFAULTS, NewClusters, refuse_plants
from .kafka_cluster import KafkaCluster
from .kafka_settings import SESSION_TIMEOUT_MS
from .system import KafkaSystem

if TYPE_CHECKING:
    from harrow.faults.system import System

    from ...running_cluster import RunningCluster
    from .installation import KafkaInstallation

KAFKA_DEFAULTS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "replica.lag.time.max.ms": 1500,
}
"""The first becomes `broker.session.timeout.ms`. The second is in the place of `harrow.replica.silence.max.ms`, which
Kafka does not have. All other defaults are those of Harrow's own brokers."""


def kafka_config(brokers: int, config: Mapping[str, object], plants: Sequence[str]) -> dict[str, object]:
    """Return the settings of a Kafka cluster; `config`: what the test changes. CapabilityError for planted bugs."""
    refuse_plants(plants)
    defaults = cluster_defaults(brokers, KAFKA_DEFAULTS)
    return {**defaults, **TEST_DEFAULTS, **KAFKA_DEFAULTS, **config}


class KafkaClusters(NewClusters[KafkaCluster]):
    """New clusters of one Apache Kafka."""

    backend = APACHE

    def __init__(self, installation: KafkaInstallation, before_start: Callable[[], None] | None = None) -> None:
        super().__init__(before_start)
        self._installation = installation

    def make(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str]
    ) -> KafkaCluster:
        """Return a KRaft cluster; CapabilityError for planted bugs."""
        settings = kafka_config(brokers, config, plants)
        return KafkaCluster(self._installation, folder=folder, brokers=brokers, config=settings, seed=seed)

    def system(self, cluster: RunningCluster) -> System:
        """Return the nodes and the proxy."""
        assert isinstance(cluster, KafkaCluster)
        return KafkaSystem(cluster)
