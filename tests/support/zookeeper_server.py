"""Debian's ZooKeeper as a process of a test's own, where it is installed (docs/zookeeper.md says how)."""

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
"""ZooKeeper's own limit is twenty ticks: whoever asks for more is given those and not told."""


def lacking() -> str:
    """Why there is no ZooKeeper here; empty when there is one."""
    if not JAR.exists():
        return "no ZooKeeper is installed (apt-get install zookeeper)"
    if shutil.which("java") is None:
        return "no java is installed"
    if importlib.util.find_spec("kazoo") is None:
        return "kazoo is not installed (pip install kazoo)"
    return ""


_shared: list[ZooKeeperServer] = []

needs_zookeeper = pytest.mark.skipif(bool(lacking()), reason=lacking() or "there is one")


def shared() -> ZooKeeperServer:
    """One server for all tests of this process that need nothing but paths of their own; skips without."""
    if lacking():
        pytest.skip(lacking())
    if not _shared:
        server = ZooKeeperServer(Path(tempfile.mkdtemp(prefix="harrow-zookeeper-")))
        server.start()
        _shared.append(server)
        atexit.register(shutil.rmtree, server.folder, ignore_errors=True)
        atexit.register(server.kill)
    return _shared[0]


class ZooKeeperServer:
    """One server on a port that stays its own; `kill` and `start` again on the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """What `zookeeper.connect` is set to."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Begin, and wait until it answers."""
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK_MS}\nmaxSessionTimeout={SESSION_MS_MOST}\n"
            f"dataDir={self.folder / 'data'}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\nforceSync=no\n"
            "4lw.commands.whitelist=ruok\n"
        )
        with (self.folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
                 f"{self.folder}:{JAR}", "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)],
                stdout=log, stderr=log,
            )  # fmt: skip
        until(self._answers)

    def kill(self) -> None:
        """SIGKILL; no-op on a dead one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 5) as asked,
        ):
            asked.sendall(b"ruok")
            return asked.recv(4) == b"imok"
        return False
