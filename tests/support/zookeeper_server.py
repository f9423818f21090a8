"""Debian's ZooKeeper as a process of the tests, where it is installed (docs/zookeeper.md says how)."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from detached import await_end, detached, outlive_signals
from waiting import until

JAR = Path("/usr/share/java/zookeeper.jar")
TICK_MS = 100
"""Sessions may be as short as two ticks."""
SESSION_MS_MOST = 60_000
"""The limit of session timeouts. ZooKeeper's default is twenty ticks: it silently lowers a longer requested timeout."""


def missing_requirement() -> str:
    """Return why ZooKeeper cannot run here; empty if it can."""
    if not JAR.exists():
        return "no ZooKeeper is installed (apt-get install zookeeper)"
    if shutil.which("java") is None:
        return "no java is installed"
    if importlib.util.find_spec("kazoo") is None:
        return "kazoo is not installed (pip install kazoo)"
    return ""


needs_zookeeper = pytest.mark.skipif(bool(missing_requirement()), reason=missing_requirement() or "installed")


def shared() -> str:
    """The address of the server of all tests of this run that need only paths of their own; skip where there is none.

    All workers share it: on two cores four JVMs that start at the same time take 20 s each. The first test starts it
    under a keeper, a process that waits for the end of the run's first process (`HARROW_CONTROLLER`) and then kills it.
    """
    if missing_requirement():
        pytest.skip(missing_requirement())
    folder = Path(os.environ["HARROW_RENDEZVOUS"]).parent
    ready = folder / "zookeeper.address"
    with (folder / "zookeeper.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            command = [sys.executable, __file__, str(folder), os.environ["HARROW_CONTROLLER"]]
            detached(command, folder / "zookeeper.keeper.log")
            until(ready.exists, "ZooKeeper has started")
    return ready.read_text()


def keep(folder: Path, run: int) -> None:
    """Starts the server, writes its address to `zookeeper.address`, and kills it when process `run` ends."""
    outlive_signals()
    ended = os.pidfd_open(run)
    with ZooKeeperServer(folder / "zookeeper") as server:
        part = folder / "zookeeper.part"
        part.write_text(server.connect)
        part.rename(folder / "zookeeper.address")
        await_end(ended)


class ZooKeeperServer:
    """One server that keeps its port; `kill` and `start` may follow each other on the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the server, and wait until it responds."""
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK_MS}\nmaxSessionTimeout={SESSION_MS_MOST}\n"
            f"dataDir={self.folder / 'data'}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\nforceSync=no\n"
            "4lw.commands.whitelist=ruok\n"
        )
        with (self.folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    "-Xmx128m",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:+UseSerialGC",
                    "-cp",
                    f"{self.folder}:{JAR}",
                    "org.apache.zookeeper.server.ZooKeeperServerMain",
                    str(config),
                ],
                stdout=log,
                stderr=log,
            )
        until(self._responds)

    def kill(self) -> None:
        """Send SIGKILL; does nothing if the server is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def _responds(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
        return False


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
