"""Causes from the requests of clients, on real brokers: a kill before EndTxn, a refusal, an ignored failure (L6)."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from harrow import Harrow, Record, kill_program, refuse_request
from harrow.faults import Fault
from harrow.harness.errors import VerdictError
from waiting import until

SETTINGS = {"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS, brokers=1)
COPIER = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition

servers, source, sink, how = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": source, "client.id": "reader",
                     "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000})
settings = {"bootstrap.servers": servers, "client.id": "writer", "linger.ms": 0}
if how == "transactions":
    settings["transactional.id"] = sink
if how == "careless":
    settings["retries"] = 0
producer = Producer(settings)
if how == "transactions":
    producer.init_transactions(30)
consumer.subscribe([source])
while True:
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    if how == "transactions":
        producer.begin_transaction()
    producer.produce(sink, message.value())
    producer.flush(30)
    if how == "transactions":
        place = TopicPartition(source, message.partition(), message.offset() + 1)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata())
        producer.commit_transaction()
    else:
        consumer.commit(message, asynchronous=False)
"""


def value_of(record: Record) -> str:
    assert record.value is not None
    return record.value.decode()


def causes_of(harrow: Harrow, tmp_path: Path, how: str, fault: Fault) -> list[str]:
    """Run the job under a fault; return the causes of its missing outputs."""
    source, sink = harrow.topic("requests"), harrow.topic("charges")
    path = tmp_path / "copier.py"
    path.write_text(COPIER)
    command = [sys.executable, str(path), "{bootstrap}", source.name, sink.name, how]
    program = harrow.program("copier", command, start=False)
    producer, numbers = harrow.producer(), itertools.count()

    def send() -> bool:
        producer.produce(source.name, f"order {next(numbers)}")
        return producer.flush(30) == 0

    chaos = harrow.chaos(fault)
    if how == "transactions":  # the fault needs a program that runs
        program.start()
        chaos.inject()
    else:  # the first requests of the program must meet the fault
        chaos.inject()
        program.start()
    until(lambda: send() and chaos.effects, "the fault has its effect")
    send()
    chaos.heal()
    if how == "careless":  # The others end, or read nothing.
        harrow.await_caught_up(source.name, source)
    with pytest.raises(VerdictError) as failed:
        harrow.verify_pipeline(source, sink, record_id=value_of)
    verdict = failed.value.verdict
    assert verdict.anomaly_counts["missing-output"], str(verdict)
    return list(verdict.causes.get("missing-output", ()))


def test_a_kill_before_end_txn_is_named(harrow: Harrow, tmp_path: Path) -> None:
    fault = kill_program("copier", before="EndTxn", nth=2, restart=False)
    causes = causes_of(harrow, tmp_path, "transactions", fault)
    assert causes[0].startswith("program 'copier' was ended by a fault at ")
    text = next(cause for cause in causes if "EndTxn" in cause)
    assert "began a transaction with records of charges" in text
    assert "was not served, after the fault kill_program('copier'" in text


def test_a_refused_delivery_that_the_job_ignored_is_named(harrow: Harrow, tmp_path: Path) -> None:
    fault = refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=3, client="writer")
    causes = causes_of(harrow, tmp_path, "careless", fault)
    assert any("brokers refused 1 record of charges" in cause and "NOT_ENOUGH_REPLICAS" in cause for cause in causes), (
        "\n".join(causes)
    )


def test_a_reader_that_stops_at_a_refused_offset_fetch_is_named(harrow: Harrow, tmp_path: Path) -> None:
    fault = refuse_request("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", client="reader")
    causes = causes_of(harrow, tmp_path, "plain", fault)
    (text,) = (cause for cause in causes if "OffsetFetch" in cause)
    assert "returned GROUP_AUTHORIZATION_FAILED to OffsetFetch of requests" in text
    assert "(a fault of the run did it); after that it never sent OffsetFetch with success" in text
