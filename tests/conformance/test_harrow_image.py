"""Harrow's own image: the backend `docker` with every fault, and containers that the user starts (J2)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from docker_leftovers import await_nothing_left, containers, networks_of, processes_of, volumes_of
from free_ports import first_free
from harrow import (
    Harrow,
    VerdictError,
    controller,
    disk_error,
    failpoint,
    follower,
    isolate,
    jump_clock,
    kill,
    leader,
    lose_response,
    pause,
    pause_registry,
    restart,
    rolling_restart,
    terminate,
    throttle_cpu,
    wipe,
)
from harrow.cluster.errors import ClusterError
from harrow.faults import Fault
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.choice import APACHE, DOCKER, LOCAL, BackendChoice
from harrow.harness.backends.docker.source import DockerClusters, describe
from harrow.harness.backends.kinds import KINDS
from harrow_image import CONTAINERS, MISSING, harrow_image, python_base
from load_on_cluster import produce_numbers, produce_while_faults_last
from local_image import run
from waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

TIMEOUT_S = 60
NUMBERS = count(1)
PORTS = range(24_000, 25_000, 10)


@pytest.fixture(scope="module")
def image() -> str:
    """The image of this source tree."""
    return harrow_image()


@pytest.fixture(scope="module")
def harrow(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harrow]:
    """A `Harrow` on containers, for the tests of this file; each has a topic of its own."""
    folder = tmp_path_factory.mktemp("docker") / "run"
    config = {"harrow.power.loss": True}
    with Harrow(folder, seed=5, clusters=DockerClusters(image), config=config) as made:
        yield made


def test_every_kind_of_fault_acts_on_the_containers_and_is_healed(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=1)
    at = leader(orders, 0)
    faults: tuple[Fault, ...] = (
        kill(at),
        terminate(at),
        restart(controller()),
        pause(at, seconds=0.5),
        isolate(at, seconds=0.5),
        lose_response("Produce", nth=3, target=at),
        failpoint("log.after-append", at),
        disk_error("write", at),
        wipe(follower(orders, 0)),
        jump_clock(at, seconds=0.5),
        throttle_cpu(at, share=0.5, seconds=0.5),
        pause_registry(seconds=0.3),
        rolling_restart(),
    )
    produce_while_faults_last(harrow, "orders", *faults)
    verdict = harrow.verify(orders, guarantee="no-loss")
    assert verdict.operation_counts["replica_logs"] == 3, "the containers' data folders are judged"
    for path in harrow.cluster.folder.glob("broker-*/data/orders-0/*.log"):
        assert path.stat().st_uid == os.getuid()


def test_a_record_that_only_the_leader_had_is_found_missing(harrow: Harrow) -> None:
    weak = harrow.topic("weak", partitions=1)
    led = harrow.cluster.leader("weak", 0)
    assert led is not None
    followers = [broker for node, broker in harrow.cluster.brokers.items() if node != led]
    produce_numbers(harrow.bootstrap_servers, "weak", range(10), acks="all")
    for broker in followers:
        broker.pause()
        assert broker.state == "paused"
    for first in (10, 20, 30):  # a fetch that waits at the leader takes the first batch
        produce_numbers(harrow.bootstrap_servers, "weak", range(first, first + 10), acks=1)
    harrow.cluster.brokers[led].kill()
    for broker in followers:
        broker.resume()
    until(lambda: harrow.cluster.leader("weak", 0) not in (None, led), timeout_s=TIMEOUT_S)
    harrow.cluster.brokers[led].start()
    with pytest.raises(VerdictError) as found:
        harrow.verify(weak, guarantee="no-loss")
    assert "lost-write" in found.value.verdict.anomaly_names()


def test_the_image_is_named_and_one_of_another_version_or_another_system_is_refused(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "(Harrow's brokers)" in describe(image)
    able = KINDS[DOCKER].capabilities_of
    assert able is not None
    assert able(BackendChoice(DOCKER, image)) == KINDS[LOCAL].capabilities()
    assert able(BackendChoice(DOCKER, python_base())) == KINDS[APACHE].capabilities()
    source = DockerClusters(image)
    with pytest.raises(CapabilityError, match=r"the bugs mine are modules that the image"):
        source.acquire(tmp_path / "plants", brokers=1, config={}, seed=1, plants=["mine"])
    with monkeypatch.context() as patched:
        patched.setattr("harrow.harness.backends.docker.harrow_containers.version", {"pytest-harrow": "99.0"}.get)
        with pytest.raises(ClusterError, match=r"the options are of Harrow 99\.0; build the image"):
            source.acquire(tmp_path / "version", brokers=1, config={}, seed=1)
    with pytest.raises(CapabilityError, match=r"no jars of Kafka .*Redpanda's too, .*--harrow-backend=external"):
        describe(python_base())


def test_a_planted_bug_of_harrow_is_in_the_image(image: str, tmp_path: Path) -> None:
    source = DockerClusters(image)
    cluster = source.acquire(tmp_path, brokers=1, config={}, seed=1, plants=["harrow.faults.zoo.kip_101"])
    try:
        assert "plants" in (cluster.folder / "broker-1" / "trace.jsonl").read_text()
    finally:
        source.release(cluster)


def test_nothing_is_left_of_a_worker_that_was_killed(image: str, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from harrow.harness.backends.docker.source import DockerClusters\n"
        "from harrow.harness.backends.docker.daemon import OWNER, owner\n"
        "cluster = DockerClusters(sys.argv[1]).acquire(Path(sys.argv[2]), brokers=1, config={}, seed=3)\n"
        "cluster.brokers[1].pause()\n"
        "print(f'{OWNER}={owner()} {cluster.brokers[1].pid} {cluster.registry.pid}', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, image, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        label, *pids = worker.stdout.readline().split()
        assert len(containers(label)) == 2, "the broker and the registry run"
        assert processes_of(tmp_path)
        assert networks_of(label) == {"host"}, "no network is made that could be left"
        used = volumes_of(label)
        assert used, "the image declares a volume"
        worker.send_signal(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), timeout_s=TIMEOUT_S)
    await_nothing_left(label, tmp_path, used, TIMEOUT_S)


# ------------------------------------------------------------------ containers that the user starts


@contextmanager
def network() -> Generator[tuple[str, list[str]]]:
    """A network of the daemon and a list for containers, both removed at the end."""
    name = f"harrow-test-{os.getpid()}-{next(NUMBERS)}"
    run("docker", "network", "create", name)
    started: list[str] = []
    try:
        yield name, started
    finally:
        for container in started:
            subprocess.run(["docker", "rm", "--force", "--volumes", container], check=True, stdout=subprocess.DEVNULL)
        run("docker", "network", "rm", name)


def said(container: str, event: str) -> list[dict[str, Any]]:
    """The status lines of a container with one event."""
    rows = [json.loads(line) for line in run("docker", "logs", container).splitlines() if line.startswith("{")]
    return [row for row in rows if row["event"] == event]


def test_one_container_serves_a_cluster_whose_records_outlive_its_restart(image: str) -> None:
    port = first_free(PORTS, range(2))
    with network() as (name, started):
        published = [word for number in (port, port + 1) for word in ("-p", f"127.0.0.1:{number}:{number}")]
        words = ["up", "--brokers=2", f"--advertise=localhost:{port}", "--advertise=shop-kafka:19092"]
        started.append(run("docker", "run", "-d", "--network", name, *published, image, *words).strip())
        until(lambda: said(started[0], "ready"), timeout_s=TIMEOUT_S)
        servers = said(started[0], "ready")[0]["bootstrap_servers"]
        assert servers == f"localhost:{port},localhost:{port + 1}"
        produce_numbers(servers, "orders", range(20), acks="all")
        run("docker", "restart", started[0])
        until(lambda: len(said(started[0], "ready")) == 2, timeout_s=TIMEOUT_S)
        assert end_offset(servers, "orders") == 20


def test_the_brokers_of_the_compose_file_survive_a_killed_container(image: str) -> None:
    port = first_free(PORTS, range(6))
    text = (CONTAINERS / "compose.yaml").read_text()
    shifted = re.sub(r"\b909([246])\b", lambda found: str(port + int(found[1]) - 2), text)
    services = yaml.safe_load(shifted)["services"]
    with network() as (name, started):
        ids: dict[str, str] = {}
        for service, row in services.items():
            ports = [word for published in row.get("ports", ()) for word in ("-p", published)]
            words = ["--network", name, "--network-alias", service, *ports, image, *row["command"]]
            ids[service] = run("docker", "run", "-d", *words).strip()
            started.append(ids[service])
        brokers = [service for service in services if service != "registry"]
        for service in brokers:
            until(partial(said, ids[service], "ready"), timeout_s=TIMEOUT_S)
        servers = ",".join(said(ids[service], "starting")[0]["bootstrap_servers"] for service in brokers)
        assert servers == f"localhost:{port},localhost:{port + 2},localhost:{port + 4}"
        admin = AdminClient({"bootstrap.servers": servers})
        until(lambda: len(admin.list_topics(timeout=10).brokers) == 3, timeout_s=TIMEOUT_S)
        produce_numbers(servers, "orders", range(20), acks="all")
        inside = run("docker", "exec", ids["broker-2"], "python", "-c", LOOK_FROM_INSIDE)
        assert inside.split() == ["broker-1:19092", "broker-2:19092", "broker-3:19092"]
        run("docker", "kill", ids["broker-1"])
        produce_numbers(servers, "orders", range(20, 40), acks="all")
        run("docker", "start", ids["broker-1"])
        produce_numbers(servers, "orders", range(40, 60), acks="all")
        assert end_offset(servers, "orders") == 60


LOOK_FROM_INSIDE = """
from harrow.cluster.listeners import Address
from harrow.harness.backends.apache.kafka_views import metadata

for broker in sorted(metadata(Address("broker-2", 19092), topics=()).brokers, key=lambda row: row.node_id):
    print(f"{broker.host}:{broker.port}")
"""


def end_offset(servers: str, topic: str) -> int:
    """The end of partition 0 of a topic."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": "check"})
    try:
        watermarks: Any = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        return int(watermarks[1])
    finally:
        reader.close()
