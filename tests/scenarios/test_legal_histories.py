"""What Kafka does legally is never invalid, and unknown where nothing can be said (L6, B7, B8).

Each test drives real brokers by unmodified clients without recorder, unless its name says that the sends are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow import Harrow
from harrow.harness.checks import Status, Verdict
from harrow.harness.errors import VerdictError
from topics_and_traces import trace_events
from waiting import until

FAST: dict[str, object] = {
    "log.retention.check.interval.ms": 100,
    "log.segment.delete.delay.ms": 200,
    "log.cleaner.backoff.ms": 50,
}
SMALL_SEGMENTS = {"internal.segment.bytes": "4000"}
COMPACTED = {**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
GUARANTEE = "exactly-once"


def send(harrow: Harrow, topic: str, records: int, *, value: Callable[[int], str] = str, **config: Any) -> None:
    """Sends records without recorder; each batch has ten."""
    producer = Producer(
        {
            "bootstrap.servers": harrow.bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "linger.ms": 2,
            "log_level": 0,
            **config,
        }
    )
    for number in range(records):
        producer.produce(topic, value(number), f"key {number % 7}", partition=0)
    assert producer.flush(30) == 0


def read(harrow: Harrow, topic: str, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": harrow.bootstrap_servers, "group.id": "app", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < records:
        seen += len(consumer.consume(records - seen, 10))
    consumer.close()


def verdict_of(harrow: Harrow, *topics: str, guarantee: str = GUARANTEE) -> Verdict:
    try:
        return harrow.verify(*topics, guarantee=guarantee)
    except VerdictError as error:
        return error.verdict


def administer(harrow: Harrow, call: str, argument: Any, **settings: Any) -> None:
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    for future in getattr(admin, call)(argument, **settings).values():
        future.result(30)


def await_events(harrow: Harrow, name: str, enough: Callable[[Mapping[str, Any]], bool]) -> None:
    """Waits until every broker has traced such an event of the topic."""

    def seen() -> bool:
        return all(
            any(row.get("topic") == "orders" and enough(row) for row in trace_events(harrow.cluster, node, name))
            for node in harrow.cluster.brokers
        )

    until(seen)


@pytest.mark.harrow(brokers=2, config=FAST)
def test_compacted_log_is_unknown_without_recorder_and_never_invalid(harrow: Harrow) -> None:
    harrow.topic("orders", config=COMPACTED)
    send(harrow, "orders", 400, value=lambda number: f"{number} " + "x" * 50)
    await_events(harrow, "log.cleaned", lambda row: row["end"] > 200)
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.UNKNOWN, str(verdict)
    assert not verdict.anomaly_counts, str(verdict)
    assert "compaction has cleaned orders-0 up to offset" in verdict.reasons[0]


@pytest.mark.harrow(brokers=2, config=FAST)
def test_compacted_log_of_recorded_sends_and_tombstones_is_valid(harrow: Harrow) -> None:
    harrow.topic("orders", config=COMPACTED)
    producer = harrow.producer(batch_num_messages=10)
    for number in range(400):
        gone = number == 100
        producer.produce(
            "orders", None if gone else f"{number} " + "x" * 50, f"key {number % 7 if number < 300 else 9}"
        )
    producer.flush(30)
    await_events(harrow, "log.cleaned", lambda row: row["end"] > 200)
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.VALID, str(verdict)


@pytest.mark.harrow(brokers=2, config=FAST)
@pytest.mark.parametrize("by", ["retention.bytes", "retention.ms"])
def test_retention_is_valid_where_a_client_had_read_what_it_removed(harrow: Harrow, by: str) -> None:
    harrow.topic("orders", config=SMALL_SEGMENTS)
    send(harrow, "orders", 300, value=lambda number: f"{number} " + "x" * 50)
    read(harrow, "orders", 300)
    alter(harrow, {**SMALL_SEGMENTS, by: "8000" if by == "retention.bytes" else "1"})
    await_events(harrow, "log.segments-deleted", lambda row: max(row["base_offsets"]) > 0)
    alter(harrow, {**SMALL_SEGMENTS, by: "-1"})
    send(harrow, "orders", 20)
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.VALID, str(verdict)


def alter(harrow: Harrow, settings: Mapping[str, str]) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    admin: Any = KafkaAdminClient(bootstrap_servers=harrow.bootstrap_servers)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "orders", configs=dict(settings))])
    admin.close()


@pytest.mark.harrow(brokers=2, config=FAST)
@pytest.mark.parametrize("delivered", [False, True])
def test_deleted_records_leave_a_doubt_only_where_no_client_had_read_them(harrow: Harrow, delivered: bool) -> None:
    harrow.topic("orders")
    send(harrow, "orders", 60)
    if delivered:
        read(harrow, "orders", 60)
    administer(harrow, "delete_records", [TopicPartition("orders", 0, 45)])
    verdict = verdict_of(harrow, "orders")
    assert not verdict.anomaly_counts, str(verdict)
    if delivered:
        assert verdict.status is Status.VALID, str(verdict)
    else:
        assert verdict.status is Status.UNKNOWN, str(verdict)
        assert "acknowledged records of orders-0 are below the log start offset 45" in verdict.reasons[0]
    assert verdict_of(harrow, "orders", guarantee="best-effort").status is Status.VALID


@pytest.mark.harrow(brokers=3)
def test_topic_that_was_created_again_is_unknown_and_never_invalid(harrow: Harrow) -> None:
    harrow.topic("orders", partitions=2)
    send(harrow, "orders", 60)
    administer(harrow, "delete_topics", ["orders"])
    until(lambda: "orders" not in harrow.cluster.describe().topics)
    until(lambda: created(harrow))
    send(harrow, "orders", 40, value=lambda number: f"another {number}")
    read(harrow, "orders", 40)
    verdict = verdict_of(harrow, "orders")
    assert not verdict.anomaly_counts, str(verdict)
    assert verdict.status is Status.UNKNOWN, str(verdict)
    assert "topic 'orders' was deleted and created again at" in verdict.reasons[0]


def created(harrow: Harrow) -> bool:
    """Creates the topic again, in the opposite order of brokers; False while the deletion is not complete."""
    from confluent_kafka import KafkaException

    try:
        new = NewTopic("orders", num_partitions=2, replication_factor=3)
        administer(harrow, "create_topics", [new])
    except KafkaException:
        return False
    return True


@pytest.mark.harrow(brokers=2)
def test_topic_that_was_deleted_is_unknown_at_once(harrow: Harrow) -> None:
    harrow.topic("orders")
    send(harrow, "orders", 20)
    administer(harrow, "delete_topics", ["orders"])
    until(lambda: "orders" not in harrow.cluster.describe().topics)
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.UNKNOWN, str(verdict)
    assert not verdict.anomaly_counts, str(verdict)
    assert any("topic 'orders' does not exist when the run ends" in reason for reason in verdict.reasons)


@pytest.mark.harrow(brokers=2)
def test_identical_records_in_one_batch_are_valid(harrow: Harrow) -> None:
    harrow.topic("orders")
    send(harrow, "orders", 200, value=lambda _: "tick", **{"enable.idempotence": False})
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.VALID, str(verdict)


@pytest.mark.harrow(brokers=2)
def test_empty_topic_is_named_beside_another_that_is_not_empty(harrow: Harrow) -> None:
    harrow.topic("orders")
    harrow.topic("bills")
    send(harrow, "orders", 20)
    verdict = verdict_of(harrow)
    assert verdict.status is Status.UNKNOWN, str(verdict)
    assert verdict.reasons == (
        (
            "no record was ever in bills: nothing was sent there, or nothing was acknowledged; where this is right, "
            "name the other topics: verify(topic, …)"
        ),
    )
    assert verdict_of(harrow, "orders").status is Status.VALID


@pytest.mark.harrow(brokers=2, config={"message.max.bytes": 2000})
def test_refused_sends_without_recorder_are_unknown_with_client_and_error(harrow: Harrow) -> None:
    harrow.topic("orders")
    send(harrow, "orders", 20)
    send(harrow, "orders", 3, value=lambda _: "x" * 3000, **{"batch.num.messages": 1})
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.UNKNOWN, str(verdict)
    assert verdict.reasons[0].startswith("brokers refused at least ")
    assert "of rdkafka with MESSAGE_TOO_LARGE, and no record that was" in verdict.reasons[0]


@pytest.mark.harrow(brokers=2, config={"message.max.bytes": 2000})
def test_refused_sends_of_a_recording_producer_are_accounted_for(harrow: Harrow) -> None:
    harrow.topic("orders")
    producer = harrow.producer(batch_num_messages=1)
    for number in range(20):
        producer.produce("orders", "x" * 3000 if number == 7 else str(number))
    producer.flush(30)
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.VALID, str(verdict)
    assert any("1 recorded sends were never acknowledged" in note for note in verdict.notes), verdict.notes


@pytest.mark.harrow(brokers=2)
def test_reader_that_stopped_is_a_note_of_the_verdict(harrow: Harrow) -> None:
    harrow.topic("orders")
    send(harrow, "orders", 20)
    read(harrow, "orders", 20)
    send(harrow, "orders", 30)
    verdict = verdict_of(harrow, "orders")
    assert verdict.status is Status.VALID, str(verdict)
    assert any(
        note.startswith("readers of orders stopped before its end") and "the last 30 records" in note
        for note in verdict.notes
    ), verdict.notes
