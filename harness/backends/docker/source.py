"""A source of clusters in containers for `Harrow` (`ClusterSource` of `harness/clusters.py`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...backend_choice import DOCKER
from ...clusters import NewClusters
from ..apache.source import kafka_config
from .daemon import chosen_image, connect, has_image

if TYPE_CHECKING:
    from harrow.faults.system import System

    from ...running_cluster import RunningCluster
    from .docker_cluster import DockerCluster


def describe(name: str) -> str:
    """Return the daemon and the image; CapabilityError where they cannot be used."""
    image = chosen_image(name)
    with contextlib.closing(connect()) as client:
        version = client.version().get("Version", "?")
        pulled = "" if has_image(client, image) else ", which will be pulled"
    return f"Docker {version} with the image {image}{pulled}"


class DockerClusters(NewClusters["DockerCluster"]):
    """New clusters of one image."""

    backend = DOCKER

    def __init__(self, name: str, before_start: Callable[[], None] | None = None) -> None:
        """`name`: of the image; empty: the environment names it. CapabilityError without a daemon."""
        super().__init__(before_start)
        self._image = chosen_image(name)
        connect().close()

    def make(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str]
    ) -> DockerCluster:  # fmt: skip
        """Return a KRaft cluster; CapabilityError for planted bugs."""
        from .docker_cluster import DockerCluster

        settings = kafka_config(brokers, config, plants)
        return DockerCluster(
            self._image, folder=folder, brokers=brokers, config=settings, seed=seed
        )

    def system(self, cluster: RunningCluster) -> System:
        """Return the containers and the proxy."""
        from ..apache.system import KafkaSystem
        from .docker_cluster import DockerCluster

        assert isinstance(cluster, DockerCluster)
        return KafkaSystem(cluster, backend=self.backend)
