"""One container, handled as the process of a node.

Owns: the container, which is made at the first start and kept for the later ones, its state and its incarnations.
Kills, pauses and starts are calls of Docker's API. The container's output is in `stdout.log` of the node's folder once
it is removed. What may fail: ClusterError with the end of that output when the node does not start, and when the daemon
refuses.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import docker.errors
from harrow.cluster.broker_folder import STDOUT
from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.cluster.managed import START_TIMEOUT_S, STOP_TIMEOUT_S
from harrow.faults.controls import DEAD, PAUSED, RUNNING, STARTING

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer

POLL_S = 0.05
TAIL_LINES = 30
ALIVE = ("running", "paused", "restarting")
"""Docker's words for a container with a process."""


class ContainerNode:
    """One node: broker and controller, in a container that `made` describes; `serves` returns at once."""

    def __init__(
        self, label: str, node: int, folder: Path, clients: Address, made: DockerContainer, serves: Callable[[], bool]
    ) -> None:
        self.label = label
        self.node_id = node
        self.folder = folder
        self.address = clients
        """Where the node itself listens, behind the proxy."""
        self.incarnations = 0
        self._made = made
        self._serves = serves
        self._container: Container | None = None
        self._starting = False
        self._lock = threading.RLock()

    @property
    def port(self) -> int:
        """The node's own port, behind the proxy."""
        return self.address.port

    @property
    def pid(self) -> int | None:
        """The process id of the container's first process on this machine; None while it is dead."""
        with self._lock, self._asked():
            if self._container is None:
                return None
            self._container.reload()
            return int(self._container.attrs["State"]["Pid"]) or None

    @property
    def alive(self) -> bool:
        """Whether the container has a process, paused or not."""
        return self._status() in ALIVE

    @property
    def state(self) -> str:
        """`dead`, `starting`, `running` or `paused`."""
        status = self._status()
        if status not in ALIVE:
            return DEAD
        if status == "paused":
            return PAUSED
        return STARTING if self._starting else RUNNING

    def _status(self) -> str:
        with self._lock, self._asked():
            if self._container is None:
                return ""
            self._container.reload()
            return str(self._container.status)

    @contextlib.contextmanager
    def _asked(self) -> Generator[None]:
        try:
            yield
        except docker.errors.DockerException as error:
            raise ClusterError(f"{self.label}: Docker refused: {error}") from error

    # ------------------------------------------------------------------ start

    def begin(self) -> None:
        """Start the container and return before the node serves. No-op while it is alive."""
        with self._lock:
            if self.alive:
                return
            with self._asked():
                if self._container is None:
                    self._made.start()
                    self._container = self._made.get_wrapped_container()
                else:
                    self._container.start()
            self.incarnations += 1
            self._starting = True

    def check_ready(self) -> None:
        """Notice that a starting node serves, or has ended (ClusterError); never waits for it."""
        if not self.alive:
            starting, self._starting = self._starting, False
            if starting:
                raise ClusterError(f"{self.label} did not start; see {self.folder}\n{self._tail()}")
            return
        if self._starting:
            with contextlib.suppress(ClusterError):
                self._starting = not self._serves()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the node serves; ClusterError with the end of its output when it does not."""
        deadline = time.monotonic() + timeout_s
        if not self._starting and not self.alive:
            raise ClusterError(f"{self.label} is not running; start it first")
        while self._starting:
            self.check_ready()
            if not self._starting:
                return
            if time.monotonic() > deadline:
                self.kill()
                raise ClusterError(
                    f"{self.label} did not serve within {timeout_s:g} s; see {self.folder}\n{self._tail()}"
                )
            time.sleep(POLL_S)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the container and wait until the node serves."""
        self.begin()
        self.wait_ready(timeout_s)

    # ---------------------------------------------------------------- signals

    def send_signal(self, number: signal.Signals) -> None:
        """Do what a signal does, by Docker's API; returns before it takes effect. No-op on a dead node."""
        with self._lock:
            status = self._status()
            container = self._container
            if container is None or status not in ALIVE:
                return
            with self._asked():
                if number == signal.SIGSTOP:
                    if status != "paused":
                        container.pause()
                elif number == signal.SIGCONT:
                    if status == "paused":
                        container.unpause()
                else:
                    if status == "paused":  # Docker kills no paused container
                        container.unpause()
                    container.kill(number.name)

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended. No-op on a dead node."""
        self.send_signal(signal.SIGKILL)
        self._wait_until(lambda: not self.alive, STOP_TIMEOUT_S, "is still alive")

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM (controlled shutdown), and wait; ClusterError when the process has not ended in time."""
        self.send_signal(signal.SIGCONT)
        self.send_signal(signal.SIGTERM)
        self._wait_until(lambda: not self.alive, timeout_s, "is still alive")

    def pause(self) -> None:
        """Freeze the container."""
        self.send_signal(signal.SIGSTOP)
        self._wait_until(lambda: self.state in (PAUSED, DEAD), STOP_TIMEOUT_S, "is not paused")

    def resume(self) -> None:
        """Let a paused container continue."""
        self.send_signal(signal.SIGCONT)
        self._wait_until(lambda: self.state != PAUSED, STOP_TIMEOUT_S, "is still paused")

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Terminate, then start."""
        self.terminate()
        self.start(timeout_s)

    def close(self) -> None:
        """Keep the container's output, and remove the container; the client of its daemon is closed."""
        with self._lock, contextlib.suppress(docker.errors.DockerException):
            if self._container is not None:
                container, self._container = self._container, None
                (self.folder / STDOUT).write_bytes(container.logs())
                container.remove(force=True, v=True)
        self._made.get_docker_client().client.close()

    def _wait_until(self, holds: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.label} {otherwise} after {timeout_s:g} s")
            time.sleep(POLL_S)

    def _tail(self) -> str:
        with contextlib.suppress(docker.errors.DockerException):
            if self._container is not None:
                return self._container.logs(tail=TAIL_LINES).decode(errors="replace").rstrip()
        return ""
