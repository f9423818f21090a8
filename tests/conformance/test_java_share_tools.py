"""Kafka's share consumer and its tool for share groups work on ours as on Kafka, also when a leader dies (KIP-932).

The tools are Kafka's own classes, unmodified (`support/kafka_tools.py`); each test holds for both clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer
from kafka_reference import SINCE_4_4
from kafka_tools import Tools
from waiting import until

IDLE_MS = "20000"
"""The share consumer ends after this time without a record; an election of Apache Kafka takes up to 9 s."""


def write(tools: Tools, topic: str, values: Sequence[int]) -> None:
    """Writes the values, acknowledged by all replicas."""
    producer = Producer({"bootstrap.servers": tools.servers, "enable.idempotence": True, "log_level": 2})
    for value in values:
        producer.produce(topic, str(value))
    assert producer.flush(60) == 0


def described(tools: Tools, group: str, *what: str) -> list[list[str]]:
    """The rows of a description of a share group, without the head; none while the group does not exist."""
    result = tools.run("ShareGroupCommand", "--describe", "--group", group, *what)
    return [row for row in result.rows if row[0] == group]


def partition_is_assigned(tools: Tools, group: str, topic: str) -> bool:
    return any(row[-1] == f"{topic}:0" for row in described(tools, group, "--members"))


def start_and_lag(tools: Tools, group: str, topic: str) -> tuple[str, str] | None:
    """Start offset and lag of partition 0."""
    rows = [row for row in described(tools, group, "--offsets") if row[1:3] == [topic, "0"]]
    return (rows[0][3], rows[0][4]) if rows else None


def probed(tools: Tools, group: str, topic: str) -> bool:
    write(tools, topic, [-1])
    return start_and_lag(tools, group, topic) not in (None, ("-", "-"))


def test_a_share_consumer_gets_every_record_while_the_leader_is_killed_and_the_tool_manages_its_group(
    kafka: Any, tools: Tools, tools_beside: Tools
) -> None:
    topic, group = kafka.topic("shared", 2, 3, min_insync_replicas="1"), f"share-{uuid4().hex[:8]}"
    options = ("--topic", topic, "--group", group, "--timeout-ms", IDLE_MS)
    reader = tools_beside.begin("ConsoleShareConsumer", *options)
    until(lambda: partition_is_assigned(tools, group, topic), "the member has the partition")
    # a new group begins at the end of the log when the leader serves its first ShareFetch; the state of the
    # share-partition has an offset from the first acknowledgement on
    until(lambda: probed(tools, group, topic), "the member has accepted a record")
    write(tools, topic, range(100))
    kafka.kill(2)
    try:
        write(tools, topic, range(100, 200))
        (state,) = described(tools, group, "--state")
        assert state[-2:] == ["Stable", "1"]
        values = reader.result().succeeded().out.split()
    finally:
        kafka.start(2)
    assert {value for value in values if value.isdigit()} >= {str(number) for number in range(200)}
    until(lambda: set(kafka.partition(topic, 1).isr_nodes) == {2, 3}, "the ISR is full")
    until(lambda: described(tools, group, "--state")[0][-2:] == ["Empty", "0"], "the group is empty")
    until(lambda: (start_and_lag(tools, group, topic) or ())[1:] == ("0",), "everything is accepted")
    end = str(kafka.raw(kafka.partition(topic, 3).leader_id).list_offset(topic, 0, -1).offset)
    assert [group] in tools.run("ShareGroupCommand", "--list").succeeded().rows
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert [group, topic, "0", "0"] in tools.run("ShareGroupCommand", *reset).succeeded().rows
    lag = end if SINCE_4_4 or kafka.name == "harrow" else "-"  # Kafka 4.2 knows it after the next acknowledgement only
    until(lambda: start_and_lag(tools, group, topic) == ("0", lag), "the offset is that of the reset")
    delete = ("--delete-offsets", "--group", group, "--topic", topic)
    assert [topic, "Successful"] in tools.run("ShareGroupCommand", *delete).succeeded().rows
    until(lambda: start_and_lag(tools, group, topic) is None, "the state is deleted")
    assert group in tools.run("ShareGroupCommand", "--delete", "--group", group).succeeded().out
    until(lambda: [group] not in tools.run("ShareGroupCommand", "--list").succeeded().rows, "the group is deleted")
