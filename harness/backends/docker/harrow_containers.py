"""Harrow's own brokers in containers: the cluster of the backend `local`, whose processes run in an image of ours.

Owns: the containers of the image of `containers/Dockerfile`, one for each broker and one for the registry. A container
has the network of this machine, the cluster's folder at the same path and the user of this process, and its first
process is one of this machine's processes: so ports, control sockets, signals, faults, taps and the checks of the
replicas' logs are those of the backend `local`.

All containers end with `stop()`; where this process ends without it, the guard removes them (`guard.py`). What may
fail: CapabilityError without a daemon or the image, ClusterError when the daemon refuses or a process does not start.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Generator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker.errors
import requests.exceptions
from docker.utils import socket as docker_socket
from harrow.cluster import Cluster
from harrow.cluster.broker_folder import STDOUT
from harrow.cluster.errors import ClusterError
from harrow.cluster.managed import STOP_TIMEOUT_S
from harrow.faults.errors import CapabilityError

from ..choice import DOCKER
from ..local import LocalSystem
from .containers import ClusterContainers
from .daemon import connect

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

OPTIONS = "options.json"
OWN_PLANTS = "harrow."
OUTPUT_TIMEOUT_S = 10.0


class ContainerStarter:
    """Starts the processes of one cluster in containers, which it keeps for later starts (`managed.Starter`)."""

    def __init__(self, given: ClusterContainers, folder: Path) -> None:
        self._client: DockerClient = connect()
        self._given = given
        self._folder = folder
        self._containers: dict[str, Container] = {}
        self._outputs: list[threading.Thread] = []
        self._lock = threading.Lock()

    def spawn(self, options: dict[str, Any], status_fd: int) -> int:
        """Start a container that runs `options` and whose status lines go to `status_fd`; returns its process's pid."""
        name, folder = str(options["name"]), Path(options["folder"])
        text = json.dumps({**options, "version": version("pytest-harrow")})
        (folder / OPTIONS).write_text(text, encoding="utf-8")
        with self._lock, _refused(name):
            container = self._containers.get(name)
            if container is None:
                container = self._containers[name] = self._create(folder)
            else:
                container.wait(timeout=STOP_TIMEOUT_S)  # the daemon sees an end later than the kernel
            untyped: Any = container
            output = untyped.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
            thread = threading.Thread(
                target=_copy_output,
                name=f"output of {name}",
                daemon=True,
                args=(output, os.dup(status_fd), folder / STDOUT),
            )
            thread.start()
            self._outputs.append(thread)
            try:
                container.start()
            except docker.errors.DockerException:
                output._response.close()  # noqa: SLF001 - as above; the thread ends
                raise
            container.reload()
            pid = int(container.attrs["State"]["Pid"])
        if not pid:
            thread.join(OUTPUT_TIMEOUT_S)
            said = (folder / STDOUT).read_text(errors="replace")[-2000:]
            raise ClusterError(f"the container of {name} ({self._given.image}) ended at once: {said}")
        return pid

    def _create(self, folder: Path) -> Container:
        return self._client.containers.create(
            self._given.image,
            [str(folder / OPTIONS)],
            network_mode="host",
            user=f"{os.getuid()}:{os.getgid()}",
            volumes={str(self._folder): {"bind": str(self._folder), "mode": "rw"}},
            labels=self._given.labels,
            working_dir=str(folder),
        )

    def close(self) -> None:
        """Remove the containers; what they printed is in their folders."""
        with self._lock:
            containers, self._containers = list(self._containers.values()), {}
            for container in containers:
                with contextlib.suppress(docker.errors.DockerException):  # the guard removes it
                    container.remove(force=True, v=True)
            for thread in self._outputs:
                thread.join(OUTPUT_TIMEOUT_S)
            self._outputs.clear()
            self._client.close()


def _copy_output(output: Any, status_fd: int, path: Path) -> None:
    """Copy what a container prints to a file, and its standard output to the status pipe, until the container ends."""
    # docker-py leaves the connection below the socket open
    with contextlib.closing(output._response), path.open("ab", buffering=0) as file:  # noqa: SLF001
        try:
            untyped: Any = docker_socket
            for stream, data in untyped.frames_iter(output, tty=False):
                file.write(data)
                if stream == docker_socket.STDOUT:
                    with contextlib.suppress(OSError):  # after the first line the pipe has no reader
                        os.write(status_fd, data)
        finally:
            os.close(status_fd)


@contextlib.contextmanager
def _refused(name: str) -> Generator[None]:
    try:
        yield
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise ClusterError(f"{name}: Docker refused: {error}") from error


class HarrowContainers(Cluster):
    """A cluster of Harrow's brokers in containers of `image`."""

    def __init__(
        self, image: str, *, folder: Path, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str]
    ) -> None:
        foreign = [plant for plant in plants if not plant.startswith(OWN_PLANTS)]
        if foreign:
            raise CapabilityError(
                f"the bugs {', '.join(foreign)} are modules that the image {image} does not have; use the backend local"
            )
        super().__init__(brokers=brokers, config=config, folder=folder, seed=seed, plants=plants)
        self._containers = ClusterContainers(image)
        self._starter: ContainerStarter | None = None

    @property
    def starter(self) -> ContainerStarter:
        """What starts the containers."""
        if self._starter is None:
            raise ClusterError("the cluster is not started; call start()")
        return self._starter

    def start(self) -> None:
        """Start all containers; CapabilityError without a daemon or the image."""
        self._containers.begin()
        assert self.folder.is_absolute(), "the containers have it at the same path"
        self._starter = ContainerStarter(self._containers, self.folder)
        super().start()

    def stop(self, *, graceful: bool = False) -> None:
        """Remove the containers, and end the guard; files stay."""
        try:
            super().stop(graceful=graceful)
        finally:
            starter, self._starter = self._starter, None
            if starter is not None:
                starter.close()
            self._containers.end()


class ContainerSystem(LocalSystem):
    """A `HarrowContainers` as the fault layer's `System`: every fault of the backend `local`."""

    backend = DOCKER
