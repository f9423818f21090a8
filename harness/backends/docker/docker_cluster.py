"""`DockerCluster`: the KRaft cluster of the backend `apache`, with containers of one image in place of processes.

Each container has the network of this machine, so addresses, proxy and links are those of the backend `apache`. It has
the cluster's folder at the same path, and runs as the user of this process: settings, data folders and the checks of
the replicas' logs are the same too. The image needs /bin/sh, `java` on its path, and Kafka's jars in /opt/kafka/libs,
as `apache/kafka` has them. A node formats its data folder at its first start.

All containers end with `stop()`; where this process ends without it, the guard removes them (`guard.py`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import docker.errors
from harrow.cluster.broker_folder import DATA
from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from ..apache.installation import KafkaInstallation
from ..apache.kafka_cluster import KafkaCluster
from ..apache.kafka_node import format_command, server_command
from ..apache.kafka_views import live_brokers
from .containers import ClusterContainers
from .daemon import JARS
from .node import ContainerNode

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATTED = "meta.properties"
"""A data folder with this file is formatted."""


class DockerCluster(KafkaCluster):
    """A cluster of `brokers` containers of `image`."""

    def __init__(self, image: str, *, folder: Path, brokers: int, config: Mapping[str, object], seed: int) -> None:
        installation = KafkaInstallation(jars=Path(JARS), version=image, java="java")
        super().__init__(installation, folder=folder, brokers=brokers, config=config, seed=seed)
        self._containers = ClusterContainers(image)

    def start(self) -> None:
        """Start all containers and the proxy; CapabilityError without a daemon or the image."""
        testcontainers_config.ryuk_disabled = True  # the guard does its work, without another image
        self._containers.begin()
        try:
            super().start()
        except docker.errors.DockerException as error:
            image = self._containers.image
            raise ClusterError(f"the containers of {image} did not start: {error}") from error

    def stop(self) -> None:
        """Remove the containers, and end the proxy and the guard."""
        try:
            super().stop()
        finally:
            self._containers.end()

    def _new_node(self, node: int, folder: Path, clients: Address, options: Sequence[str]) -> ContainerNode:
        made = (
            DockerContainer(self._containers.image)
            .with_command(["-c", self._script(folder, options)])
            .with_volume_mapping(self.folder, str(self.folder), "rw")
            .with_kwargs(
                entrypoint="/bin/sh",
                network_mode="host",
                user=f"{os.getuid()}:{os.getgid()}",
                labels=self._containers.labels,
                working_dir=str(folder),
            )
        )
        name = f"Kafka node {node} ({self._containers.image})"
        return ContainerNode(name, node, folder, clients, made, lambda: node in live_brokers(clients))

    def _script(self, folder: Path, options: Sequence[str]) -> str:
        data = shlex.quote(str(folder / DATA / FORMATTED))
        return (
            f"test -f {data} || {shlex.join(format_command(self.installation, folder, self.cluster_id))} || exit 1; "
            f"exec {shlex.join(server_command(self.installation, folder, options))}"
        )

    def _format(self) -> None:
        """Nothing: each node formats its data folder at its first start."""
