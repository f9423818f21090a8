"""The recording clients of kafka-python, on real brokers under faults (J6)."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl
import pytest
from harrow import Harrow, HarrowError, Topic, leader, lose_response, pause, refuse_request
from harrow.harness.histories.format import BREAKS, stable_hash
from harrow.harness.run_settings import RunSettings
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError, KafkaTimeoutError, NotEnoughReplicasError
from kafka.serializer import Deserializer, Serializer
from kafka.structs import TopicPartition
from recorded_sends import RecordedSend, contents_of, judged, reads_of, rows_of, sends_of
from waiting import until

pytestmark = pytest.mark.harrow(scope="session", config={"auto.create.topics.enable": False})
TIMED_OUT = -192
DEADLINE_S = 60


def reported(topic: Topic, futures: list[Any]) -> list[RecordedSend]:
    """What the library reported of each send."""
    sends: list[RecordedSend] = []
    for future in futures:
        try:
            sent = future.get(DEADLINE_S)
        except KafkaTimeoutError:
            sends.append(RecordedSend(topic.name, "info", -1, -1, TIMED_OUT))
        except KafkaError as error:
            sends.append(RecordedSend(topic.name, "info", -1, -1, getattr(error, "errno", 0)))
        else:
            sends.append(RecordedSend(topic.name, "ok", sent.partition, sent.offset, 0))
    return sends


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_send_has_the_result_that_kafka_python_reports(harrow: Harrow, acks: int | str) -> None:
    topic = harrow.topic(f"acks-{acks}", partitions=3)
    producer: Any = harrow.kafka_python.producer(acks=acks, linger_ms=5)
    futures = [
        producer.send(topic.name, b"value %d" % n, key=b"%d" % (n % 4), headers=[("h", b"%d" % n)]) for n in range(60)
    ]
    wanted = reported(topic, futures)
    producer.close()
    assert sends_of(harrow, producer.recorder.name) == wanted
    assert Counter(send.outcome for send in wanted) == {"ok": 60}
    assert contents_of(harrow, producer.recorder.name) == [b"value %d" % n for n in range(60)]
    verdict = judged(harrow, topic)
    assert verdict.valid, verdict
    assert verdict.guarantees == (("exactly-once", "ordered") if acks == "all" else ("best-effort",))
    assert verdict.operation_counts["acknowledged"] == 60
    if acks != 0:  # kafka-python 2 closes its connections before everything has left
        # with acks=1 a new leader may not have them, and a busy machine can make one
        lost = verdict.anomaly_counts.get("lost-write", 0) if acks == 1 else 0
        assert verdict.operation_counts["drained"] + lost == 60


def test_a_lost_response_is_retried_and_recorded_once(harrow: Harrow) -> None:
    topic = harrow.topic("lost-response")
    producer: Any = harrow.kafka_python.producer(
        request_timeout_ms=1000, client_id="shop", max_in_flight_requests_per_connection=2, enable_idempotence=True
    )
    with harrow.chaos(lose_response("Produce", nth=3, target=leader(topic), client="shop")) as chaos:
        futures = [producer.send(topic.name, b"first")]
        while chaos.running:
            futures.append(producer.send(topic.name, b"value %d" % len(futures)))
            futures[-1].get(DEADLINE_S)
    assert sends_of(harrow, producer.recorder.name) == reported(topic, futures)
    verdict = judged(harrow, topic, "exactly-once, ordered")
    assert verdict.valid, verdict
    assert verdict.operation_counts["acknowledged"] == len(futures)
    described = RunSettings.from_json(harrow.schedule.run)
    assert (described.acks, described.idempotent) == (-1, True)
    assert (described.in_flight, described.request_timeout_ms) == (2, 1000)


def test_a_refused_request_without_retries_is_recorded_as_info_with_kafkas_code(harrow: Harrow) -> None:
    topic = harrow.topic("refused")
    producer: Any = harrow.kafka_python.producer(acks="all", retries=0)
    refusal = refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=2, target=leader(topic))
    futures: list[Any] = []
    with harrow.chaos(refusal) as chaos:
        while chaos.running:
            futures.append(producer.send(topic.name, b"value %d" % len(futures)))
            until(lambda: futures[-1].is_done, "the send has a result")
    wanted = reported(topic, futures)
    assert [send.error for send in wanted if send.outcome == "info"] == [NotEnoughReplicasError.errno]
    assert sends_of(harrow, producer.recorder.name) == wanted
    verdict = judged(harrow, topic, "no-loss")
    assert verdict.valid, verdict
    assert verdict.operation_counts["unacknowledged"] == 1


def test_sends_to_a_paused_leader_end_with_a_timeout_and_may_be_in_the_log(harrow: Harrow) -> None:
    topic = harrow.topic("paused")
    producer: Any = harrow.kafka_python.producer(
        acks="all", enable_idempotence=False, delivery_timeout_ms=700, request_timeout_ms=500
    )
    producer.send(topic.name, b"before").get(DEADLINE_S)
    futures: list[Any] = []
    with harrow.chaos(pause(leader(topic), seconds=1.5)) as chaos:
        while chaos.running:
            futures.append(producer.send(topic.name, b"value %d" % len(futures)))
            until(lambda: futures[-1].is_done, "the send has a result")
    wanted = [RecordedSend(topic.name, "ok", 0, 0, 0), *reported(topic, futures)]
    assert "info" in {send.outcome for send in wanted}
    assert sends_of(harrow, producer.recorder.name) == wanted
    verdict = judged(harrow, topic, "at-least-once")
    assert verdict.valid, verdict
    unacknowledged = sum(send.outcome == "info" for send in wanted)
    assert f"{unacknowledged} recorded send" in str(verdict.notes)


def test_a_send_that_raises_was_never_sent(harrow: Harrow) -> None:
    topic = harrow.topic("refusals")
    producer: Any = harrow.kafka_python.producer(max_block_ms=300)
    with pytest.raises((TypeError, AssertionError)):
        producer.send(topic.name, {"not": "bytes"})
    with pytest.raises((ValueError, AssertionError)):
        producer.send(topic.name, b"value", partition=7)
    with pytest.raises(KafkaTimeoutError):
        producer.send("no-such-topic", b"value")
    name = producer.recorder.name
    assert [send.outcome for send in sends_of(harrow, name)] == ["fail", "fail", "fail"]
    assert [send.topic for send in sends_of(harrow, name)][2] == "no-such-topic"
    producer.close()
    producer.close()
    with pytest.raises((KafkaError, AssertionError)):
        producer.send(topic.name, b"too late")
    assert len(sends_of(harrow, name)) == 3


def test_sends_of_several_threads_are_numbered_in_the_order_of_the_log(harrow: Harrow) -> None:
    topic = harrow.topic("threads")
    producer: Any = harrow.kafka_python.producer()

    def send(thread: int) -> None:
        for number in range(100):
            producer.send(topic.name, b"%d of %d" % (number, thread), key=b"same")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    producer.flush(DEADLINE_S)
    offsets = [send.offset for send in sends_of(harrow, producer.recorder.name)]
    assert offsets == list(range(400))
    verdict = judged(harrow, topic, "exactly-once, ordered")
    assert verdict.valid, verdict


def test_a_callback_in_kafka_pythons_thread_may_send(harrow: Harrow) -> None:
    topic = harrow.topic("callbacks")
    producer: Any = harrow.kafka_python.producer()
    answered = threading.Event()

    def note(_: object) -> None:
        answered.set()

    def answer(_: object) -> None:
        producer.send(topic.name, b"answer").add_callback(note)

    producer.send(topic.name, b"question").add_callback(answer)
    assert answered.wait(DEADLINE_S)
    assert [send.outcome for send in sends_of(harrow, producer.recorder.name)] == ["ok", "ok"]


class Signed(Serializer):  # type: ignore[misc]
    """Serializes to JSON, and counts its calls."""

    calls = 0

    def serialize(self, topic: str, *rest: Any) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.calls += 1
        return f"{topic}:{json.dumps(rest[-1])}".encode()


class Read(Deserializer):  # type: ignore[misc]
    """Reads what `Signed` wrote."""

    def deserialize(self, topic: str, *rest: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return json.loads(rest[-1].decode().removeprefix(f"{topic}:"))


def test_serializers_are_called_once_and_their_bytes_are_recorded(harrow: Harrow) -> None:
    topic = harrow.topic("serialized", partitions=2)
    signed = Signed()
    producer: Any = harrow.kafka_python.producer(value_serializer=signed)
    for number in range(10):
        producer.send(topic.name, {"order": number}, key=b"%d" % number, headers=[("n", b"%d" % number)])
    producer.flush(DEADLINE_S)
    wanted = [f'{topic.name}:{{"order": {number}}}'.encode() for number in range(10)]
    assert contents_of(harrow, producer.recorder.name) == wanted
    assert signed.calls == 10
    consumer: Any = harrow.kafka_python.consumer(topic, value_deserializer=Read(), group_id=topic.name)
    got = [next(consumer) for _ in range(10)]
    assert sorted(record.value["order"] for record in got) == list(range(10))
    assert [(r.partition, r.offset) for r in got] == [row[:2] for row in reads_of(harrow, consumer.recorder.name)]
    consumer.close()
    verdict = judged(harrow, topic, "exactly-once, ordered")
    assert verdict.valid, verdict
    assert verdict.operation_counts["read"] == 10


class Assigned(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts what it is called for."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.partitions += [place.partition for place in assigned]


def test_reads_seeks_and_commits_of_a_consumer_are_recorded(harrow: Harrow) -> None:
    topic = harrow.topic("reads", partitions=2)
    producer: Any = harrow.kafka_python.producer()
    for number in range(40):
        producer.send(topic.name, b"value %d" % number, partition=number % 2)
    producer.flush(DEADLINE_S)
    consumer: Any = harrow.kafka_python.consumer(group_id=topic.name, enable_auto_commit=False)
    listener = Assigned()
    consumer.subscribe([topic.name], listener=listener)
    got: list[Any] = []

    def poll(count: int) -> bool:
        for records in consumer.poll(timeout_ms=500).values():
            got.extend(records)
        return len(got) >= count

    until(lambda: poll(40), "all records")
    assert sorted(listener.partitions) == [0, 1]
    consumer.commit()
    places = [TopicPartition(topic.name, number) for number in range(2)]
    consumer.seek(places[0], 5)
    consumer.seek_to_beginning(places[1])
    until(lambda: poll(75), "the records after the seek")
    consumer.close()
    name = consumer.recorder.name
    assert [row[:2] for row in reads_of(harrow, name)] == [(r.partition, r.offset) for r in got]
    assert [row[2] for row in reads_of(harrow, name)] == [stable_hash(r.value) for r in got]
    assert rows_of(harrow, name)["kind"].to_list().count(3) == 4, "two partitions: invoke and ok"
    verdict = judged(harrow, topic, "ordered")
    assert verdict.valid, verdict


def test_assigning_a_partition_again_is_no_new_position(harrow: Harrow) -> None:
    topic = harrow.topic("assigned", partitions=2)
    producer: Any = harrow.kafka_python.producer()
    for number in range(20):
        producer.send(topic.name, b"value %d" % number, partition=number % 2)
    producer.flush(DEADLINE_S)
    consumer: Any = harrow.kafka_python.consumer(group_id=None)
    places = [TopicPartition(topic.name, number) for number in range(2)]
    got: list[tuple[int, int]] = []

    def poll(count: int) -> bool:
        for records in consumer.poll(timeout_ms=500, max_records=3).values():
            got.extend((record.partition, record.offset) for record in records)
        return len([offset for partition, offset in got if partition == 0]) >= count

    consumer.assign(places[:1])
    until(lambda: poll(3), "the first records")
    consumer.assign(places)  # kafka-python keeps the position of the first
    until(lambda: poll(10), "all records of the first partition")
    consumer.close()
    assert [offset for partition, offset in got if partition == 0] == list(range(10))
    breaks = rows_of(harrow, consumer.recorder.name).filter(pl.col("kind").is_in(BREAKS))
    assert breaks["partition"].to_list() == [0, 1], "the new partition of each assign"
    verdict = judged(harrow, topic, "ordered")
    assert verdict.valid, verdict


def test_a_run_closes_its_clients_and_ends_sends_that_get_no_result(harrow: Harrow) -> None:
    topic = harrow.topic("left-open")
    producer: Any = harrow.kafka_python.producer(request_timeout_ms=60_000)
    producer.send(topic.name, b"first").get(DEADLINE_S)
    handle = producer.handle()
    broker = harrow.cluster.brokers[harrow.cluster.leader(topic.name, 0) or 0]
    broker.pause()
    try:
        producer.send(topic.name, b"second")
        missing = handle.await_sends(0.2)
        assert missing.startswith(f"1 send of {producer.recorder.name} had no result within 0.2 s")
    finally:
        broker.resume()
    handle.close()
    handle.close()
    assert producer.recorder.closed
    assert [send.outcome for send in sends_of(harrow, producer.recorder.name)] == ["ok", "ok"]


def test_a_missing_library_is_named_with_the_remedy(harrow: Harrow, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("harrow.harness.run.recording.import_module", missing)
    with pytest.raises(HarrowError, match=r"install pytest-harrow\[kafka-python\]"):
        harrow.kafka_python.producer()
    with pytest.raises(HarrowError, match=r"install pytest-harrow\[aiokafka\]"):
        harrow.aiokafka.consumer()
