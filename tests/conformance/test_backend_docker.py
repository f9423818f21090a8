"""The backend `docker`: a test that was written for Harrow's brokers runs on Kafka in containers (J2)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_leftovers import await_nothing_left, containers, networks_of, processes_of, volumes_of
from harrow import Harrow, VerdictError, cut, follower, isolate, kill, leader, lose_response, pause
from harrow.harness.backends.docker.source import DockerClusters
from kafka_and_store import faults_of_a_store_act_beside_those_of_kafka
from kafka_image import MISSING, kafka_image
from load_on_cluster import produce_numbers, produce_while_faults_last
from waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

ROOT = Path(__file__).parents[2]
CONTAINER_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def image() -> str:
    """The image with Apache Kafka."""
    return kafka_image()


@pytest.fixture(scope="module")
def kafka(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harrow]:
    """A `Harrow` on three containers, for the tests of this file; each has a topic of its own."""
    folder = tmp_path_factory.mktemp("docker") / "run"
    with Harrow(folder, seed=5, clusters=DockerClusters(image)) as harrow:
        yield harrow


def test_faults_of_containers_links_and_requests_act_and_are_healed(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    faults = (
        kill(leader(orders, 0)),
        pause(leader(orders, 0), seconds=0.5),
        isolate(follower(orders, 0), seconds=0.5),
        cut(leader(orders, 0), direction="in", seconds=0.5),
        lose_response("Produce", nth=3, target=leader(orders, 0)),
    )
    begun = [broker.incarnations for broker in kafka.cluster.brokers.values()]
    produce_while_faults_last(kafka, "orders", *faults)
    brokers = kafka.cluster.brokers.values()
    assert {broker.state for broker in brokers} == {"running"}
    assert sum(broker.incarnations for broker in brokers) == sum(begun) + 1
    verdict = kafka.verify(orders, guarantee="no-loss")
    assert verdict.operation_counts["replica_logs"] == 3, "the containers' data folders are judged"
    for folder in kafka.cluster.folder.glob("broker-*/data/orders-0/*.log"):
        assert folder.stat().st_uid == os.getuid()


def test_faults_of_a_dependency_act_beside_those_of_containers(kafka: Harrow) -> None:
    faults_of_a_store_act_beside_those_of_kafka(kafka)


def test_a_record_that_only_the_leader_had_is_found_missing(kafka: Harrow) -> None:
    weak = kafka.topic("weak", partitions=1)
    produce_numbers(kafka.bootstrap_servers, "weak", range(10), acks="all")
    led = kafka.cluster.leader("weak", 0)
    assert led is not None
    followers = [broker for node, broker in kafka.cluster.brokers.items() if node != led]
    for broker in followers:
        broker.pause()
        assert broker.state == "paused"
    for first in (10, 20, 30):  # a fetch that waits at the leader takes the first batch
        produce_numbers(kafka.bootstrap_servers, "weak", range(first, first + 10), acks=1)
    kafka.cluster.brokers[led].kill()
    assert kafka.cluster.brokers[led].state == "dead"
    for broker in followers:
        broker.resume()
    until(lambda: kafka.cluster.leader("weak", 0) not in (None, led), "another leader", timeout_s=CONTAINER_TIMEOUT_S)
    kafka.cluster.brokers[led].start(CONTAINER_TIMEOUT_S)
    with pytest.raises(VerdictError) as found:
        kafka.verify(weak, guarantee="no-loss")
    assert "lost-write" in found.value.verdict.anomaly_names()


def test_the_example_and_applications_of_the_gallery_run_unchanged(image: str, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    example = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "place_orders" in block)
    (tmp_path / "test_readme.py").write_text(example)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            str(tmp_path / "test_readme.py"),
            str(ROOT / "examples" / "gallery"),
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            "-rs",
            "-q",
            "-c",
            str(ROOT / "pyproject.toml"),
            "-k",
            "no_order_is_lost or no_idempotence or acks_one",
            "--harrow-backend=docker",
            f"--harrow-image={image}",
            f"--harrow-out={tmp_path / 'out'}",
            "--harrow-scope=test",
        ],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_nothing_is_left_of_a_worker_that_was_killed(image: str, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from harrow.harness.backends.docker.source import DockerClusters\n"
        "source = DockerClusters(sys.argv[1])\n"
        "cluster = source.acquire(Path(sys.argv[2]), brokers=1, config={}, seed=3)\n"
        "cluster.brokers[1].pause()\n"
        "from harrow.harness.backends.docker.daemon import OWNER, owner\n"
        "print(f'{OWNER}={owner()}', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, image, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        label = worker.stdout.readline().strip()
        assert len(containers(label)) == 1, "the node runs"
        assert processes_of(tmp_path), "the proxy runs"
        assert networks_of(label) == {"host"}, "no network is made that could be left"
        used = volumes_of(label)
        worker.send_signal(signal.SIGKILL)
    await_nothing_left(label, tmp_path, used, CONTAINER_TIMEOUT_S)
