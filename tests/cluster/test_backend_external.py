"""The backend `external`: a test on a cluster that Harrow did not start, which here is another one of ours (J2, J6)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from echo_service import EchoService
from harrow import (
    Cluster,
    Harrow,
    VerdictError,
    dependency,
    isolate,
    kill,
    leader,
    lose_response,
    refuse_request,
    reset,
)
from harrow.cluster.errors import HarrowError
from harrow.faults.errors import CapabilityError
from harrow.faults.schedule import Schedule
from harrow.harness.backends.choice import EXTERNAL
from harrow.harness.backends.external.external_cluster import ExternalCluster
from harrow.harness.backends.external.source import ExternalClusters
from harrow.harness.backends.external.system import ExternalSystem
from harrow.harness.backends.kinds import KINDS
from harrow.harness.run.harrow import run_of
from load_on_cluster import produce_numbers, produce_while_faults_last
from long_runs import long_run
from store_client import asking
from waiting import until

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that runs before and after each test."""
    with Cluster(brokers=3, folder=tmp_path_factory.mktemp("theirs"), seed=1) as cluster:
        yield cluster


@pytest.fixture
def external(theirs: Cluster, tmp_path: Path) -> Iterator[Harrow]:
    """A `Harrow` on it."""
    source = ExternalClusters(theirs.bootstrap_servers)
    with Harrow(tmp_path / "run", seed=5, clusters=source) as harrow:
        yield harrow


