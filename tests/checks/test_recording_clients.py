"""The recording clients for confluent-kafka and the final read, against librdkafka's own mock cluster (J6, J7)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import polars as pl
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Producer as PlainProducer
from harrow.harness.checks import judge
from harrow.harness.clients import Consumer, Producer
from harrow.harness.clients.final_read import FinalReadError, read_all
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType, history_frame, value_hash
from judged_runs import write_run_file

TOPIC = "orders"
DEADLINE_S = 30.0


@pytest.fixture
def bootstrap() -> Iterator[str]:
    mock = PlainProducer({"bootstrap.servers": "ignored:1", "test.mock.num.brokers": 1})
    broker = next(iter(mock.list_topics(timeout=10).brokers.values()))
    yield f"{broker.host}:{broker.port}"
    mock.flush(1)


def produce(history: HistoryWriter, bootstrap: str, count: int, **config: Any) -> None:
    with Producer({"bootstrap.servers": bootstrap, **config}, history=history) as producer:
        for number in range(count):
            producer.produce(TOPIC, value=f"value {number}", key=f"key {number % 5}", headers=[("n", b"1")])
            producer.poll(0)


def poll_all(consumer: Consumer, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while count:
        assert time.monotonic() < deadline, f"{count} records did not come"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            count -= 1


def test_operations_of_real_clients_are_recorded_read_back_and_judged(tmp_path: Path, bootstrap: str) -> None:
    with HistoryWriter(tmp_path / "history") as history:
        produce(history, bootstrap, 200, **{"enable.idempotence": True})
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        with Consumer(settings, history=history) as consumer:
            consumer.subscribe([TOPIC])
            poll_all(consumer, 200)
            consumer.commit(asynchronous=False)
    frame = history_frame(history.path)
    sends = frame.filter(pl.col("kind") == OperationFunction.SEND)
    assert sends.filter(pl.col("outcome") == OperationType.INVOKE)["op"].to_list() == list(range(200))
    acked = sends.filter(pl.col("outcome") == OperationType.OK)
    assert sorted(acked["op"]) == list(range(200))
    assert (acked["offset"] >= 0).all()
    assert (acked["invoked_ns"] <= acked["time_ns"]).all()
    reads = frame.filter(pl.col("kind") == OperationFunction.POLL)
    assert sorted(reads["value_hash"]) == sorted(acked["value_hash"])
    assert value_hash(b"value 0", [("n", b"1")]) in reads["value_hash"].to_list()
    commits = frame.filter(pl.col("kind") == OperationFunction.COMMIT)
    assert commits.filter(pl.col("outcome") == OperationType.OK)["offset"].sum() == 200
    assert len(frame.filter(pl.col("kind") == OperationFunction.REBALANCE))
    drained = read_all(bootstrap, [TOPIC], tmp_path / "drain", timeout_s=DEADLINE_S)
    assert sum(read.records for read in drained) == 200
    write_run_file(tmp_path)
    verdict = judge(tmp_path, topics=[TOPIC], engine="inline")
    assert verdict.valid, str(verdict)
    assert verdict.guarantees == ("exactly-once", "ordered")
    assert (
        verdict.operation_counts["acknowledged"]
        == verdict.operation_counts["read"]
        == verdict.operation_counts["drained"]
        == 200
    )


def test_a_record_that_was_never_sent_is_recorded_as_fail_and_raises(tmp_path: Path, bootstrap: str) -> None:
    with HistoryWriter(tmp_path) as history:
        producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 1000}, history=history)
        with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
            producer.produce(TOPIC, value=b"x" * 5000)
        producer.close()
    sends = history_frame(history.path).filter(pl.col("kind") == OperationFunction.SEND)
    assert sends["outcome"].to_list() == [OperationType.INVOKE, OperationType.FAIL]


def test_a_delivery_error_is_recorded_as_info(tmp_path: Path) -> None:
    reports: list[Any] = []
    with HistoryWriter(tmp_path) as history:
        config = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 300, "log_level": 0}
        with Producer(config, history=history) as producer:
            producer.produce(TOPIC, value=b"v", on_delivery=lambda error, _: reports.append(error))
    sends = history_frame(history.path).filter(pl.col("kind") == OperationFunction.SEND)
    assert sends["outcome"].to_list() == [OperationType.INVOKE, OperationType.INFO]
    assert sends["error"][-1] == reports[0].code() != 0


def test_seeking_and_assigning_allow_a_jump_of_the_position(tmp_path: Path, bootstrap: str) -> None:
    with HistoryWriter(tmp_path / "history") as history:
        produce(history, bootstrap, 20)
        with Consumer({"bootstrap.servers": bootstrap, "group.id": "g"}, history=history) as consumer:
            consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(4)])
            poll_all(consumer, 20)
            for partition in range(4):
                consumer.seek(TopicPartition(TOPIC, partition, 0))
            poll_all(consumer, 20)
    read_all(bootstrap, [TOPIC], tmp_path / "drain", timeout_s=DEADLINE_S)
    write_run_file(tmp_path)
    verdict = judge(tmp_path, topics=[TOPIC], guarantee="ordered", engine="inline")
    assert verdict.valid, str(verdict)


def test_a_final_read_that_cannot_finish_reports_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FinalReadError, match="partitions of 'orders' within 1 s"):
        read_all("127.0.0.1:1", [TOPIC], tmp_path, timeout_s=1.0, config={"log_level": 0})


class FakeMessage(NamedTuple):
    """A record as confluent-kafka returns it."""

    number: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"value %d" % self.number

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000


class RebalancingConsumer:
    """A consumer whose first `consume` collects records, runs the callback of an assignment, and collects more."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.batches: list[list[int]] = settings["batches"]
        self.is_assigned = False

    def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any) -> None:
        del topics, on_revoke
        self.on_assign: Any = on_assign

    def consume(self, count: int, timeout: float) -> list[FakeMessage]:
        del count, timeout
        if not self.is_assigned:
            self.is_assigned = True
            self.on_assign(self, [TopicPartition(TOPIC, 0)])
        return [FakeMessage(offset) for offset in self.batches.pop(0)]

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        ([[7, 8, 3, 4], [3, 4, 5], [6]], ["break", 7, 8, "break", 3, 4, "break", 3, 4, 5, 6]),
        ([[0, 1], [2, 3], [0, 1], [2]], ["break", 0, 1, "break", 2, 3, "break", 0, 1, 2]),
        ([[5], [6, 9], [10, 0]], ["break", 5, "break", 6, "break", 9, 10, "break", 0]),
        ([[0, 1], [2, 3], [], [0]], ["break", 0, 1, "break", 2, 3, 0]),
        ([[0, 1], [2], [0, 1], [0]], ["break", 0, 1, "break", 2, "break", 0, 1, 0]),
    ],
    ids=["in the same call", "fetched before", "with gaps", "after an empty call", "only once"],
)
def test_records_that_were_fetched_before_a_rebalance_are_not_judged_with_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[list[int]], wanted: list[int | str]
) -> None:
    calls = len(batches)
    monkeypatch.setattr(confluent_kafka, "Consumer", RebalancingConsumer)
    with HistoryWriter(tmp_path / "history") as history, Consumer({"batches": batches}, history=history) as consumer:
        consumer.subscribe([TOPIC])
        for _ in range(calls):
            consumer.consume(10, 1)
    rows = history_frame(history.path).sort("op")
    polled = rows["kind"] == OperationFunction.POLL
    shown = [offset if poll else "break" for offset, poll in zip(rows["offset"], polled, strict=True)]
    assert shown == wanted
