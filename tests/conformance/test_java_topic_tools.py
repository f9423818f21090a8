"""Kafka's tools for topics, settings, offsets and replicas give on our cluster what they give on Apache Kafka (A4, D4).

The tools are Kafka's own classes, unmodified (`support/kafka_tools.py`). Each test states their output, and holds for
both clusters. Texts of errors may differ, so tests compare the class of an error.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harrow.cluster.wire.api_keys import ApiKey
from kafka_tools import Tools
from kafka_versions import KAFKA_VERSIONS
from waiting import until

ERROR = re.compile(r"errors\.(\w+)")


def produced(tools: Tools, topic: str, *values: int, partition: int = 0) -> None:
    """Writes the values to one partition, each acknowledged by all replicas."""
    producer = Producer({"bootstrap.servers": tools.servers, "log_level": 2})
    for value in values:
        producer.produce(topic, str(value), partition=partition)
    assert producer.flush(60) == 0


def refused(tools: Tools, *arguments: str) -> str:
    """The class of the error with which the tool failed."""
    result = tools.run(*arguments)
    assert result.status == 1, result
    (error, *_) = ERROR.findall(result.out + result.err)
    return str(error)


def config(tools: Tools, action: str, kind: str, name: str, *arguments: str) -> str:
    entity = ("--entity-name", name) if name else ("--entity-default",)
    result = tools.run("ConfigCommand", f"--{action}", "--entity-type", kind, *entity, *arguments)
    return result.succeeded().text


# ------------------------------------------------------------------------------ topics


def test_topics_are_created_described_altered_and_deleted(kafka: Any, tools: Tools) -> None:
    topic = f"tool-{kafka.topic('made', 1)}"
    placed = ("--replica-assignment", "1:2,2:3")
    made = tools.run(
        "TopicCommand",
        "--create",
        "--topic",
        topic,
        *placed,
        "--config",
        "retention.ms=100000",
        "--config",
        "cleanup.policy=compact,delete",
    )
    assert made.succeeded().text == f"Created topic {topic}."
    again = tools.run("TopicCommand", "--create", "--topic", topic, *placed)
    assert again.status == 1
    assert f"Topic '{topic}' already exists." in again.out
    assert tools.run("TopicCommand", "--create", "--topic", topic, "--if-not-exists").succeeded().text == ""
    # the broker that answers may not be the one that --create waited for
    until(lambda: topic in tools.run("TopicCommand", "--list").succeeded().text.splitlines(), f"{topic} is listed")
    more = ("--partitions", "3", "--replica-assignment", "1:2,2:3,3:1")
    assert tools.run("TopicCommand", "--alter", "--topic", topic, *more).succeeded().text == ""
    described = until(lambda: _described(tools, topic, partitions=3), "the third partition")
    head, *partitions = described.splitlines()
    assert head.startswith(f"Topic: {topic}\tTopicId: ID\tPartitionCount: 3\tReplicationFactor: 2\tConfigs: ")
    settings = head.partition("Configs: ")[2]
    assert "cleanup.policy=compact,delete" in settings
    assert "retention.ms=100000" in settings
    assert partitions == [
        f"\tTopic: {topic}\tPartition: {number}\tLeader: {replicas[0]}\tReplicas: {replicas}"
        f"\tIsr: {replicas}\tElr:\tLastKnownElr:".replace("Elr:\tLast", "Elr: \tLast")
        for number, replicas in enumerate(("1,2", "2,3", "3,1"))
    ]
    assert tools.run("TopicCommand", "--delete", "--topic", topic).succeeded().text == ""
    until(lambda: topic not in tools.run("TopicCommand", "--list").succeeded().text.splitlines())
    gone = tools.run("TopicCommand", "--delete", "--topic", topic)
    assert (gone.status, f"Topic '{topic}' does not exist as expected" in gone.out) == (1, True)


def _described(tools: Tools, topic: str, partitions: int) -> str | None:
    """The description when each partition has all of its replicas in the ISR."""
    text = tools.run("TopicCommand", "--describe", "--topic", topic).text
    rows = re.findall(r"Replicas: (\S+)\tIsr: (\S+)\t", text)
    return text if [row == row[::-1] for row in rows] == [True] * partitions else None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--create", "--topic", "NEW", "--replication-factor", "5"), "replication"),
        (("--create", "--topic", "NEW", "--replica-assignment", "1:7"), "7"),
        (("--alter", "--topic", "OLD", "--partitions", "1"), "1 partition"),
        (("--alter", "--topic", "OLD", "--partitions", "2", "--replica-assignment", "1,9"), "9"),
    ],
)
def test_topics_that_are_not_possible_are_refused(
    kafka: Any, tools: Tools, arguments: tuple[str, ...], error: str
) -> None:
    old = kafka.topic("old", 1)
    names = {"OLD": old, "NEW": f"new-{old}"}
    result = tools.run("TopicCommand", *(names.get(word, word) for word in arguments))
    assert result.status == 1
    assert "Error while executing topic command : " in result.out
    assert error in result.out.lower()


def test_partitions_with_a_replica_that_is_not_in_sync_are_described(kafka: Any, tools: Tools) -> None:
    topic = kafka.topic("lagging", 1, 2, min_insync_replicas="2")
    asked = ("TopicCommand", "--describe", "--topic", topic)
    for filtered in ("under-replicated", "unavailable", "under-min-isr"):
        assert tools.run(*asked, f"--{filtered}-partitions").succeeded().text == ""
    assert f"Topic: {topic}" in tools.run(*asked, "--at-min-isr-partitions").succeeded().text
    kafka.kill(2)
    try:
        row = f"Topic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\t"
        for filtered in ("under-replicated", "under-min-isr"):
            until(lambda: row in tools.run(*asked, f"--{filtered}-partitions").text)  # noqa: B023
    finally:
        kafka.start(2)
    until(lambda: tools.run(*asked, "--under-replicated-partitions").text == "", "the ISR is full")


# ---------------------------------------------------------------------------- settings


def test_settings_of_a_topic_are_described_with_their_sources(kafka: Any, tools: Tools) -> None:
    topic = kafka.topic("settings", 1)
    updated = f"Completed updating config for topic {topic}."
    added = ("--add-config", "retention.ms=777000,max.message.bytes=2000,cleanup.policy=[compact,delete]")
    assert config(tools, "alter", "topics", topic, *added) == updated
    defaults = {
        "cleanup.policy": ("compact,delete", ", DEFAULT_CONFIG:log.cleanup.policy=delete"),
        "max.message.bytes": ("2000", ", DEFAULT_CONFIG:message.max.bytes=1048588"),
        "retention.ms": ("777000", ""),
    }
    rows = [
        f"{name}={value} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{name}={value}{default}}}"
        for name, (value, default) in defaults.items()
    ]
    head = f"Dynamic configs for topic {topic} are:"
    until(lambda: len(config(tools, "describe", "topics", topic).splitlines()) == 4)
    assert config(tools, "describe", "topics", topic).splitlines() == [head, *(f"  {row}" for row in rows)]
    gone = ("--delete-config", "retention.ms,max.message.bytes")
    assert config(tools, "alter", "topics", topic, *gone) == updated
    until(lambda: config(tools, "describe", "topics", topic).splitlines() == [head, f"  {rows[0]}"])


def test_settings_that_are_not_valid_are_refused(kafka: Any, tools: Tools) -> None:
    topic = kafka.topic("settings", 1)

    def error(kind: str, name: str, setting: str) -> str:
        entity = ("--entity-type", kind, "--entity-name", name)
        return refused(tools, "ConfigCommand", "--alter", *entity, "--add-config", setting)

    assert error("topics", topic, "nonsense=2") == "InvalidConfigurationException"
    assert error("topics", topic, "retention.ms=-5") == "InvalidConfigurationException"
    assert error("topics", "nowhere", "retention.ms=5") == "UnknownTopicOrPartitionException"
    assert error("brokers", "1", "broker.id=4") == "InvalidRequestException"
    assert error("brokers", "1", "log.retention.ms=abc") == "InvalidRequestException"
    assert error("brokers", "1", "log.dirs=/x") == "InvalidRequestException"


def test_settings_of_a_broker_and_of_all_brokers_are_layered(tools: Tools) -> None:
    try:
        config(tools, "alter", "brokers", "", "--add-config", "message.max.bytes=900000")
        config(tools, "alter", "brokers", "1", "--add-config", "message.max.bytes=800000")
        wanted = (
            "message.max.bytes=800000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:message.max.bytes=800000, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=900000, DEFAULT_CONFIG:message.max.bytes=1048588}"
        )
        until(lambda: wanted in config(tools, "describe", "brokers", "1"))
        assert "message.max.bytes" not in config(tools, "describe", "brokers", "2")
        own = "message.max.bytes=900000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=9"
        assert own in config(tools, "describe", "brokers", "")
    finally:
        for name in ("1", ""):
            config(tools, "alter", "brokers", name, "--delete-config", "message.max.bytes")
    until(lambda: "message.max.bytes" not in config(tools, "describe", "brokers", "1"))


def test_quotas_of_clients_are_stored_and_described(tools: Tools) -> None:
    rates = ("--add-config", "consumer_byte_rate=1000000")
    client = ("clients", "tool client")
    try:
        said = config(tools, "alter", *client, *rates)
        assert said == "Completed updating config for client tool client."
        row = "Quota configs for client-id 'tool client' are consumer_byte_rate=1000000.0"
        until(lambda: config(tools, "describe", *client) == row)
    finally:
        config(tools, "alter", *client, "--delete-config", "consumer_byte_rate")
    until(lambda: config(tools, "describe", *client) == "")


# ------------------------------------------------------------------ offsets and folders


def test_records_are_deleted_and_offsets_listed(kafka: Any, tools: Tools, tmp_path: Path) -> None:
    topic = kafka.topic("offsets", 1, 2)
    produced(tools, topic, *range(12))

    def offset(time: str) -> str:
        return tools.run("GetOffsetShell", "--topic", topic, "--time", time).succeeded().text

    assert [offset(time) for time in ("-1", "-2")] == [f"{topic}:0:12", f"{topic}:0:0"]
    plan = tmp_path / "delete.json"
    rows = [{"topic": topic, "partition": 0, "offset": 5}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    deleted = tools.run("DeleteRecordsCommand", "--offset-json-file", str(plan)).succeeded().text
    assert f"partition: {topic}-0\tlow_watermark: 5" in deleted.splitlines()
    assert [offset(time) for time in ("earliest", "latest")] == [f"{topic}:0:5", f"{topic}:0:12"]
    rows[0]["offset"] = 99
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    beyond = tools.run("DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert f"partition: {topic}-0\terror: " in beyond.out
    assert "OffsetOutOfRangeException" in beyond.out


def test_replicas_are_found_in_the_data_folders_of_their_brokers(kafka: Any, tools: Tools) -> None:
    topic = kafka.topic("folders", 1, 2)
    produced(tools, topic, 1)
    until(lambda: _log_dirs(tools, topic) == {1: [(f"{topic}-0", 0, False)], 2: [(f"{topic}-0", 0, False)], 3: []})
    unknown = tools.run("LogDirsCommand", "--describe", "--broker-list", "1,7")
    assert unknown.status == 1
    assert "The given brokers do not exist from --broker-list: 7" in unknown.err


def _log_dirs(tools: Tools, topic: str) -> dict[int, list[tuple[str, int, bool]]]:
    text = tools.run("LogDirsCommand", "--describe", "--topic-list", topic).succeeded().text
    described = json.loads(text.splitlines()[-1])
    folders = {row["broker"]: row["logDirs"] for row in described["brokers"]}
    assert all(len(rows) == 1 and rows[0]["error"] is None for rows in folders.values())
    return {
        node: [(p["partition"], p["offsetLag"], p["isFuture"]) for p in folder["partitions"]]
        for node, (folder,) in folders.items()
    }


# ----------------------------------------------------------------- leaders and replicas


def test_the_preferred_leader_is_elected_after_its_broker_was_away(kafka: Any, tools: Tools) -> None:
    topic = kafka.topic("led", 2, 1)
    partition = ("--topic", topic, "--partition", "0")

    def elect(kind: str) -> str:
        result = tools.run("LeaderElectionCommand", "--election-type", kind, *partition)
        return result.succeeded().text

    assert elect("preferred") == f"Valid replica already elected for partitions {topic}-0"
    kafka.kill(2)
    try:
        until(lambda: kafka.partition(topic, 1).leader_id == 1, "another leader")
        failed = tools.run("LeaderElectionCommand", "--election-type", "preferred", *partition)
        assert (failed.status, "PreferredLeaderNotAvailableException" in failed.out) == (1, True)
        assert elect("unclean") == f"Valid replica already elected for partitions {topic}-0"
    finally:
        kafka.start(2)
    until(lambda: set(kafka.partition(topic, 1).isr_nodes) == {1, 2}, "the ISR is full")
    done = f"Successfully completed leader election (PREFERRED) for partitions {topic}-0"
    assert elect("preferred") in (done, f"Valid replica already elected for partitions {topic}-0")
    until(lambda: kafka.partition(topic, 1).leader_id == 2, "the preferred leader leads")
    unknown = ("--topic", f"{topic}-x", "--partition", "0", "--election-type", "preferred")
    error = refused(tools, "LeaderElectionCommand", *unknown)
    assert error == "UnknownTopicOrPartitionException"


def reassignment(path: Path, topic: str, *replicas: int, folders: tuple[str, ...] = ()) -> str:
    row: dict[str, Any] = {"topic": topic, "partition": 0, "replicas": replicas}
    if folders:
        row["log_dirs"] = folders
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    return str(path)


def test_replicas_are_reassigned_verified_and_listed(kafka: Any, tools: Tools, tmp_path: Path) -> None:
    topic = kafka.topic("moved", 1, 2)
    produced(tools, topic, *range(50))
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    proposed = (
        tools.run(
            "ReassignPartitionsCommand",
            "--generate",
            "--broker-list",
            "1,2,3",
            "--topics-to-move-json-file",
            str(wanted),
        )
        .succeeded()
        .text.splitlines()
    )
    assert proposed[0] == "Current partition replica assignment"
    assert json.loads(proposed[1])["partitions"][0]["replicas"] == [1, 2]
    assert proposed[3] == "Proposed partition reassignment configuration"
    assert len(json.loads(proposed[4])["partitions"][0]["replicas"]) == 2
    file = ("--reassignment-json-file", reassignment(tmp_path / "plan.json", topic, 3, 2))
    begun = tools.run("ReassignPartitionsCommand", "--execute", *file).succeeded().text
    assert begun.splitlines()[-1] == f"Successfully started partition reassignment for {topic}-0"
    finished = [
        "Status of partition reassignment:",
        f"Reassignment of partition {topic}-0 is completed.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    until(lambda: tools.run("ReassignPartitionsCommand", "--verify", *file).text.splitlines() == finished)
    assert set(kafka.partition(topic, 1).replica_nodes) == {2, 3}
    assert f"{topic}-0" not in tools.run("ReassignPartitionsCommand", "--list").succeeded().text
    cancelled = tools.run("ReassignPartitionsCommand", "--cancel", *file).succeeded().text
    assert cancelled.startswith("None of the specified partition reassignments are active.")


def test_a_reassignment_with_data_folders_is_executed_and_verified(kafka: Any, tools: Tools, tmp_path: Path) -> None:
    topic = kafka.topic("placed", 1, 2)
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    text = (
        tools.run(
            "ReassignPartitionsCommand",
            "--generate",
            "--broker-list",
            "1,2,3",
            "--topics-to-move-json-file",
            str(wanted),
        )
        .succeeded()
        .text
    )
    current = tmp_path / "current.json"
    current.write_text(text.splitlines()[1])
    folders = json.loads(current.read_text())["partitions"][0]["log_dirs"]
    file = ("--reassignment-json-file", str(current))
    done = tools.run("ReassignPartitionsCommand", "--execute", *file).succeeded().text
    assert "Successfully started moving log directory to " in done
    verified = tools.run("ReassignPartitionsCommand", "--verify", *file).succeeded().text
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "is not being moved" not in verified
    unknown = (
        "--reassignment-json-file",
        reassignment(tmp_path / "unknown.json", topic, 1, 2, folders=("/nowhere", folders[1])),
    )
    error = refused(tools, "ReassignPartitionsCommand", "--execute", "--timeout", "2000", *unknown)
    assert error == "LogDirNotFoundException"


def begin_move(kafka: Any, topic: str, *replicas: int) -> None:
    """Asks the controller to reassign partition 0."""
    row = {"partition_index": 0, "replicas": replicas}
    controller = kafka.raw(1).metadata().controller_id
    node = 1 if kafka.name == "apache" else controller  # brokers of Apache Kafka forward it
    answer = kafka.raw(node).ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=10_000, topics=({"name": topic, "partitions": (row,)},)
    )
    assert answer.responses[0].partitions[0].error_code == 0, answer


def test_a_reassignment_to_a_killed_broker_is_listed_and_cancelled(kafka: Any, tools: Tools, tmp_path: Path) -> None:
    # KRaft: each response names another broker
    controller = kafka.raw(1).metadata().controller_id
    dead = next(node for node in (3, 2) if node != controller)
    other = 5 - dead
    topic = kafka.topic("stuck", 1, other)
    file = ("--reassignment-json-file", reassignment(tmp_path / "plan.json", topic, 1, dead))
    try:
        if kafka.name == "harrow":  # accepts only replicas on live brokers
            kafka.pause(dead)
            begin_move(kafka, topic, 1, dead)
        kafka.kill(dead)
        if kafka.name == "apache":
            begin_move(kafka, topic, 1, dead)
        move = f"{topic}-0: replicas: 1,{dead},{other}. adding: {dead}. removing: {other}."
        until(lambda: move in tools.run("ReassignPartitionsCommand", "--list").text)
        verified = tools.run("ReassignPartitionsCommand", "--verify", *file).succeeded().text
        assert f"Reassignment of partition {topic}-0 is still in progress." in verified
        cancelled = tools.run("ReassignPartitionsCommand", "--cancel", "--preserve-throttles", *file).succeeded().text
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
        until(lambda: set(kafka.partition(topic, 1).replica_nodes) == {1, other}, "as before")
    finally:
        kafka.start(dead)


def test_a_reassignment_with_a_throttle_sets_and_clears_it(kafka: Any, tools: Tools, tmp_path: Path) -> None:
    topic = kafka.topic("paced", 1, 2)
    file = ("--reassignment-json-file", reassignment(tmp_path / "plan.json", topic, 3, 2))
    begun = tools.run("ReassignPartitionsCommand", "--execute", "--throttle", "100000000", *file)
    assert "The inter-broker throttle limit was set to 100000000 B/s" in begun.succeeded().text
    rate = "leader.replication.throttled.rate=100000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
    until(lambda: rate in config(tools, "describe", "brokers", "1"))
    assert "leader.replication.throttled.replicas=0:1,0:2" in config(tools, "describe", "topics", topic)
    until(lambda: "is completed" in tools.run("ReassignPartitionsCommand", "--verify", *file).text)
    until(lambda: "throttled" not in config(tools, "describe", "brokers", "1"))
    until(lambda: "throttled" not in config(tools, "describe", "topics", topic))


# ------------------------------------------------------------------------------ cluster


def test_the_cluster_and_its_features_are_described(tools: Tools) -> None:
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", tools.run("ClusterTool", "cluster-id").succeeded().text)
    rows = tools.run("ClusterTool", "list-endpoints").succeeded().rows
    assert [row[0] for row in rows[1:]] == ["1", "2", "3"]
    assert {tuple(row[3:]) for row in rows[1:]} == {("null", "unfenced", "broker")}
    features = tools.run("FeatureCommand", "describe").succeeded().text
    # columns are separated by a tab up to Kafka 4.2, by spaces in 4.4
    rows = [row.split() for row in features.splitlines()]
    for name, most in (("group.version", "1"), ("transaction.version", "2")):
        row = ["Feature:", name, "SupportedMinVersion:", "0", "SupportedMaxVersion:", most]
        assert [*row, "FinalizedVersionLevel:", most, "Epoch:"] in [found[:-1] for found in rows], features


def test_each_version_that_the_java_client_uses_is_served(kafka: Any, tools: Tools) -> None:
    text = tools.run("BrokerApiVersionsCommand").succeeded().text
    for node in kafka.ports:
        assert f"broker-{node} (id: {node} rack: null isFenced: false) -> (" in text
    found = re.findall(r"^\t(\w+)\((\d+)\): .*\[usable: (\d+)\]", text, re.MULTILINE)
    assert {int(key): int(usable) for _, key, usable in found}.items() <= {
        key: high for key, (_, high) in KAFKA_VERSIONS.items()
    }.items()
    assert len(found) >= 3 * 40