def create(servers: str, *topics: str, **config: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": servers})
    new = [NewTopic(name, num_partitions=1, replication_factor=3, config=config) for name in topics]
    for created in admin.create_topics(new).values():
        created.result(30)


def delete(servers: str, topic: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(30)


@long_run
def test_applications_of_the_gallery_are_judged_unchanged(theirs: Cluster, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            str(GALLERY),
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "-rs",
            "-q",
            "-k",
            "no_idempotence or several_in_flight or acks_one",
            "--harrow-backend=external",
            f"--harrow-bootstrap={theirs.bootstrap_servers}",
            f"--harrow-out={tmp_path}",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert re.search(r"4 passed, 2 skipped", done.stdout), done.stdout + done.stderr
    assert "zookeeper.session.timeout.ms=500" in done.stdout, "why acks_one is skipped"
    assert [name for name in theirs.describe().topics if not name.startswith("__")] == []


def test_faults_of_requests_and_of_clients_links_act_and_others_are_missing(external: Harrow, theirs: Cluster) -> None:
    orders = external.topic("orders")
    starts = [broker.incarnations for broker in theirs.brokers.values()]
    faults = (
        lose_response("Produce", nth=3, target=leader(orders, 0)),
        refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=3, target=leader(orders, 0)),
        isolate(leader(orders, 0), peers="clients", seconds=0.3),
    )
    sent = 0
    with external.chaos(*faults) as chaos:
        while chaos.running:
            produce_numbers(external.bootstrap_servers, "orders", range(sent, sent + 20), acks="all")
            sent += 20
    assert chaos.effects == len(faults)
    verdict = external.verify(orders, guarantee="no-loss")
    assert any("the logs on the brokers' disks were not judged" in note for note in verdict.notes)
    for fault in (kill(leader(orders)), isolate(leader(orders))):
        with pytest.raises(CapabilityError, match=r"'(process|links)'.*'external'"):
            external.chaos(fault)
    kinds = run_of(external).possible_kinds(["kill", "pause"])
    assert set(kinds) == {"lose_request", "delay_request"}, "all that the backend can"
    assert isinstance(external.cluster, ExternalCluster)
    assert ExternalSystem(external.cluster).capabilities == KINDS[EXTERNAL].capabilities()
    with pytest.raises(CapabilityError, match="Harrow did not start"):
        external.cluster.brokers[1].kill()
    assert [broker.incarnations for broker in theirs.brokers.values()] == starts


def test_faults_of_a_dependency_act_beside_those_of_the_cluster_and_are_replayed(external: Harrow) -> None:
    orders, service = external.topic("stored"), EchoService()
    faults = (
        isolate(dependency("store"), seconds=0.2, heals_by="reset"),
        reset(dependency("store")),
        lose_response("Produce", nth=3, target=leader(orders, 0)),
    )
    with asking(external.dependency("store", str(service.address))) as client:
        produce_while_faults_last(external, "stored", *faults)
        first = Schedule.from_json(external.schedule.to_json())
        produce_while_faults_last(external, "stored", schedule=first)
        client.await_answer()
    service.close()
    assert [step.details for step in external.schedule.steps] == [step.details for step in first.steps]
    assert client.errors == ["ConnectionResetError"] * 4
    assert external.verify(orders, guarantee="no-loss").valid


def test_a_record_that_the_cluster_lost_is_found_missing(external: Harrow, theirs: Cluster) -> None:
    create(theirs.bootstrap_servers, "weak", **{"unclean.leader.election.enable": "true"})
    topic = "weak"
    produce_numbers(external.bootstrap_servers, topic, range(10), acks="all")
    led = theirs.leader(topic, 0)
    assert led is not None
    followers = [broker for node, broker in theirs.brokers.items() if node != led]
    for broker in followers:
        broker.pause()
    weak = {"acks": 1, "enable.idempotence": False}
    for first in (10, 20, 30):  # a fetch that waits at the leader takes the first batch
        produce_numbers(external.bootstrap_servers, topic, range(first, first + 10), **weak)
    theirs.brokers[led].kill()
    for broker in followers:
        broker.resume()
    until(lambda: theirs.leader(topic, 0) not in (None, led), "another leader")
    theirs.brokers[led].start()
    theirs.await_full_isr()
    with pytest.raises(VerdictError) as found:
        external.verify(topic, guarantee="no-loss")
    assert "lost-write" in found.value.verdict.anomaly_names()
    external.close()
    assert topic in theirs.describe().topics, "Harrow did not create it"
    delete(theirs.bootstrap_servers, topic)


def test_topics_of_the_test_end_with_it_and_no_other_topic_does(theirs: Cluster, tmp_path: Path) -> None:
    create(theirs.bootstrap_servers, "precious")
    source = ExternalClusters(theirs.bootstrap_servers)
    with Harrow(tmp_path / "run", seed=5, clusters=source) as harrow:
        for name in ("first", "second"):
            harrow.topic(name)
        with pytest.raises(HarrowError, match=r"topic precious could not be created: it exists.*another name"):
            harrow.topic("precious")
        delete(theirs.bootstrap_servers, "second")
        until(lambda: "second" not in theirs.describe().topics, "it is deleted")
        create(theirs.bootstrap_servers, "second")
    kept = {"precious", "second"}  # the second one is another program's by now
    until(
        lambda: {name for name in theirs.describe().topics if name[0] != "_"} == kept,
        "the registry has no topic of the test",
    )
    for name in kept:
        delete(theirs.bootstrap_servers, name)


def test_a_topic_that_was_created_again_cannot_be_judged(external: Harrow, theirs: Cluster) -> None:
    orders = external.topic("orders")
    produce_numbers(external.bootstrap_servers, "orders", range(5))
    delete(theirs.bootstrap_servers, "orders")
    until(lambda: "orders" not in theirs.describe().topics, "it is deleted")
    create(theirs.bootstrap_servers, "orders")
    with pytest.raises(VerdictError, match="was deleted and created again"):
        external.verify(orders, guarantee="no-loss")
    delete(theirs.bootstrap_servers, "orders")


def test_what_kafka_removed_legally_is_no_loss(external: Harrow) -> None:
    orders = external.topic("orders")
    for values in (range(30), range(30, 50)):
        produce_numbers(external.bootstrap_servers, "orders", values)
    admin: Any = AdminClient({"bootstrap.servers": external.bootstrap_servers})
    where = TopicPartition("orders", 0)
    admin.delete_records([TopicPartition("orders", 0, 30)])[where].result(30)
    with pytest.raises(VerdictError, match="30 acknowledged records of orders-0 are below the log start offset 30"):
        external.verify(orders, guarantee="no-loss")
    admin.delete_records([TopicPartition("orders", 0, 50)])[where].result(30)
    verdict = external.verify(orders, guarantee="best-effort")
    assert not verdict.anomaly_names(), str(verdict)


def test_records_of_transactions_are_judged_as_what_they_are(external: Harrow) -> None:
    orders = external.topic("orders")
    producer: Any = Producer({"bootstrap.servers": external.bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions(30)
    for commits in (True, False, True):
        producer.begin_transaction()
        for number in range(5):
            producer.produce("orders", str(number))
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    expected = [str(number) for number in range(5)] * 2
    with pytest.raises(VerdictError) as found:
        external.verify(orders, guarantee="exactly-once", record_id=lambda record: record.text, expected=range(5))
    verdict = found.value.verdict
    assert set(verdict.anomaly_names()) == {"duplicate"}, str(verdict)
    assert verdict.operation_counts["drained"] == len(expected) + 5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"min.insync.replicas": 3}, r"min\.insync\.replicas=3, and min\.insync\.replicas of these brokers is 2"),
        ({"harrow.power.loss": True}, r"harrow\.power\.loss=true, and harrow\.power\.loss of these brokers is"),
    ],
)
def test_a_setting_that_the_brokers_lack_is_named(
    theirs: Cluster, tmp_path: Path, config: dict[str, object], message: str
) -> None:
    source = ExternalClusters(theirs.bootstrap_servers)
    with Harrow(tmp_path, config=config, clusters=source) as harrow, pytest.raises(CapabilityError, match=message):
        assert harrow.cluster
    with Harrow(tmp_path, config={"min.insync.replicas": 2}, clusters=source) as harrow:
        assert harrow.cluster.config.number("min.insync.replicas") == 2


def test_a_broker_that_starts_later_is_used_too(tmp_path: Path) -> None:
    with Cluster(brokers=2, folder=tmp_path / "theirs") as theirs:
        theirs.brokers[2].terminate()
        admin = AdminClient({"bootstrap.servers": theirs.bootstrap_servers})
        until(lambda: list(admin.list_topics(timeout=5).brokers) == [1], "clients see one broker")
        source = ExternalClusters(f"127.0.0.1:1,{theirs.bootstrap_servers}")
        with Harrow(tmp_path / "run", clusters=source) as harrow:
            assert list(harrow.cluster.brokers) == [1]
            orders = harrow.topic("orders")
            theirs.brokers[2].start()
            until(lambda: theirs.describe().live == frozenset({1, 2}), "both run")

            def seen() -> bool:
                admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
                return len(admin.list_topics(timeout=10).brokers) == 2

            until(seen, "clients find it")
            assert list(harrow.cluster.brokers) == [1, 2]
            assert harrow.cluster.control(2, "links")["rules"] == []
            produce_numbers(harrow.bootstrap_servers, "orders", range(10))
            assert harrow.verify(orders).valid
