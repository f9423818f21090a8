"""Connections to this machine use no proxy of the environment, and no wait for Spark is without an end (J3, J9)."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.unix_sockets import reachable
from harrow.harness.checks import SparkHandle, connect_channel, jvm, spark_client
from harrow.harness.checks.connect_channel import (
    SparkError,
    bounded,
    connected,
    options_of,
    verdict_seconds,
)
from harrow.harness.checks.plan_queries import quiet
from harrow.harness.checks.plan_server import PlanServer

VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy")


class Listener:
    """A port of this machine that accepts connections and never speaks."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(20)
        self.port: int = self._socket.getsockname()[1]
        self.first = b""
        self.reached = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._socket.accept()
            with connection:
                self.reached.set()
                connection.settimeout(20)
                self.first = connection.recv(64)
                connection.recv(1)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """The proxy that the environment names."""
    listener = Listener()
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.port}")
    yield listener
    listener.close()


def test_a_server_on_this_machine_is_reached_without_the_proxy(
    server: Listener, proxy: Listener
) -> None:
    with (
        quiet(),
        pytest.raises(
            SparkError, match=r"sc://localhost:\d+ accepted no connection within 1 s; does"
        ),
    ):
        connected(f"sc://localhost:{server.port}", timeout_s=1)
    assert server.reached.wait(10)
    assert not proxy.reached.is_set()


def test_a_server_of_the_users_elsewhere_is_reached_through_the_proxy_and_an_error_says_so(
    proxy: Listener,
) -> None:
    with (
        quiet(),
        pytest.raises(SparkError, match=r"through the proxy grpc_proxy=.*no_proxy=spark\.invalid"),
    ):
        connected("sc://spark.invalid:15002/;token=secret", timeout_s=1)
    assert proxy.reached.wait(10)


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("sc://localhost:15002", True), ("sc://LOCALHOST", True), ("sc://127.0.0.1:1/;token=a", True),
        ("sc://127.9.9.9:1", True), ("sc://[::1]:15002/", True), ("sc://spark.example:15002", False),
        ("sc://10.0.0.1:15002", False), ("sc://localhost.example:1", False),
    ],
)  # fmt: skip
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
    with pytest.raises(ValueError, match="a bad plan"), bounded(other, ""):
        raise ValueError("a bad plan")
    assert not other.closed.is_set()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_deadline_that_is_no_number_of_seconds_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
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
    with (
        ours,
        socket.socket(socket.AF_UNIX) as listener,
        reachable(tmp_path / "s") as name,
    ):
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
    assert response == {
        "ok": False, "error": "Spark Connect at sc://localhost:1 accepted no connection within 60 s"
    }  # fmt: skip


def test_an_owner_that_cannot_start_says_why_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(spark_client.RENDEZVOUS, raising=False)
    (tmp_path / "spark.log").mkdir()
    with pytest.raises(SparkError, match=r"did not start: .*Is a directory.*spark\.log"):
        SparkHandle(tmp_path).request()


def test_options_for_every_jvm_do_not_reach_harrows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in jvm.JAVA_OPTIONS:
        monkeypatch.setenv(name, "-Xmx16m")
    assert not set(jvm.JAVA_OPTIONS) & set(jvm.environment("token"))
