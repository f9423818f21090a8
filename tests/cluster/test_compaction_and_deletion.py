"""Compaction interrupted by a crash (B8), DeleteRecords, retention and topic deletion (B7) on real brokers."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow import Cluster
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.admin import NewTopic as PlacedTopic
from kafka.structs import TopicPartition as Where
from kafka_python_admin import SOCKETS, admin_of
from load_on_cluster import ONE_IN_FLIGHT
from long_runs import some
from topics_and_traces import trace_events
from waiting import until

CONFIG: dict[str, object] = {
    "log.retention.check.interval.ms": 100,
    "log.segment.delete.delay.ms": 200,
    "log.cleaner.backoff.ms": 50,
    "offsets.topic.num.partitions": 1,
    "replica.fetch.wait.max.ms": 100,
}


def make_topic(cluster: Cluster, config: Mapping[str, str], replicas: int) -> str:
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    name = f"t-{uuid.uuid4().hex[:8]}"
    topic = NewTopic(name, num_partitions=1, replication_factor=replicas, config=dict(config))
    admin.create_topics([topic])[name].result(30)
    return name


def produce(
    cluster: Cluster, topic: str, pairs: Sequence[tuple[str, str]], meanwhile: Callable[[], None] = lambda: None
) -> int:
    """Produces `pairs` and returns how many were acknowledged; calls `meanwhile` while they are in flight."""
    landed: list[int | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "batch.num.messages": 10,
            "linger.ms": 2,
            "enable.idempotence": True,
            "retry.backoff.ms": 20,
            "log_level": 0,
            **ONE_IN_FLIGHT,
        }
    )
    for key, value in pairs:
        producer.produce(
            topic, value, key, partition=0, on_delivery=lambda e, m: landed.append(m.offset()) if not e else None
        )
    producer.poll(0)
    meanwhile()
    producer.flush(60)
    return len(landed)


def read_all(cluster: Cluster, topic: str) -> dict[int, tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    try:
        for _ in range(100_000):
            message = consumer.poll(30)
            assert message is not None, "no end of the partition"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return found
            offset = message.offset()
            assert offset is not None
            found[offset] = (message.key(), message.value())
    finally:
        consumer.close()
    raise AssertionError("too many records")


def events(cluster: Cluster, node: int, name: str, topic: str) -> list[dict[str, Any]]:
    return [row for row in trace_events(cluster, node, name) if row.get("topic", topic) == topic]


def files(cluster: Cluster, node: int, topic: str) -> list[str]:
    folder = cluster.brokers[node].folder / "data" / f"{topic}-0"
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def single() -> Iterator[Cluster]:
    with Cluster(brokers=1, config={**CONFIG, "offsets.topic.replication.factor": 1}) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "failpoint",
    some(["cleaner.between-swap-renames", "cleaner.between-deleted-renames", "cleaner.between-final-renames"], suite=1),
)
def test_killing_a_broker_during_compaction_loses_nothing(single: Cluster, failpoint: str) -> None:
    config = {"cleanup.policy": "compact", "internal.segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
    topic = make_topic(single, config, 1)
    broker = single.brokers[1]
    single.control(1, "rules.add", kind="failpoint", name=failpoint, action="crash", nth=2)
    pairs = [(f"key-{n % 7}", f"value {n} " + "x" * 50) for n in range(400)]

    def die_and_come_back() -> None:
        broker.wait_dead(30)
        broker.start()

    assert produce(single, topic, pairs, die_and_come_back) == 400
    until(lambda: any(row["end"] > 300 for row in events(single, 1, "log.cleaned", topic)))
    left = read_all(single, topic)
    assert len(left) < 200
    last = {key.encode(): value.encode() for key, value in pairs}
    assert {key: value for _, (key, value) in sorted(left.items())} == last
    assert not [name for name in files(single, 1, topic) if name.endswith((".swap", ".cleaned"))]
    until(lambda: not [name for name in files(single, 1, topic) if name.endswith(".deleted")])


@SOCKETS
def test_compacted_logs_are_replicated_and_kept_when_the_policy_changes() -> None:
    """A new follower copies the gaps that an earlier policy left; a crash of all brokers removes no record."""
    with Cluster(brokers=2, config={**CONFIG, "min.insync.replicas": 1}) as cluster:
        config = {"cleanup.policy": "compact", "internal.segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
        with admin_of(cluster) as admin:
            admin.create_topics([PlacedTopic("kept", replica_assignments={0: [1]}, topic_configs=config)])
            pairs = [(f"key-{n % 40 if n % 100 < 80 else n}", f"{n}" * 40) for n in range(600)]
            assert produce(cluster, "kept", pairs) == 600
            active = max(name for name in files(cluster, 1, "kept") if name.endswith(".log"))
            until(
                lambda: any(row["end"] == int(Path(active).stem) for row in events(cluster, 1, "log.cleaned", "kept")),
                "the cleaning of all but the active segment: a cleaning that goes on finishes under another policy",
            )
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "kept", {"cleanup.policy": "delete"})])
            admin.alter_partition_reassignments({Where("kept", 0): [1, 2]})
            until(lambda: set(cluster.describe().topics["kept"][0].isr) == {1, 2})
        left = read_all(cluster, "kept")
        assert 40 < len(left) < 400
        for broker in cluster.brokers.values():
            broker.kill()
        for broker in cluster.brokers.values():
            broker.start()
        cluster.await_full_isr(30)
        assert read_all(cluster, "kept") == left
        assert not events(cluster, 1, "log.gap-closed", "kept")
        assert not events(cluster, 2, "log.gap-closed", "kept")
        cluster.await_converged()


def test_producing_a_record_without_a_key_to_a_compacted_topic_is_refused(single: Cluster) -> None:
    topic = make_topic(single, {"cleanup.policy": "compact"}, 1)
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": single.bootstrap_servers, "message.timeout.ms": 10_000})
    producer.produce(topic, b"value", on_delivery=lambda e, _m: errors.append(e))
    producer.flush(30)
    assert [error.name() for error in errors] == ["INVALID_RECORD"]


def test_retention_deletes_old_segments_and_their_files(single: Cluster) -> None:
    topic = make_topic(single, {"internal.segment.bytes": "4000", "retention.bytes": "8000"}, 1)
    assert produce(single, topic, [("k", "x" * 200)] * 100) == 100
    until(lambda: len([n for n in files(single, 1, topic) if n.endswith(".log")]) <= 4)
    until(lambda: not [n for n in files(single, 1, topic) if n.endswith(".deleted")])
    left = read_all(single, topic)
    assert 10 <= len(left) < 60
    assert max(left) == 99


def test_deleting_a_topic_renames_its_folder_and_then_removes_it(single: Cluster) -> None:
    topic = make_topic(single, {"file.delete.delay.ms": "2000"}, 1)
    produce(single, topic, [("k", "v")])
    data = single.brokers[1].folder / "data"
    assert (data / f"{topic}-0").is_dir()
    admin: Any = AdminClient({"bootstrap.servers": single.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)

    def marked() -> list[Path]:
        return [p for p in data.iterdir() if re.fullmatch(rf"{topic}-0\.[0-9a-f]{{32}}-delete", p.name)]

    until(lambda: len(marked()) == 1)
    assert not (data / f"{topic}-0").exists()
    single.brokers[1].kill()
    single.brokers[1].start()  # the start removes the renamed folder
    until(lambda: not marked())


def delete_before(cluster: Cluster, topic: str, offset: int) -> int:
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)], request_timeout=30).values()
    return int(future.result(30).low_watermark)


def test_deleting_records_removes_them_on_every_replica_across_restarts() -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        topic = make_topic(cluster, {"internal.segment.bytes": "2000"}, 3)
        assert produce(cluster, topic, [("k", "x" * 100)] * 60) == 60

        def starts() -> set[int]:
            rows = [row for node in cluster.brokers for row in cluster.control(node, "state")["partitions"]]
            return {row["log_start"] for row in rows if row["topic"] == topic}

        assert delete_before(cluster, topic, 25) == 25
        assert starts() == {25}, "the response waits for the followers"
        assert min(read_all(cluster, topic)) == 25
        first = f"{0:020d}.log"
        until(lambda: not any(first in files(cluster, node, topic) for node in cluster.brokers))
        with pytest.raises(KafkaException) as refused:
            delete_before(cluster, topic, 61)
        assert refused.value.args[0].name() == "OFFSET_OUT_OF_RANGE"
        compacted = make_topic(cluster, {"cleanup.policy": "compact"}, 1)

        def refused_by_policy() -> bool:
            with pytest.raises(KafkaException) as refused:
                delete_before(cluster, compacted, 0)
            name = refused.value.args[0].name()
            # a broker, or the client itself, may not have metadata of the new topic yet
            assert name in ("POLICY_VIOLATION", "UNKNOWN_TOPIC_OR_PART", "_NOENT"), name
            return bool(name == "POLICY_VIOLATION")

        until(refused_by_policy)
        for broker in cluster.brokers.values():
            broker.restart()
        cluster.await_full_isr(30)
        assert starts() == {25}
        assert delete_before(cluster, topic, -1) == 60  # the high watermark
        assert read_all(cluster, topic) == {}
        assert produce(cluster, topic, [("k", "later")]) == 1
        assert list(read_all(cluster, topic)) == [60]
