"""The Docker daemon of this machine, the image, and the labels of Harrow's containers.

Owns: which containers are whose. A container has two labels: the process that started it (pid and start time), and the
machine that this pid belongs to (boot and pid namespace). `sweep` removes containers of processes that have ended; it
leaves those of other machines and other pid namespaces, which may share the daemon.

What may fail: CapabilityError where the packages, the daemon or the image are missing, with the remedy.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.faults.errors import CapabilityError

if TYPE_CHECKING:
    from docker import DockerClient

OWNER, MACHINE = "harrow.owner", "harrow.machine"
CLUSTER = "harrow.cluster"
"""Label of the containers of one cluster."""
BROKERS = "harrow.brokers"
"""Label of images with Harrow's own brokers (`containers/Dockerfile`)."""
JARS = "/opt/kafka/libs"
LOOK = f"for jar in {JARS}/kafka_2.*.jar; do test -f $jar && command -v java >/dev/null && exit 0; done; exit 1"
"""Succeeds in an image with Apache Kafka; it needs nothing but the shell."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
VARIABLE = "HARROW_IMAGE"
SOCKET = "/var/run/docker.sock"
TIMEOUT_S = 60


def connect() -> DockerClient:
    """Return a client of the daemon; the caller closes it. CapabilityError when there is none on this machine."""
    try:
        import docker.errors
        import testcontainers  # noqa: F401  # pyright: ignore[reportUnusedImport] - the backend needs both
    except ImportError:
        raise CapabilityError("the backend docker needs testcontainers: pip install pytest-harrow[docker]") from None
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix:"):
        raise CapabilityError(
            f"DOCKER_HOST={host}: the backend docker needs the daemon of this machine, because containers have its "
            "network and its folders; unset DOCKER_HOST"
        )
    place = host.removeprefix("unix://") or SOCKET
    # docker's own client leaves its socket open when this fails
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(TIMEOUT_S)
        try:
            probe.connect(place)
        except OSError as error:
            raise CapabilityError(f"no Docker daemon answers at {place}: {error}; start it") from None
    client = docker.from_env(timeout=TIMEOUT_S)
    try:
        client.ping()
    except docker.errors.DockerException as error:
        client.close()
        raise CapabilityError(f"the Docker daemon at {place} does not answer: {error}") from None
    return client


def chosen_image(name: str) -> str:
    """Return the image of the option, else that of the environment; CapabilityError when none is named."""
    image = name or os.environ.get(VARIABLE, "")
    if not image:
        raise CapabilityError(
            "no image is named: give one with Apache Kafka, as --harrow-image=apache/kafka:4.2.0 or HARROW_IMAGE, or "
            "Harrow's own"
        )
    return image


def has_image(client: DockerClient, image: str) -> bool:
    """Whether the daemon has the image."""
    import docker.errors

    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        return False
    return True


def require_image(client: DockerClient, image: str) -> None:
    """Pull the image where the daemon has none; CapabilityError when that fails."""
    import docker.errors

    if has_image(client, image):
        return
    try:
        client.images.pull(image)
    except (docker.errors.DockerException, OSError) as error:
        raise CapabilityError(
            f"the image {image} is not here and cannot be pulled: {error}; docker pull {image}"
        ) from None


def holds_harrows_brokers(client: DockerClient, image: str) -> bool:
    """Whether the image, which the daemon has, is one of Harrow's own."""
    return BROKERS in client.images.get(image).labels


@functools.lru_cache
def lacks_kafka(image_id: str) -> str:
    """Return why an image cannot run Apache Kafka here; empty when it can. Runs a container for a moment."""
    import docker.errors

    with contextlib.closing(connect()) as client:
        try:
            client.containers.run(
                image_id, ["-c", LOOK], entrypoint="/bin/sh", network_mode="none", labels=labels(), remove=True
            )
        except docker.errors.ContainerError:
            return f"it has no jars of Kafka in {JARS}, or no `java` on its path"
        except docker.errors.APIError as error:
            return f"it cannot run /bin/sh: {error.explanation}"
    return ""


def check_image(client: DockerClient, image: str) -> None:
    """Raise CapabilityError for an image, which the daemon has, with neither Harrow's brokers nor Apache Kafka."""
    if holds_harrows_brokers(client, image):
        return
    missing = lacks_kafka(str(client.images.get(image).id))
    if missing:
        raise CapabilityError(
            f"the backend docker cannot start the image {image}: {missing}. Use apache/kafka or Harrow's own image; "
            "start brokers of other images yourself, Redpanda's too, and give their address: "
            "--harrow-backend=external --harrow-bootstrap=HOST:PORT"
        )


# ---------------------------------------------------------------------------------- whose containers


def machine() -> str:
    """Return what tells pids of this machine and pid namespace from those of others."""
    return f"{BOOT_ID.read_text().strip()}.{os.stat('/proc/self/ns/pid').st_ino}"


def owner(pid: int | None = None) -> str:
    """Return the label's value of a process: its pid and its start time; empty when it does not exist."""
    number = os.getpid() if pid is None else pid
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return f"{number}.{text.rpartition(')')[2].split()[19]}"


def labels() -> dict[str, str]:
    """Return the labels of the containers that this process starts."""
    return {OWNER: owner(), MACHINE: machine()}


def sweep(client: DockerClient) -> list[str]:
    """Remove the containers that processes of this machine left when they ended; return their names."""
    import docker.errors

    removed: list[str] = []
    for container in client.containers.list(
        all=True, filters={"label": [f"{MACHINE}={machine()}"]}, ignore_removed=True
    ):
        whose = container.labels.get(OWNER, "")
        pid = whose.partition(".")[0]
        if pid.isdigit() and owner(int(pid)) != whose:
            with contextlib.suppress(docker.errors.DockerException):  # another process removes it
                container.remove(force=True, v=True)
                removed.append(str(container.name))
    return removed
