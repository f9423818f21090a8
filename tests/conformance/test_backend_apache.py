"""The backend `apache`: a test that was written for Harrow's brokers runs on Apache Kafka, and finds the same (J2)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from harrow import (
    Harrow,
    VerdictError,
    WaitTimeoutError,
    delay_request,
    duplicate_request,
    isolate,
    kill,
    leader,
    lose_request,
    lose_response,
    pause,
    refuse_request,
    slow_disk,
    throttle,
)
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.source import KafkaClusters
from kafka_and_store import faults_of_a_store_act_beside_those_of_kafka
from kafka_reference import JARS
from load_on_cluster import produce_numbers, produce_while_faults_last
from waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

SERVICE = """
    from confluent_kafka import Producer
    from harrow import Harrow, failpoint, kill, leader

    def place_orders(servers):
        producer = Producer({"bootstrap.servers": servers})
        for number in range(50):
            producer.produce("orders", f"order {number}", key=str(number % 7))
            producer.poll(0.002)
        assert producer.flush(60) == 0

    def test_no_order_is_lost(harrow: Harrow):
        orders = harrow.topic("orders", partitions=3)
        with harrow.chaos(kill(leader(orders))) as chaos:
            while chaos.running:
                place_orders(harrow.bootstrap_servers)
        harrow.verify(orders, guarantee="no-loss")

    def test_a_broker_dies_at_a_line_of_its_code(harrow: Harrow):
        orders = harrow.topic("orders", partitions=3)
        with harrow.chaos(failpoint("log.after-append", leader(orders))) as chaos:
            while chaos.running:
                place_orders(harrow.bootstrap_servers)
