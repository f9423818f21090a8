"""The Python workers of Harrow's own Spark: the daemon that starts before the JVM, and the door to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harrow.harness.checks import worker_door
from waiting import readable

READY_TIMEOUT_S = 60
DOOR = (sys.executable, "-m", "harrow.harness.checks.worker_door", worker_door.WORKER)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short name, as the owner of a run gives them: the path of a Unix socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="harrow-") as folder:
        yield Path(folder)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon, as the owner of a run starts it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "w"))
        listener.listen(1)
        process = subprocess.Popen(
            [sys.executable, "-m", "harrow.harness.checks.worker_daemon", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
    with process:
        yield process
        process.kill()


@contextmanager
def door(tmp_path: Path) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """What Spark does: start the door, read the path of a socket, and close the input at the end."""
    environment = {
        **os.environ,
        worker_door.WORKERS: str(tmp_path / "w"),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(DOOR, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process, process.stdout.read(int.from_bytes(process.stdout.read(4), "big")).decode()
        process.stdin.close()
        process.wait(READY_TIMEOUT_S)


def worker(path: str) -> tuple[socket.socket, int]:
    """Ask for a worker; return its connection and its process id."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(READY_TIMEOUT_S)
    connection.connect(path)
    return connection, int.from_bytes(connection.recv(4), "big")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_workers_are_children_of_the_daemon_that_ran_before_and_end_with_sparks_pipe(
    tmp_path: Path, daemon: subprocess.Popen[bytes]
) -> None:
    with door(tmp_path) as (first, path):
        connections = [worker(path), worker(path)]
        assert [parent(pid) for _, pid in connections] == [daemon.pid, daemon.pid]
        assert first.poll() is None, "Spark looks whether the process that it started is alive"
        with door(tmp_path) as (second, other):
            connection, pid = worker(other)
            connection.close()
            assert parent(pid) == second.pid, "PySpark's own daemon, where ours serves another one"
        ended = [os.pidfd_open(pid) for _, pid in connections]
        for connection, _ in connections:
            connection.close()
    daemon.wait(READY_TIMEOUT_S)
    for descriptor in ended:
        assert readable(descriptor, READY_TIMEOUT_S)
        os.close(descriptor)
    assert not Path(path).exists()


def test_without_a_daemon_the_door_is_pysparks_own(tmp_path: Path) -> None:
    with door(tmp_path) as (process, path):
        connection, pid = worker(path)
        connection.close()
        assert parent(pid) == process.pid
