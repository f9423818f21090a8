"""A PostgreSQL server on a free port of the loopback interface, as the program `database` of a test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from harrow import Harrow

DEADLINE_S = 60.0
long_run = pytest.mark.skipif(
    os.environ.get("HARROW_LONG") != "1",
    reason="HARROW_LONG is not 1: this test is one of a series on real brokers, of seconds each",
)
USERS = ("postgres", "nobody")
"""PostgreSQL does not run as root; these are the users that it runs as then."""
SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "autovacuum=off")


def program(name: str) -> str | None:
    """Return a program of PostgreSQL; Debian has them in the folder of their version."""
    versions = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    return shutil.which(name) or (None if newest is None else str(newest))


@contextmanager
def postgres(harrow: Harrow) -> Generator[str]:
    """Start a server with an empty database; return its `host:port`. Without PostgreSQL the test is skipped."""
    initdb, server = program("initdb"), program("postgres")
    if initdb is None or server is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    # the folders of pytest are closed to other users
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        words, data = as_user(folder), str(folder / "data")
        subprocess.run(
            [*words, initdb, "--no-sync", "--auth", "trust", "--username", "test", data],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            timeout=DEADLINE_S,
        )
        port = free_port()
        settings = [word for setting in (*SETTINGS, f"port={port}") for word in ("-c", setting)]
        running = harrow.program("database", [*words, server, "-D", data, *settings])
        await_start(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"
        running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_user(folder: Path) -> list[str]:
    """Return the words before a command that run it as the owner of `folder`."""
    if os.geteuid() != 0:
        return []
    names = {user.pw_name for user in pwd.getpwall()}
    user = next(name for name in USERS if name in names)
    shutil.chown(folder, user)
    return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups"]


def free_port() -> int:
    """Return a port of the loopback interface that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def database_at(address: str) -> str:
    """Return the connection string for a `host:port`."""
    host, _, port = address.rpartition(":")
    return f"host={host} port={port} user=test dbname=postgres sslmode=disable gssencmode=disable"


def await_start(address: str) -> None:
    """Wait until the server takes connections."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            psycopg.connect(database_at(address)).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
