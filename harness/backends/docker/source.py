"""A source of clusters in containers for `Harrow` (`ClusterSource` of `harness/backends/clusters.py`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.faults.errors import CapabilityError

from ..apache.source import kafka_config
from ..choice import DOCKER
from ..clusters import TEST_DEFAULTS, NewClusters
from .daemon import check_image, chosen_image, connect, has_image, holds_harrows_brokers, require_image

if TYPE_CHECKING:
    from harrow.faults.system import System

    from ...running_cluster import RunningCluster
    from .docker_cluster import DockerCluster
    from .harrow_containers import HarrowContainers


def describe(name: str) -> str:
    """Return the daemon and the image; CapabilityError where they cannot be used."""
    image = chosen_image(name)
    with contextlib.closing(connect()) as client:
        version = client.version().get("Version", "?")
        if not has_image(client, image):
            return f"Docker {version} with the image {image}, which will be pulled"
        check_image(client, image)
        held = "Harrow's brokers" if holds_harrows_brokers(client, image) else "Apache Kafka"
    return f"Docker {version} with the image {image} ({held})"


def is_harrows(name: str) -> bool:
    """Whether the image is here and has Harrow's own brokers."""
    with contextlib.suppress(CapabilityError):
        image = chosen_image(name)
        with contextlib.closing(connect()) as client:
            return has_image(client, image) and holds_harrows_brokers(client, image)
    return False


class DockerClusters(NewClusters["DockerCluster | HarrowContainers"]):
    """New clusters of one image: of Apache Kafka behind the proxy, or of Harrow's own brokers."""

    backend = DOCKER

    def __init__(self, name: str, before_start: Callable[[], None] | None = None) -> None:
        """`name`: of the image; empty: the environment names it. CapabilityError without a daemon."""
        super().__init__(before_start)
        self._image = chosen_image(name)
        connect().close()

    def make(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str]
    ) -> DockerCluster | HarrowContainers:
        """Return a cluster of the image's brokers, pulled where it is not here; CapabilityError for foreign bugs."""
        with contextlib.closing(connect()) as client:
            require_image(client, self._image)
            ours = holds_harrows_brokers(client, self._image)
        if ours:
            from .harrow_containers import HarrowContainers

            return HarrowContainers(
                self._image,
                folder=folder.absolute(),
                brokers=brokers,
                config={**TEST_DEFAULTS, **config},
                seed=seed,
                plants=plants,
            )
        from .docker_cluster import DockerCluster

        settings = kafka_config(brokers, config, plants)
        return DockerCluster(self._image, folder=folder, brokers=brokers, config=settings, seed=seed)

    def system(self, cluster: RunningCluster) -> System:
        """Return the containers and, with Apache Kafka, the proxy."""
        from ..apache.system import KafkaSystem
        from .docker_cluster import DockerCluster
        from .harrow_containers import ContainerSystem, HarrowContainers

        if isinstance(cluster, HarrowContainers):
            return ContainerSystem(cluster)
        assert isinstance(cluster, DockerCluster)
        return KafkaSystem(cluster, backend=self.backend)
