"""The supervisor and its processes: start, signals, ports, orphans, input that cannot be used (D4, J3)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from harrow import Cluster, HarrowError
from harrow.harness.commands.up import advertised_listeners, command
from raw_kafka import RawKafka
from waiting import until

UP = [str(Path(sys.executable).with_name("harrow")), "up"]


def produce(cluster: Cluster, topic: str, value: bytes) -> list[int | None]:
    """Produce `value` once to partition 0 with acks=all; returns the offsets of its delivery reports."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    offsets: list[int | None] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda e, m: offsets.append(m.offset()))
    assert producer.flush(30) == 0
    return offsets


@contextlib.contextmanager
def harrow_up(*arguments: str) -> Generator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`harrow up`, and the JSON line that it prints; killed at the end, however the test ends."""
    command = [*UP, *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            yield up, json.loads(up.stdout.readline())
        finally:
            up.kill()


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_a_dead_broker_refuses_connections_and_keeps_its_port() -> None:
    with Cluster(brokers=1) as cluster:
        broker = cluster.brokers[1]
        port, pid = broker.port, broker.pid
        socket.create_connection(("127.0.0.1", port), 5).close()
        broker.kill()
        assert broker.state == "dead"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind(("127.0.0.1", port))
        broker.start()
        assert (broker.port, broker.state) == (port, "running")
        assert broker.pid != pid
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_pause_and_resume_change_the_state_that_the_kernel_reports() -> None:
    with Cluster(brokers=1) as cluster:
        broker = cluster.brokers[1]
        broker.pause()
        assert broker.state == "paused"
        broker.resume()
        assert broker.state == "running"
        broker.pause()
        broker.kill()
        assert broker.state == "dead"


def test_a_cluster_on_an_earlier_folder_starts_with_its_records(tmp_path: Path) -> None:
    for round_number in range(2):
        with Cluster(brokers=3, folder=tmp_path / "data") as cluster:
            assert produce(cluster, "kept", b"v") == [round_number]
            cluster.stop(graceful=round_number == 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"brokers": 0}, "brokers=0"),
        ({"port": 65535}, "port=65535"),
        ({"config": {"replica.lag.time.max": 5}}, "did you mean replica.lag.time.max.ms"),
        ({"config": {"min.insync.replicas": "two"}}, "expected a whole number"),
        ({"config": {"num.partitions": 0}}, "from 1 to"),
        ({"config": {"listeners": "CLIENTS://h:1"}}, "inter.broker.listener.name=BROKERS"),
        ({"broker_config": {1: {"listeners": "BROKERS:9092"}}}, "is not NAME://host:port"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_before_any_process_starts(
    arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(HarrowError, match=words):
        Cluster(**arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - that is the test


def test_a_port_in_use_is_named_in_the_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HarrowError, match=f"port {port} of 127.0.0.1 is in use"):
            Cluster(brokers=1, port=port - 1).start()


def test_up_prints_a_json_line_and_ends_with_sigterm(tmp_path: Path) -> None:
    data = tmp_path / "d"
    settings = ("--brokers", "1", "--data", str(data), "--set", "num.partitions=2")
    with harrow_up(*settings) as (up, ready):
        assert set(ready) == {"bootstrap_servers", "brokers", "registry", "data", "planted"}
        (broker,) = ready["brokers"]
        assert ready["bootstrap_servers"] == f"{broker['host']}:{broker['port']}"
        up.send_signal(signal.SIGTERM)
        assert up.wait(30) == 0
    until(lambda: has_ended(broker["pid"]) and has_ended(ready["registry"]["pid"]))
    assert (data / "broker-1" / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--brokers", "none"], "is not a valid integer"),
        (["--set", "no-equals"], "expected NAME=VALUE"),
        (["--set", "no.such=1"], "no such broker setting"),
        (["--data", "/proc/nowhere"], "cannot be"),
    ],
)
def test_up_with_arguments_that_cannot_be_used_names_them(arguments: list[str], words: str) -> None:
    done = subprocess.run([*UP, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert words in done.stderr


def test_kill_9_of_the_supervising_process_ends_every_process() -> None:
    with harrow_up("--brokers", "2") as (up, ready):
        pids = [broker["pid"] for broker in ready["brokers"]] + [ready["registry"]["pid"]]
        assert not any(map(has_ended, pids))
        os.kill(up.pid, signal.SIGKILL)
        until(lambda: all(map(has_ended, pids)))


def test_a_full_data_folder_ends_the_broker_and_keeps_acknowledged_records(tmp_path: Path) -> None:
    """A limit on file sizes takes the place of a full disk: the append fails in the same call as with ENOSPC."""
    with Cluster(brokers=1, folder=tmp_path / "d", config={"min.insync.replicas": 1}) as cluster:
        pid = cluster.brokers[1].pid
        assert pid is not None
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "message.timeout.ms": 4000})
        outcome: list[object] = []
        producer.produce("full", b"kept", partition=0, on_delivery=lambda e, m: outcome.append(e))
        assert producer.flush(30) == 0
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, 4096))
        producer.produce("full", b"x" * 500_000, partition=0, on_delivery=lambda e, m: outcome.append(e))
        assert producer.flush(30) == 0
        assert outcome[0] is None
        assert outcome[1] is not None
        cluster.brokers[1].wait_dead(20)
        log = (cluster.folder / "broker-1" / "broker.log").read_text()
        assert "the data folder failed" in log
        assert "File too large" in log
        cluster.brokers[1].start()
        assert produce(cluster, "full", b"after") == [1]


def test_a_garbage_frame_closes_only_its_connection() -> None:
    with Cluster(brokers=1) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        producer.produce("g", b"before")
        assert producer.flush(30) == 0
        frames = (
            b"\x00\x00\x00\x10" + b"\xff" * 16,
            b"\x7f\xff\xff\xff",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x80\x00\x00\x00",
        )
        for frame in frames:
            with socket.create_connection(("127.0.0.1", cluster.brokers[1].port), 10) as garbage:
                garbage.sendall(frame)
                with contextlib.suppress(ConnectionResetError):
                    assert garbage.recv(1) == b""
        producer.produce("g", b"after")
        assert producer.flush(30) == 0
        log = (cluster.folder / "broker-1" / "broker.log").read_text()
        assert log.lower().count("warning") >= len(frames)


def test_harrow_up_takes_kafkas_defaults_an_advertised_host_and_settings_of_one_broker() -> None:
    arguments = ("--brokers=2", "--defaults=kafka", "--advertise=localhost", "--set=2:broker.rack=b")
    with harrow_up(*arguments, "--set=num.partitions=5") as (up, shown):
        assert [row["host"] for row in shown["brokers"]] == ["localhost"] * 2
        ports = {row["id"]: row["port"] for row in shown["brokers"]}
        assert shown["bootstrap_servers"] == ",".join(f"localhost:{port}" for port in ports.values())
        with RawKafka(ports[1]) as raw:
            nodes = {row.node_id: (row.host, row.port, row.rack) for row in raw.metadata().brokers}
            assert nodes == {1: ("localhost", ports[1], None), 2: ("localhost", ports[2], "b")}
            config = described(raw, "1")
        assert config["num.partitions"] == "5"
        assert config["group.initial.rebalance.delay.ms"] == "3000"
        assert config["offsets.topic.replication.factor"] == "3"
        assert config["harrow.replica.silence.max.ms"] == "0"
        up.terminate()
        assert up.wait(60) == 0


def described(raw: RawKafka, node: str) -> dict[str, str]:
    return {row.name: row.value for row in raw.settings(4, node).configs}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "4:broker.rack=b"], "there is no broker 4; expected a number from 1 to 3"),
        (["--set", "2:broker.rack"], "expected NAME=VALUE"),
        (["--advertise", "shop", "--set", "listeners=A://:0"], "give --advertise or --set listeners"),
        (["--defaults", "apache"], "'apache' is not one of 'harrow', 'kafka'"),
    ],
)
def test_words_of_harrow_up_that_cannot_be_used_are_usage_errors(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert problem in result.output


@pytest.mark.parametrize(
    ("host", "listeners", "advertised"),
    [
        ("localhost", "CLIENTS://127.0.0.1:0", "CLIENTS://localhost:0"),
        ("shop.test", "CLIENTS://0.0.0.0:0", "CLIENTS://shop.test:0"),
        ("fe80::1", "CLIENTS://0.0.0.0:0", "CLIENTS://[fe80::1]:0"),
    ],
)
def test_an_advertised_host_that_other_machines_reach_is_served_on_all_interfaces(
    host: str, listeners: str, advertised: str
) -> None:
    assert advertised_listeners(host, ()) == {
        "listeners": f"{listeners},BROKERS://127.0.0.1:0",
        "advertised.listeners": f"{advertised},BROKERS://127.0.0.1:0",
    }
