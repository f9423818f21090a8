"""A program of the test that dies is the first thing that a verdict says, on real processes (K8, L6)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harrow import Harrow, Record, kill_program
from harrow.harness.errors import VerdictError
from harrow.harness.run.harrow import run_of
from waiting import until

SETTINGS = {"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS, brokers=1)
PRODUCER = """
import sys
from confluent_kafka import Producer

servers, topic, most = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "client.id": "shop", "linger.ms": 0})
for number in range(int(most)):
    producer.produce(topic, str(number))
producer.flush(30)
raise LookupError("no price for order 20")
"""
COPIER = """
import sys
from confluent_kafka import Consumer, Producer

servers, source, sink = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": source, "client.id": "copier",
                     "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000})
producer = Producer({"bootstrap.servers": servers, "client.id": "copier", "linger.ms": 0})
consumer.subscribe([source])
while True:
    message = consumer.poll(0.2)
    if message is None or message.error():
        continue
    if message.value() == b"poison":
        sys.exit("cannot copy " + message.value().decode())
    producer.produce(sink, message.value())
    producer.flush(30)
    consumer.commit(message, asynchronous=False)
"""


def started(harrow: Harrow, tmp_path: Path, name: str, text: str, *words: str) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    harrow.program(name, [sys.executable, str(path), "{bootstrap}", *words])


def value_of(record: Record) -> str:
    assert record.value is not None
    return record.value.decode()


def verdict_of(call: Callable[[], object]) -> str:
    with pytest.raises(VerdictError) as failed:
        call()
    return str(failed.value)


def test_records_that_a_dead_producer_did_not_send_name_its_death(harrow: Harrow, tmp_path: Path) -> None:
    topic = harrow.topic("orders")
    started(harrow, tmp_path, "shop", PRODUCER, topic.name, "20")
    until(lambda: run_of(harrow).programs.controls["shop"].status().state == "dead", "the shop has died")
    text = verdict_of(
        lambda: harrow.verify(topic, guarantee="no-loss", expected=[str(n) for n in range(40)], record_id=value_of)
    )
    lines = text.splitlines()
    (kind,) = (number for number, line in enumerate(lines) if "(missing)" in line)
    assert lines[kind + 1].strip().startswith("cause: program 'shop' ended by itself at ")
    assert "with exit code 1; neither a fault nor the test ended it" in lines[kind + 1]
    assert "LookupError: no price for order 20" in lines[kind + 1]


def test_outputs_that_a_dead_job_did_not_write_name_its_death(harrow: Harrow, tmp_path: Path) -> None:
    source, sink = harrow.topic("requests"), harrow.topic("charges")
    started(harrow, tmp_path, "copier", COPIER, source.name, sink.name)
    producer = harrow.producer()

    def send(value: str) -> bool:
        producer.produce(source.name, value)
        return producer.flush(30) == 0

    numbers = itertools.count()
    with harrow.chaos(kill_program("copier")) as chaos:
        until(lambda: send(str(next(numbers))) and not chaos.running, "the job runs again")
    send("poison")
    until(lambda: run_of(harrow).programs.controls["copier"].status().state == "dead", "the job has died")
    text = verdict_of(lambda: harrow.verify_pipeline(source, sink, record_id=value_of))
    lines = text.splitlines()
    (kind,) = (number for number, line in enumerate(lines) if "(missing-output)" in line)
    assert "cause: program 'copier' ended by itself" in lines[kind + 1]
    assert "cannot copy poison" in lines[kind + 1]
    assert "was ended by a fault" not in text  # that kill was healed by a start


def test_an_unknown_verdict_begins_with_the_program_that_died(harrow: Harrow, tmp_path: Path) -> None:
    topic = harrow.topic("silent")
    started(harrow, tmp_path, "mute", PRODUCER, topic.name, "0")
    until(lambda: run_of(harrow).programs.controls["mute"].status().state == "dead", "it has died")
    text = verdict_of(lambda: harrow.verify(topic, guarantee="no-loss"))
    reasons = [line for line in text.splitlines() if line.strip().startswith("unknown: ")]
    assert reasons[0].strip().startswith("unknown: program 'mute' ended by itself at ")
    assert len(reasons) > 1
