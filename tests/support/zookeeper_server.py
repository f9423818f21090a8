"""Debian's ZooKeeper as a process of the tests, where it is installed (docs/zookeeper.md says how)."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
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


_shared: list[ZooKeeperServer] = []

needs_zookeeper = pytest.mark.skipif(bool(missing_requirement()), reason=missing_requirement() or "installed")


def shared() -> ZooKeeperServer:
    """Return the server of all tests of this process that need only paths of their own; skip where there is none."""
    if missing_requirement():
        pytest.skip(missing_requirement())
    if not _shared:
        server = ZooKeeperServer(Path(tempfile.mkdtemp(prefix="harrow-zookeeper-")))
        server.start()
        _shared.append(server)
        atexit.register(shutil.rmtree, server.folder, ignore_errors=True)
        atexit.register(server.kill)
    return _shared[0]


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