"""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Harrow]:
    """A `Harrow` on Apache Kafka."""
    with Harrow(tmp_path / "run", seed=5, clusters=KafkaClusters(find_kafka(str(JARS)))) as harrow:
        yield harrow


def test_the_users_test_runs_unchanged_and_what_the_backend_lacks_is_skipped_with_its_reason(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(SERVICE)
    result = pytester.runpytest_subprocess(
        "-p", "no:xdist", "-p", "no:cacheprovider", "-rs", "--harrow-backend=apache", f"--harrow-kafka={JARS}"
    )
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["*backend apache*", "*valid (no-loss)*", "*needs the capability 'failpoints'*'apache'*"]
    )


def test_faults_of_requests_and_of_links_act_on_kafka(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    faults = (
        lose_response("Produce", nth=3, target=leader(orders, 0)),
        refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=3, target=leader(orders, 0)),
        lose_request("Produce", nth=3, target=leader(orders, 0)),
        delay_request("Produce", target=leader(orders, 0), delay_ms=300),
        duplicate_request("Produce", target=leader(orders, 0)),
        throttle(leader(orders, 0), bytes_per_s=20_000, seconds=0.5),
        isolate(leader(orders, 0), peers="clients", seconds=0.5),
        pause(leader(orders, 0), seconds=0.5),
    )
    produce_while_faults_last(kafka, "orders", *faults)
    assert kafka.verify(orders, guarantee="no-loss").valid
    with pytest.raises(CapabilityError, match=r"'slow-disk'.*'apache'"), kafka.chaos(slow_disk(leader(orders))):
        pass


def test_faults_of_a_dependency_act_beside_those_of_kafka(kafka: Harrow) -> None:
    faults_of_a_store_act_beside_those_of_kafka(kafka)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_duplicated_request_doubles_a_batch_unless_the_producer_is_idempotent(
    kafka: Harrow, idempotent: bool
) -> None:
    orders = kafka.topic("orders", partitions=1)
    with kafka.chaos(duplicate_request("Produce", nth=5)) as chaos:
        sent = 0
        while chaos.running:
            settings = {"acks": "all", "enable.idempotence": idempotent}
            produce_numbers(kafka.bootstrap_servers, "orders", range(sent, sent + 20), **settings)
            sent += 20
    if idempotent:
        assert kafka.verify(orders, guarantee="exactly-once").valid
        return
    with pytest.raises(VerdictError) as found:
        kafka.verify(orders, guarantee="exactly-once", record_id=lambda record: record.json)
    assert set(found.value.verdict.anomaly_names()) == {"duplicate"}


def test_a_record_that_only_the_leader_had_is_found_missing(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    produce_numbers(kafka.bootstrap_servers, "orders", range(10), acks="all")
    led = kafka.cluster.leader("orders", 0)
    assert led is not None
    followers = [broker for node, broker in kafka.cluster.brokers.items() if node != led]
    for broker in followers:
        broker.pause()
    for first in (10, 20, 30):  # the leader sends the first batch at once, to fetches that wait at it
        produce_numbers(kafka.bootstrap_servers, "orders", range(first, first + 10), acks=1)
    kafka.cluster.brokers[led].kill()
    for broker in followers:
        broker.resume()
    until(lambda: kafka.cluster.leader("orders", 0) not in (None, led), "another leader")
    kafka.cluster.brokers[led].start()
    with pytest.raises(VerdictError) as found:
        kafka.verify(orders, guarantee="no-loss")
    assert "lost-write" in found.value.verdict.anomaly_names()


def test_what_kafka_removed_legally_is_no_loss(kafka: Harrow) -> None:
    cleaned = kafka.topic(
        "cleaned",
        config={
            "cleanup.policy": "compact",
            "segment.ms": 100,
            "min.cleanable.dirty.ratio": 0.0,
            "max.compaction.lag.ms": 100,
        },
    )
    deleted = kafka.topic("deleted")
    produce_numbers(kafka.bootstrap_servers, "deleted", range(50))
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition("deleted", 0, 30)])[TopicPartition("deleted", 0)].result(30)
    number = 0

    def compacted() -> bool:
        nonlocal number
        produce_numbers(kafka.bootstrap_servers, "cleaned", range(number, number + 20))
        number += 20
        checkpoint = kafka.cluster.brokers[1].folder / "data" / "cleaner-offset-checkpoint"
        return bool(re.search(r"^cleaned 0 [1-9]", checkpoint.read_text(), re.MULTILINE))

    until(compacted, "Kafka's log cleaner has compacted the topic", timeout_s=120)
    verdict = kafka.verify(cleaned, deleted, guarantee="best-effort")
    assert "lost-write" not in verdict.anomaly_names(), str(verdict)
    assert "diverging-replicas" not in verdict.anomaly_names(), str(verdict)


def test_nothing_is_left_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from harrow.harness.backends.apache.installation import find_kafka\n"
        "from harrow.harness.backends.apache.source import KafkaClusters\n"
        "source = KafkaClusters(find_kafka(sys.argv[1]))\n"
        "source.acquire(Path(sys.argv[2]), brokers=1, config={}, seed=3)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(JARS), str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "up\n"
        assert left_below(tmp_path), "the node runs"
        worker.send_signal(signal.SIGKILL)
    until(lambda: not left_below(tmp_path), "no process of the worker is left")


def left_below(folder: Path) -> list[int]:
    """The processes whose words or open files name the folder."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            opened = [os.readlink(file) for file in (process / "fd").iterdir()]
        except OSError:
            continue
        if int(process.name) == os.getpid():
            continue
        if (bytes(folder) in words and b"kafka.Kafka" in words) or any(
            file.startswith(f"{folder}/cluster") for file in opened
        ):
            found.append(int(process.name))
    return found


def test_a_fault_of_a_killed_node_is_healed(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    with kafka.chaos(kill(leader(orders, 0), seconds=0.1)) as chaos:
        while chaos.running:
            produce_numbers(kafka.bootstrap_servers, "orders", range(10), acks="all")
    rows = {broker.state for broker in kafka.cluster.brokers.values()}
    assert rows == {"running"}


BILLING = """
import os
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "group.id": "billing", "client.id": "billing-1",
    "auto.offset.reset": "earliest", "enable.auto.commit": False,
})
consumer.subscribe(["orders"])
while True:
    if (message := consumer.poll(1)) is not None and message.error() is None:
        consumer.commit(message=message, asynchronous=False)
"""


def test_waits_by_responses_see_what_waits_by_taps_see(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions(60)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(4):
            producer.produce("orders", f"order {number}", partition=number % 2)
        producer.flush(60)
        end(60)
    assert kafka.await_records(orders, 4) == 4
    kafka.program("billing", [sys.executable, "-c", BILLING])
    assert kafka.await_assigned("billing", members=1) == 1
    kafka.await_caught_up("billing", orders)
    assert kafka.await_request("OffsetCommit", client="billing*") >= 4
    with pytest.raises(WaitTimeoutError, match="group 'billing' is Stable with 1 member: billing-1-"):
        kafka.await_assigned("billing", members=2, timeout=0.5)
    leader_of_0 = kafka.await_leader(orders)
    kafka.cluster.brokers[leader_of_0].kill()
    assert kafka.await_leader(orders, other_than=leader_of_0) != leader_of_0
