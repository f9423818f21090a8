"""Kafka's tool for transactions and its load generators work on our cluster as on Apache Kafka (F2, F4, F5, C5).

The tools are Kafka's own classes, unmodified (`support/kafka_tools.py`); each test holds for both clusters.
"""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

import pytest
from kafka_tools import Tools
from raw_transactions import RawProducer
from waiting import until


def events(out: str, name: str) -> list[dict[str, Any]]:
    """The lines of a verifiable client with this name."""
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return [row for row in rows if row["name"] == name]


def transactions(tools: Tools, *arguments: str) -> list[list[str]]:
    """The rows of a successful call of the tool for transactions."""
    return tools.run("TransactionsCommand", *arguments).succeeded().rows


def test_a_transaction_is_listed_described_and_aborted(kafka: Any, tools: Tools) -> None:
    topic, name = kafka.topic("open", 1, 2), f"tool-{uuid4().hex[:8]}"
    client = RawProducer(kafka.raw, name, min(kafka.ports))
    client.init()
    assert client.produce(kafka.raw(1), topic, "a", "b", version=12).error_code == 0
    listed = until(lambda: [row for row in transactions(tools, "list") if row[0] == name])
    ((_, coordinator, producer_id, state),) = listed
    assert (producer_id, state) == (str(client.producer_id), "Ongoing")
    assert transactions(tools, "list", "--transactional-id-pattern", f"{name[:-1]}.")[1:] == listed
    for_long = transactions(tools, "list", "--duration-filter", "3600000")[1:]
    assert not [row for row in for_long if row[0] == name], "other tests may have left transactional ids"
    head, row = transactions(tools, "describe", "--transactional-id", name)
    shown = dict(zip(head, row, strict=True))
    assert shown.pop("TransactionTimeoutMs") == "60000"
    assert int(shown.pop("CurrentTransactionStartTimeMs")) > 0
    assert int(shown.pop("TransactionDurationMs")) >= 0
    assert shown == {
        "CoordinatorId": coordinator,
        "TransactionalId": name,
        "ProducerId": producer_id,
        "ProducerEpoch": "0",
        "TransactionState": "Ongoing",
        "TopicPartitions": f"{topic}-0",
    }
    at = ("--topic", topic, "--partition", "0")
    head, row = transactions(tools, "describe-producers", *at)
    shown = dict(zip(head, row, strict=True))
    del shown["LastTimestamp"]
    assert shown == {
        "ProducerId": producer_id,
        "ProducerEpoch": "0",
        "LatestCoordinatorEpoch": "-1",
        "LastSequence": "1",
        "CurrentTransactionStartOffset": "0",
    }
    assert transactions(tools, "find-hanging", "--topic", topic)[1:] == [], "its coordinator has it"
    wrong = tools.run("TransactionsCommand", "abort", *at, "--start-offset", "1")
    assert wrong.status == 1
    assert f"Could not find any open transactions starting at offset 1 on partition {topic}-0" in wrong.err
    assert transactions(tools, "abort", *at, "--start-offset", "0") == []
    until(lambda: kafka.raw(1).fetch(topic, 0, 0, isolation=1).last_stable_offset == 3, "a marker")
    head, row = transactions(tools, "describe-producers", *at)
    assert dict(zip(head, row, strict=True))["CurrentTransactionStartOffset"] == "None"


def test_an_open_transaction_is_terminated_by_its_id(kafka: Any, tools: Tools) -> None:
    topic, name = kafka.topic("terminated", 1, 2), f"tool-{uuid4().hex[:8]}"
    client = RawProducer(kafka.raw, name, min(kafka.ports))
    client.init()
    assert client.produce(kafka.raw(1), topic, "a", version=12).error_code == 0
    ended = ("forceTerminateTransaction", "--transactionalId", name)
    assert transactions(tools, *ended) == []
    client.await_state("Empty", "CompleteAbort")
    until(lambda: kafka.raw(1).fetch(topic, 0, 0, isolation=1).last_stable_offset == 2, "a marker")
    unknown = tools.run("TransactionsCommand", "describe", "--transactional-id", f"{name}-x")
    assert (unknown.status, "the ID could not be found" in unknown.err) == (1, True)


@pytest.mark.parametrize("options", [(), ("--transaction-duration-ms", "20", "--transactional-id", "load")])
def test_load_generators_write_and_read_each_record(kafka: Any, tools: Tools, options: tuple[str, ...]) -> None:
    topic = kafka.topic("load", 1, 2, 3)
    wrote = tools.run(
        "ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        "3000",
        "--record-size",
        "100",
        "--throughput",
        "20000",
        *options,
    ).succeeded()
    assert wrote.text.splitlines()[-1].startswith("3000 records sent, ")
    read = tools.run("ConsumerPerformance", "--topic", topic, "--num-records", "3000", "--timeout", "20000").succeeded()
    head, row = (line.split(", ") for line in read.text.splitlines())
    assert dict(zip(head, row, strict=True))["data.consumed.in.nMsg"] == "3000"


def test_latency_is_measured_from_end_to_end(kafka: Any, tools: Tools) -> None:
    topic = kafka.topic("latency", 1, 2, 3)
    measured = (
        tools.run(
            "EndToEndLatency", "--topic", topic, "--num-records", "100", "--producer-acks", "all", "--record-size", "50"
        )
        .succeeded()
        .text
    )
    assert re.search(r"^Avg latency: \d+\.\d+ ms$", measured, re.MULTILINE)
    assert re.search(r"^Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+$", measured, re.MULTILINE)
    assert kafka.raw(1).list_offset(topic, 0, -1).offset == 100


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_clients_agree_although_the_leader_is_killed(kafka: Any, tools: Tools, protocol: str) -> None:
    topic = kafka.topic("verified", 2, 3, 1, min_insync_replicas="2")
    writer = tools.begin(
        "VerifiableProducer", "--topic", topic, "--max-messages", "2000", "--throughput", "1000", "--acks", "-1"
    )
    until(lambda: kafka.raw(2).list_offset(topic, 0, -1).offset > 300, "the producer sends")
    kafka.kill(2)
    try:
        written = writer.result().succeeded().out
    finally:
        kafka.start(2)
    sent = {row["value"] for row in events(written, "producer_send_success")}
    failed = {row["value"] for row in events(written, "producer_send_error")}
    assert sent | failed == {str(number) for number in range(2000)}
    assert len(sent) > 300
    until(lambda: len(kafka.partition(topic, 3).isr_nodes) == 3, "the ISR is full")
    leader = kafka.partition(topic, 3).leader_id
    end = kafka.raw(leader).list_offset(topic, 0, -1).offset
    read = (
        tools.run(
            "VerifiableConsumer",
            "--topic",
            topic,
            "--group-id",
            uuid4().hex,
            "--max-messages",
            str(end),
            "--group-protocol",
            protocol,
            "--reset-policy",
            "earliest",
            "--verbose",
        )
        .succeeded()
        .out
    )
    values = [row["value"] for row in events(read, "record_data")]
    assert {*values} >= sent
    assert len(values) == len({*values}) == end, "a record is in the log once"
    assert sum(row["count"] for row in events(read, "records_consumed")) == end
    committed = events(read, "offsets_committed")
    assert all(row["success"] for row in committed)
    assert committed[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": end}]
