"""`python -m harrow.cluster` with words: the commands of the image, as processes of this machine (A7, J2)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from harrow.cluster.by_hand import listeners_of, parser, settings_of, shared_listeners
from harrow.cluster.config import BrokerConfig
from harrow.cluster.listeners import Address, parse_listeners
from harrow.cluster.ports import LOOPBACK, ReservedPort
from load_on_cluster import produce_numbers
from waiting import until

pytestmark = pytest.mark.xdist_group("port 29092")
"""Each broker that is started by words binds it for other brokers."""


class Process:
    """One command that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self) -> dict[str, Any]:
        """Return the next status line."""
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.code()

    def code(self) -> int:
        """Wait for the end and return the exit code."""
        return self._process.wait(60)


@contextmanager
def harrow_cluster(*words: str) -> Generator[Process]:
    command = [sys.executable, "-P", "-m", "harrow.cluster", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that no other test is given."""
    held = ReservedPort()
    yield held.number
    held.release()


def addresses_of(servers: str) -> dict[int, str]:
    """The address of each broker, as a client sees it."""
    found = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).brokers
    return {node: f"{broker.host}:{broker.port}" for node, broker in found.items()}


def test_up_serves_a_cluster_at_the_advertised_address_until_a_signal(port: int, tmp_path: Path) -> None:
    words = ["up", "--brokers=1", f"--advertise=localhost:{port}", f"--data={tmp_path}"]
    with harrow_cluster(*words) as cluster:
        assert cluster.line() == {"event": "ready", "bootstrap_servers": f"localhost:{port}"}
        assert addresses_of(f"localhost:{port}") == {1: f"localhost:{port}"}
        produce_numbers(f"localhost:{port}", "orders", range(5))
        assert cluster.end() == 0
    assert list(tmp_path.glob("broker-1/data/orders-0/*.log"))


def test_a_registry_and_a_broker_find_each_other(port: int, tmp_path: Path) -> None:
    registry_port = ReservedPort()
    with (
        harrow_cluster("registry", f"--port={registry_port.number}", f"--data={tmp_path}") as registry,
        harrow_cluster(
            "broker",
            "--id=7",
            f"--registry=localhost:{registry_port.number}",
            "--brokers=1",
            "--host=localhost",
            f"--advertise=localhost:{port}",
            f"--data={tmp_path}",
            "--set=num.partitions=4",
        ) as broker,
    ):
        assert registry.line()["event"] == "ready"
        assert broker.line() == {"event": "starting", "bootstrap_servers": f"localhost:{port}"}
        assert broker.line()["event"] == "ready"
        assert addresses_of(f"localhost:{port}") == {7: f"localhost:{port}"}
        produce_numbers(f"localhost:{port}", "orders", range(5))
        until(lambda: len(list(tmp_path.glob("broker-7/data/orders-*"))) == 4)
        assert broker.end() == 0
    registry_port.release()


def test_settings_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with harrow_cluster("up", "--set=no.such=1", f"--data={tmp_path}") as cluster:
        line = cluster.line()
        assert (line["event"], cluster.code()) == ("failed", 1)
        assert "no.such" in line["error"]
    with harrow_cluster(
        "broker", "--id=1", "--registry=r:1", "--set=num.partitions=-1", f"--data={tmp_path}"
    ) as broker:
        assert "num.partitions" in broker.line()["error"]
        assert broker.code() == 1


def test_options_of_another_version_are_refused(tmp_path: Path) -> None:
    options = {"role": "registry", "name": "registry", "folder": str(tmp_path), "seed": 1, "version": "99.0"}
    (tmp_path / "options.json").write_text(json.dumps(options))
    with harrow_cluster(str(tmp_path / "options.json")) as process:
        assert "options are of Harrow 99.0" in process.line()["error"]
        assert process.code() == 2


def test_the_image_takes_kafkas_defaults() -> None:
    given = parser().parse_args(["up", "--defaults=kafka", "--set=num.partitions=4"])
    settings = settings_of(given)
    assert settings["group.min.session.timeout.ms"] == 6_000
    assert settings["num.partitions"] == "4"
    assert settings_of(parser().parse_args(["up"])) == {}


def test_each_advertised_address_is_a_listener() -> None:
    given = shared_listeners(2, [Address("localhost", 9092), Address("shop", 19092)])
    assert given["listeners"] == f"CLIENTS://0.0.0.0:9093,CLIENTS2://0.0.0.0:19093,BROKERS://{LOOPBACK}:29093"
    assert given["advertised.listeners"] == f"CLIENTS://localhost:9093,CLIENTS2://shop:19093,BROKERS://{LOOPBACK}:29093"
    alone = listeners_of([Address("localhost", 9092)], Address("broker-3", 29092), bound_host="0.0.0.0")
    clients, brokers = parse_listeners(BrokerConfig.parse(alone))
    assert (clients.advertised, clients.inter_broker) == (("localhost", 9092), False)
    assert (brokers.advertised, brokers.inter_broker) == (("broker-3", 29092), True)


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--advertise=9092"],
        ["up", "--advertise=a:0"],
        ["broker", "--id=1"],
        ["up", "--set=x"],
        ["up", "--defaults=apache"],
    ],
)
def test_words_that_cannot_be_used_end_with_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err
