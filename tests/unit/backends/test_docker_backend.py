"""The backend `docker` without a daemon: the image, whose containers are whose, and a node's states (J2)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.docker.daemon import MACHINE, OWNER, chosen_image, connect, labels, machine, owner, sweep

docker: Any = pytest.importorskip("docker", reason="the extra pytest-harrow[docker] is not installed")


class FakeContainer:
    """A container without a daemon."""

    def __init__(self, name: str = "node", **given: str) -> None:
        self.name = name
        self.labels = given
        self.status = "running"
        self.attrs = {"State": {"Pid": os.getpid()}}
        self.calls: list[str] = []

    def reload(self) -> None:
        """Nothing: the status is always current."""

    def start(self) -> None:
        self.status = "running"

    def pause(self) -> None:
        self.status = "paused"

    def unpause(self) -> None:
        self.status = "running"

    def kill(self, name: str) -> None:
        assert self.status == "running", "Docker kills no paused container"
        self.calls.append(name)
        self.status = "exited"

    def logs(self, tail: int = 0) -> bytes:
        return b"no licence" if tail else b"first\nno licence"

    def remove(self, *, force: bool, v: bool) -> None:
        assert force
        assert v
        self.status = "removed"


class FakeDescription:
    """A `DockerContainer` of testcontainers."""

    def __init__(self) -> None:
        self.container = FakeContainer()

    def start(self) -> None:
        self.container.start()

    def get_wrapped_container(self) -> FakeContainer:
        return self.container

    def get_docker_client(self) -> Any:
        return SimpleNamespace(client=SimpleNamespace(close=lambda: None))


def node(folder: Path, serves: Callable[[], bool]) -> tuple[Any, FakeContainer]:
    from harrow.harness.backends.docker.node import ContainerNode

    made = FakeDescription()
    found = ContainerNode("node 1", 1, folder, Address("127.0.0.1", 9092), cast("Any", made), serves)
    return found, made.container


def test_an_image_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARROW_IMAGE", raising=False)
    assert chosen_image("apache/kafka:4.2.0") == "apache/kafka:4.2.0"
    with pytest.raises(CapabilityError, match=r"no image is named: .*--harrow-image=apache/kafka"):
        chosen_image("")
    monkeypatch.setenv("HARROW_IMAGE", "mine")
    assert chosen_image("") == "mine"


def test_a_daemon_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    with pytest.raises(CapabilityError, match=r"DOCKER_HOST=tcp://elsewhere:2375: .* daemon of this machine"):
        connect()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(CapabilityError, match=r"no Docker daemon answers at .*docker\.sock: "):
        connect()


def test_only_containers_of_processes_that_ended_are_swept() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        theirs = owner(ended.pid)
    assert theirs.startswith(f"{ended.pid}.")
    assert owner(ended.pid) == ""
    mine = FakeContainer("mine", **labels())
    left = FakeContainer("left", **{OWNER: theirs, MACHINE: machine()})
    reused = FakeContainer("reused", **{OWNER: f"{os.getpid()}.1", MACHINE: machine()})
    foreign = FakeContainer("foreign", **{MACHINE: machine()})
    asked: list[Any] = []

    def listed(**given: Any) -> list[FakeContainer]:
        asked.append(given["filters"])
        return [mine, left, reused, foreign]

    client: Any = SimpleNamespace(containers=SimpleNamespace(list=listed))
    assert sweep(client) == ["left", "reused"]
    assert asked == [{"label": [f"{MACHINE}={machine()}"]}]
    assert [each.status for each in (mine, left, reused, foreign)] == ["running", "removed", "removed", "running"]


def test_a_node_goes_through_the_states_of_a_process(tmp_path: Path) -> None:
    ready: list[bool] = []
    broker, container = node(tmp_path, lambda: bool(ready))
    assert (broker.state, broker.pid, broker.incarnations) == ("dead", None, 0)
    with pytest.raises(ClusterError, match="node 1 is not running"):
        broker.wait_ready()
    broker.begin()
    broker.check_ready()
    assert (broker.state, broker.pid) == ("starting", os.getpid())
    ready.append(True)
    broker.wait_ready()
    assert broker.state == "running"
    broker.pause()
    assert (broker.state, broker.alive) == ("paused", True)
    broker.kill()
    assert (broker.state, container.calls) == ("dead", ["SIGKILL"])
    broker.send_signal(signal.SIGSTOP)
    assert broker.state == "dead"
    broker.start()
    assert (broker.state, broker.incarnations) == ("running", 2)
    broker.pause()
    broker.terminate()
    assert container.calls == ["SIGKILL", "SIGTERM"]
    broker.close()
    assert container.status == "removed"
    assert (tmp_path / "stdout.log").read_bytes() == b"first\nno licence"


def test_a_node_that_ends_at_its_start_says_why(tmp_path: Path) -> None:
    broker, container = node(tmp_path, lambda: False)
    broker.begin()
    container.status = "exited"
    with pytest.raises(ClusterError, match=r"node 1 did not start; see .*\n.*no licence"):
        broker.wait_ready()


def test_what_docker_refuses_is_an_error_of_the_cluster(tmp_path: Path) -> None:
    broker, container = node(tmp_path, lambda: True)
    broker.begin()

    def refused() -> None:
        raise docker.errors.APIError("no space left")

    container.reload = refused  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="node 1: Docker refused: no space left"):
        assert broker.state
