"""Connections to this machine use no proxy of the environment, and no wait for Spark is without an end (J3, J9)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.unix_sockets import reachable
from harrow.harness.checks import SparkHandle, connect_channel, jvm, spark_client
from harrow.harness.checks.connect_channel import SparkError, bounded, options_of, verdict_seconds
from harrow.harness.checks.plan_server import PlanServer

CONNECTS = """
import sys, warnings
from concurrent.futures import ThreadPoolExecutor
warnings.simplefilter("ignore")
from harrow.harness.checks.connect_channel import SparkError, connected
def refused(address):
    try:
        connected(address, timeout_s=4)
    except SparkError as error:
        return error
with ThreadPoolExecutor() as pool:
    print(*pool.map(refused, sys.argv[1:]), sep="\\n")
"""


class Listener:
    """A port of this machine that accepts connections and never speaks."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(100)  # the program that connects may need long to begin
        self.port: int = self._socket.getsockname()[1]
        self.first = b""
        self.reached, self.spoken_to = threading.Event(), threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._socket.accept()
            with connection:
                self.reached.set()
                connection.settimeout(20)
                self.first = connection.recv(64)
                self.spoken_to.set()
                connection.recv(1)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listeners() -> Iterator[tuple[Listener, Listener]]:
    """A server on this machine, and the proxy that the environment names."""
    server, proxy = Listener(), Listener()
    yield server, proxy
    server.close()
    proxy.close()


def test_a_server_on_this_machine_is_reached_without_the_proxy_and_one_elsewhere_through_it(
    listeners: tuple[Listener, Listener],
) -> None:
    server, proxy = listeners
    outer = {name: value for name, value in os.environ.items() if not name.endswith("_proxy")}
    proxies = dict.fromkeys(("http_proxy", "grpc_proxy"), f"http://me:secret@127.0.0.1:{proxy.port}")

    addresses = [f"sc://localhost:{server.port}", "sc://spark.invalid:15002/;token=secret"]
    done = subprocess.run(
        [sys.executable, "-c", CONNECTS, *addresses],
        env={**outer, **proxies},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    here, elsewhere = done.stdout.splitlines()
    assert f"sc://localhost:{server.port} accepted no connection within 4 s; does" in here
    assert server.reached.wait(10)
    assert "through the proxy that grpc_proxy names; no_proxy=spark.invalid goes around" in elsewhere
    assert "secret" not in elsewhere
    assert proxy.spoken_to.wait(10)
    assert proxy.first.startswith(b"CONNECT spark.invalid:15002")  # and not this machine


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("sc://localhost:15002", True),
        ("sc://LOCALHOST", True),
        ("sc://127.0.0.1:1/;token=a", True),
        ("sc://127.9.9.9:1", True),
        ("sc://[::1]:15002/", True),
        ("sc://spark.example:15002", False),
        ("sc://10.0.0.1:15002", False),
        ("sc://localhost.example:1", False),
    ],
)
def test_only_loopback_addresses_go_around_the_proxy(address: str, *, here: bool) -> None:
    assert bool(options_of(address)) is here


class Session:
    """A session whose query ends when its channel is closed."""

    def __init__(self) -> None:
        self.client = self
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()

    def query(self) -> None:
        assert self.closed.wait(20)
        raise RuntimeError("Channel closed!")


def test_a_query_that_does_not_end_is_ended_and_the_error_says_what_was_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(connect_channel.TIMEOUT, "0.05")
    session = Session()
    said = r"did not judge within 0\.05 s; see spark\.log"
    with pytest.raises(SparkError, match=said), bounded(session, "see spark.log"):
        session.query()
    other = Session()
    monkeypatch.setenv(connect_channel.TIMEOUT, "60")
    with pytest.raises(ValueError, match="a bad plan"), bounded(other, ""):
        raise ValueError("a bad plan")
    assert not other.closed.is_set()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_deadline_that_is_no_number_of_seconds_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(connect_channel.TIMEOUT, text)
    with pytest.raises(ConfigError, match="HARROW_VERDICT_SECONDS='"):
        verdict_seconds()


def test_a_plan_server_that_does_not_respond_is_an_error_with_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(connect_channel.TIMEOUT, "0.05")
    monkeypatch.setattr(spark_client, "GRACE_S", 0.05)
    handle = SparkHandle(tmp_path)
    path = tmp_path / "plans.sock"
    with socket.socket(socket.AF_UNIX) as silent, reachable(path) as name:
        silent.bind(name)
        silent.listen(1)
        monkeypatch.setattr(handle, "_ready", lambda: {"plans": str(path)})
        with pytest.raises(SparkError, match=r"did not judge within 0\.1 s; see .*spark\.log"):
            handle.collect(tmp_path / "plan.json")


def test_a_plan_server_without_a_connection_to_the_jvm_says_so_to_each_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise SparkError("Spark Connect at sc://localhost:1 accepted no connection within 60 s")

    monkeypatch.setattr("harrow.harness.checks.plan_server.PlanQueries", refused)
    ours, theirs = socket.socketpair()
    with ours, socket.socket(socket.AF_UNIX) as listener, reachable(tmp_path / "s") as name:
        theirs.close()
        listener.bind(name)
        listener.listen(1)
        server = PlanServer(listener, tmp_path, "", "")
        with pytest.raises(SparkError):
            server.open("sc://localhost:1")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(name)
            client.sendall(b'{"collect": "/plan.json"}\n')
            response = json.loads(client.makefile("rb").readline())
    assert response == {"ok": False, "error": "Spark Connect at sc://localhost:1 accepted no connection within 60 s"}


def test_an_owner_that_cannot_start_says_why_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(spark_client.RENDEZVOUS, raising=False)
    (tmp_path / "spark.log").mkdir()
    with pytest.raises(SparkError, match=r"did not start: .*Is a directory.*spark\.log"):
        SparkHandle(tmp_path).request()


def test_options_for_every_jvm_do_not_reach_harrows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in jvm.JAVA_OPTIONS:
        monkeypatch.setenv(name, "-Xmx16m")
    assert not set(jvm.JAVA_OPTIONS) & set(jvm.environment("token"))
