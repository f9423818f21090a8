"""A recording producer whose librdkafka producer had a fatal error: nothing is lost of its history (J6).

Real brokers with the planted bug KAFKA-5494: a lost response with several requests in flight makes librdkafka end the
producer with OUT_OF_ORDER_SEQUENCE_NUMBER.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
from confluent_kafka import KafkaError, KafkaException, Message
from harrow import Harrow, leader, lose_response
from harrow.harness.checks import SparkHandle
from harrow.harness.clients import Producer
from harrow.harness.histories.format import OperationFunction, OperationType, history_frame

PLANT = "harrow.faults.zoo.kafka_5494"
DEADLINE_S = 60.0
SETTINGS = {"linger_ms": 0, "batch_size": 200, "request_timeout_ms": 1500, "log_level": 0}


class Application:
    """Sends records, and keeps every delivery report and every KafkaException that it receives."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.queued = 0
        self.refused: list[KafkaError] = []
        self.served: list[KafkaError] = []
        self.reports: Counter[str] = Counter()

    def produce_until_an_error(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self.refused and not self.served:
            assert time.monotonic() < deadline, f"no fatal error; delivery reports: {self.reports}"
            self.produce()
            self.serve(lambda: self.producer.poll(0.001))

    def produce(self) -> None:
        try:
            value = b"v%06d" % self.queued
            self.producer.produce(self.topic, value=value, on_delivery=self._delivered)
        except KafkaException as error:
            self.refused.append(error.args[0])
        else:
            self.queued += 1

    def serve(self, call: Callable[[], int]) -> None:
        try:
            call()
        except KafkaException as error:
            self.served.append(error.args[0])

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        self.reports["ok" if error is None else "error"] += 1


def test_fatal_error_is_raised_once_and_every_report_is_delivered_and_recorded(
    tmp_path: Path, spark: SparkHandle
) -> None:
    with Harrow(tmp_path / "run", plants=[PLANT], spark=lambda: spark, early_spark=False) as harrow:
        orders = harrow.topic("orders")
        first = harrow.cluster.leader(orders.name, 0)
        for follower in {1, 2, 3} - {first}:
            harrow.cluster.control(follower, "links.slow", peers=[f"broker {first}"], delay_ms=60)
        application = Application(harrow.producer(**SETTINGS), orders.name)
        with harrow.chaos(lose_response("Produce", nth=20, target=leader(orders, 0))):
            application.produce_until_an_error()
        application.serve(lambda: application.producer.flush(DEADLINE_S))
        application.serve(lambda: application.producer.flush(DEADLINE_S))
        application.produce()
        verdict = harrow.verify(orders, guarantee="no-loss")
    assert [error.code() for error in application.served] == [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert all(error.fatal() for error in [*application.served, *application.refused])
    assert re.search(r"create another: .*sequence", application.refused[-1].str())
    assert application.reports.total() == application.queued
    assert min(application.reports["ok"], application.reports["error"]) > 0
    assert verdict.planted, "the run names its planted bug"
    (history,) = (harrow.folder / "history").glob("*.ops")
    sends = history_frame(history).filter(pl.col("kind") == OperationFunction.SEND)
    assert Counter(sends["outcome"].to_list()) == {
        OperationType.INVOKE: application.queued + len(application.refused),
        OperationType.FAIL: len(application.refused),
        OperationType.OK: application.reports["ok"],
        OperationType.INFO: application.reports["error"],
    }
