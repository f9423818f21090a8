"""A source of external clusters for `Harrow` (`ClusterSource` of `harness/backends/clusters.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..choice import EXTERNAL
from ..clusters import NewClusters, refuse_plants
from .external_cluster import ExternalCluster
from .system import ExternalSystem

if TYPE_CHECKING:
    from harrow.faults.system import System

    from ...running_cluster import RunningCluster


class ExternalClusters(NewClusters[ExternalCluster]):
    """The cluster at one bootstrap address, behind a proxy of each `Harrow`."""

    backend = EXTERNAL

    def __init__(self, bootstrap: str, before_start: Callable[[], None] | None = None) -> None:
        super().__init__(before_start)
        self._bootstrap = bootstrap

    def make(
        self,
        folder: Path,
        *,
        brokers: int,  # noqa: ARG002 - the cluster has as many as it has
        config: Mapping[str, object],
        seed: int,
        plants: Sequence[str],
    ) -> ExternalCluster:
        """Return the cluster; CapabilityError for planted bugs."""
        refuse_plants(plants)
        return ExternalCluster(self._bootstrap, folder=folder, config=config, seed=seed)

    def system(self, cluster: RunningCluster) -> System:
        """Return the proxy before the brokers."""
        assert isinstance(cluster, ExternalCluster)
        return ExternalSystem(cluster)
