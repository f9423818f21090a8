"""What the daemon and this machine still have of a test: containers, networks, volumes, processes."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

from harrow.harness.backends.docker.daemon import connect
from waiting import until


def _with_label(label: str) -> list[Any]:
    with closing(connect()) as client:
        return list(client.containers.list(all=True, filters={"label": [label]}))


def containers(label: str) -> list[str]:
    """Return the names of all containers with a label, dead ones too."""
    return [str(container.name) for container in _with_label(label)]


def networks_of(label: str) -> set[str]:
    """Return the names of the networks of the containers with a label."""
    found = _with_label(label)
    return {name for container in found for name in container.attrs["NetworkSettings"]["Networks"]}


def volumes_of(label: str) -> set[str]:
    """Return the names of the volumes of the containers with a label."""
    mounts = [mount for container in _with_label(label) for mount in container.attrs["Mounts"]]
    return {str(mount["Name"]) for mount in mounts if mount["Type"] == "volume"}


def volumes() -> set[str]:
    """Return the names of the daemon's volumes."""
    with closing(connect()) as client:
        return {str(volume.name) for volume in client.volumes.list()}


def processes_of(folder: Path) -> list[int]:
    """Return the other processes that have a file below the folder open, such as the proxy and the brokers."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            opened = [os.readlink(file) for file in (process / "fd").iterdir()]
        except OSError:
            continue
        if int(process.name) != os.getpid() and any(file.startswith(f"{folder}/") for file in opened):
            found.append(int(process.name))
    return found


def await_nothing_left(label: str, folder: Path, used: set[str], timeout_s: float) -> None:
    """Wait until no container has the label, no process a file below the folder, and no volume of `used` exists."""
    until(lambda: not containers(label), "no container is left, paused ones too", timeout_s=timeout_s)
    until(lambda: not processes_of(folder), "no process is left, the proxy too", timeout_s=timeout_s)
    until(lambda: not used & volumes(), "no volume is left", timeout_s=timeout_s)
