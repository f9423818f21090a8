"""Kafka's console clients and its tool for groups work on ours as on Apache Kafka, also when a broker dies (G1, G4).

The tools are Kafka's own classes, unmodified (`support/kafka_tools.py`); each test holds for both clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from kafka_tools import Running, Tools
from waiting import until

HEAD = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
PROTOCOLS = ("classic", "consumer")


def consumed(tools: Tools, topic: str, group: str, records: int, *options: str) -> Running:
    """Starts a console consumer that ends after `records` records, or 60 s without a record."""
    return tools.begin(
        "ConsoleConsumer",
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        str(records),
        "--timeout-ms",
        "60000",
        *(word for option in options for word in ("--command-property", option)),
    )


def write(tools: Tools, topic: str, values: Sequence[int], **settings: Any) -> None:
    """Writes the values, acknowledged by all replicas; with a transactional id in one committed transaction."""
    common = {"bootstrap.servers": tools.servers, "enable.idempotence": True, "log_level": 2}
    producer = Producer({**common, **settings})
    if settings:
        producer.init_transactions(60)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, str(value))
    assert producer.flush(60) == 0
    if settings:
        producer.commit_transaction(60)


def groups(tools: Tools, *arguments: str) -> list[list[str]]:
    """The rows of a successful call of the tool for groups."""
    return tools.run("ConsumerGroupCommand", *arguments).succeeded().rows


def idle(group: str, topic: str, at: int, end: int) -> list[str]:
    """A row of a description: an offset without a consumer."""
    return [group, topic, "0", str(at), str(end), str(end - at), "-", "-", "-"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_console_clients_write_and_read_records_with_keys_and_headers(kafka: Any, tools: Tools, protocol: str) -> None:
    topic = kafka.topic("console", 1, 2)
    lines = [f"h:{number}\tkey {number}\tvälue {number}" for number in range(40)]
    tools.run(
        "ConsoleProducer",
        "--topic",
        topic,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
        stdin="\n".join(lines) + "\n",
    ).succeeded()
    result = tools.run(
        "ConsoleConsumer",
        "--topic",
        topic,
        "--group",
        uuid4().hex,
        "--from-beginning",
        "--command-property",
        f"group.protocol={protocol}",
        "--max-messages",
        "40",
        "--timeout-ms",
        "30000",
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "print.headers=true",
    ).succeeded()
    assert result.out.splitlines() == lines
    assert "Processed a total of 40 messages" in result.err


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_listed_described_reset_and_deleted(kafka: Any, tools: Tools, protocol: str) -> None:
    topic, group = kafka.topic("grouped", 1, 2), f"tool-{protocol}-{uuid4().hex[:8]}"
    write(tools, topic, range(20))
    read = consumed(tools, topic, group, 20, f"group.protocol={protocol}")
    assert read.result().succeeded().out.split() == [str(number) for number in range(20)]
    kind, strategy = ("Consumer", ["uniform"]) if protocol == "consumer" else ("Classic", ["-"])
    assert [group, kind] in groups(tools, "--list", "--type")
    assert [group, "Empty"] in groups(tools, "--list", "--state")
    assert groups(tools, "--describe", "--group", group) == [HEAD, idle(group, topic, 20, 20)]
    assert not groups(tools, "--describe", "--group", group, "--members")[1:]
    (state,) = groups(tools, "--describe", "--group", group, "--state")[1:]
    assert [state[0], *state[3:]] == [group, *strategy, "Empty", "0"]
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    new = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    for how, offset in (
        (("--to-offset", "5"), 5),
        (("--shift-by", "3"), 8),
        (("--shift-by", "-100"), 0),
        (("--to-latest",), 20),
        (("--to-datetime", "2020-01-01T00:00:00.000"), 0),
        (("--to-earliest",), 0),
    ):
        assert groups(tools, *reset, *how, "--execute") == [new, [group, topic, "0", str(offset)]]
    assert groups(tools, *reset, "--to-offset", "7", "--dry-run") == [new, [group, topic, "0", "7"]]
    assert groups(tools, "--describe", "--group", group)[1:] == [idle(group, topic, 0, 20)]
    deleted = tools.run("ConsumerGroupCommand", "--delete-offsets", "--group", group, "--topic", topic)
    assert deleted.succeeded().rows[-1] == [topic, "0", "Successful"]
    text = tools.run("ConsumerGroupCommand", "--delete", "--group", group, "--group", "nowhere").text
    assert f"These consumer groups were deleted successfully: '{group}'" in text
    assert "* Group 'nowhere' could not be deleted due to: " in text
    assert [group] not in groups(tools, "--list")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_a_member_is_described_with_its_owner_and_not_deleted(
    kafka: Any, tools: Tools, tools_beside: Tools, protocol: str
) -> None:
    topic, group = kafka.topic("owned", 1, 2), f"member-{protocol}-{uuid4().hex[:8]}"
    write(tools, topic, range(5))
    reader = consumed(tools_beside, topic, group, 9, f"group.protocol={protocol}", "client.id=the-reader")
    row = until(lambda: _owner(tools, group, at=5), "the member has committed")
    assert [*row[:6], row[8]] == [group, topic, "0", "5", "5", "0", "the-reader"]
    assert row[6].startswith("the-reader") or protocol == "consumer"
    assert row[7].startswith("/127.0.0.1")
    (member,) = groups(tools, "--describe", "--group", group, "--members")[1:]
    assert (member[1], member[3:]) == (row[6], ["the-reader", "1"])
    (state,) = groups(tools, "--describe", "--group", group, "--state")[1:]
    assert state[-2:] == ["Stable", "1"]
    refused = tools.run("ConsumerGroupCommand", "--delete", "--group", group)
    assert "GroupNotEmptyException" in refused.out
    reset = tools.run(
        "ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert "Assignments can only be reset if the group" in reset.out
    busy = tools.run("ConsumerGroupCommand", "--delete-offsets", "--group", group, "--topic", topic)
    assert "GroupSubscribedToTopicException" in busy.out
    write(tools, topic, range(5, 9))
    assert reader.result().succeeded().out.split() == [str(number) for number in range(9)]


def _owner(tools: Tools, group: str, at: int) -> list[str] | None:
    """The row of partition 0 when its owner has committed the offset `at`."""
    rows = tools.run("ConsumerGroupCommand", "--describe", "--group", group).rows
    found = [row for row in rows[1:] if len(row) == 9 and row[3] == str(at) and row[6] != "-"]
    return found[0] if found else None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_console_consumer_skips_no_record_while_the_leader_is_killed(
    kafka: Any, tools: Tools, tools_beside: Tools, protocol: str
) -> None:
    topic, group = kafka.topic("killed", 2, 3, min_insync_replicas="1"), uuid4().hex
    write(tools, topic, range(100))
    option = f"group.protocol={protocol}"
    reader = consumed(tools_beside, topic, group, 200, option)
    until(lambda: _owner(tools, group, at=100), "the consumer has read the first half")
    kafka.kill(2)
    try:
        write(tools, topic, range(100, 200))
        values = reader.result().succeeded().out.split()
    finally:
        kafka.start(2)
    # with its leader a group may lose its coordinator: records after the last commit are then read twice
    assert len(values) == 200
    distinct = list(dict.fromkeys(values))
    assert distinct == [str(number) for number in range(len(distinct))]
    assert len(distinct) > 100
    until(lambda: set(kafka.partition(topic, 1).isr_nodes) == {2, 3}, "the ISR is full")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_console_consumer_with_read_committed_sees_no_aborted_record(kafka: Any, tools: Tools, protocol: str) -> None:
    topic = kafka.topic("isolated", 1, 2)
    settings = {"transactional.id": f"tool-{uuid4().hex[:8]}"}
    write(tools, topic, range(10), **settings)
    aborted = Producer({"bootstrap.servers": tools.servers, "log_level": 2, **settings})
    aborted.init_transactions(60)
    aborted.begin_transaction()
    for value in range(10, 20):
        aborted.produce(topic, str(value))
    assert aborted.flush(60) == 0
    aborted.abort_transaction(60)
    write(tools, topic, range(20, 30), **settings)

    def read(isolation: str, records: int) -> list[str]:
        options = (f"group.protocol={protocol}", f"isolation.level={isolation}")
        return consumed(tools, topic, uuid4().hex, records, *options).result().succeeded().out.split()

    assert read("read_committed", 20) == [str(n) for n in range(30) if not 10 <= n < 20]
    assert read("read_uncommitted", 30) == [str(n) for n in range(30)]
