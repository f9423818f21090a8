"""DescribeQuorum, UpdateFeatures, UnregisterBroker answer as in Apache Kafka, with a quorum of one controller (A4)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from kafka_tools import Tools

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def quorum(kafka: Any, version: int, topic: str = "__cluster_metadata", *partitions: int, node: int = 1) -> Any:
    rows = tuple({"partition_index": number} for number in partitions or (0,))
    topics = ({"topic_name": topic, "partitions": rows},)
    return kafka.raw(node).ask(ApiKey.DESCRIBE_QUORUM, version, topics=topics)


def update(kafka: Any, *rows: tuple[str, int, int], version: int = 2, node: int = 1) -> Any:
    updates = tuple({"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in rows)
    asked: dict[str, Any] = {"timeout": 10_000, "feature_updates": updates, "validate_only": True}
    return kafka.raw(node).ask(ApiKey.UPDATE_FEATURES, version, **asked)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_broker_says_who_leads_and_in_which_epoch(kafka: Any, version: int) -> None:
    found = [quorum(kafka, version, node=node) for node in kafka.ports]
    assert {row.error_code for row in found} == {ErrorCode.none}
    parts = [row.topics[0].partitions[0] for row in found]
    assert {(part.error_code, part.partition_index) for part in parts} == {(ErrorCode.none, 0)}
    assert len({(part.leader_id, part.leader_epoch) for part in parts}) == 1
    (leader,) = {part.leader_id for part in parts}
    assert leader in kafka.ports
    assert leader in {row.replica_id for row in parts[0].current_voters}
    replicas = [row.replica_id for row in (*parts[0].current_voters, *parts[0].observers)]
    assert sorted(replicas) == sorted(kafka.ports)
    if version == 2:
        assert leader in {node.node_id for node in found[0].nodes}
        assert all(node.listeners for node in found[0].nodes)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(("topic", "partitions"), [("orders", (0,)), ("__cluster_metadata", (1,))])
def test_another_partition_is_unknown(kafka: Any, version: int, topic: str, partitions: tuple[int, ...]) -> None:
    found = quorum(kafka, version, topic, *partitions)
    assert found.error_code is ErrorCode.none
    (row,) = found.topics
    (part,) = row.partitions
    shown = (row.topic_name, part.partition_index, part.error_code, part.leader_id, part.leader_epoch)
    assert shown == (topic, partitions[0], ErrorCode.unknown_topic_or_partition, 0, 0)
    assert (part.high_watermark, part.current_voters, part.observers) == (0, (), ())
    if version == 2:
        message = "This server does not host this topic-partition."
        assert (found.error_message, part.error_message, found.nodes) == ("", message, ())


def test_a_level_that_the_cluster_has_is_accepted(kafka: Any) -> None:
    for node in kafka.ports:
        found = update(kafka, ("group.version", 1, UPGRADE), ("transaction.version", 2, UPGRADE), node=node)
        assert (found.error_code, found.error_message) == (ErrorCode.none, None)
    found = update(kafka, ("group.version", 1, SAFE_DOWNGRADE), version=1)
    results = [(row.feature, row.error_code, row.error_message) for row in found.results]
    assert results == [("group.version", ErrorCode.none, "NONE")]
    assert update(kafka).error_code is ErrorCode.none


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        (
            "group.version",
            0,
            UPGRADE,
            "upgrade type to either safe or unsafe downgrade.",
        ),
        ("group.version", -1, UPGRADE, "A feature version cannot be less than 0."),
        ("transaction.version", 9, UPGRADE, "only supports versions 0-2"),
        ("no.such.version", 1, UPGRADE, "does not support this feature."),
        ("no.such.version", 0, UPGRADE, "Feature no.such.version not found."),
        ("group.version", 1, 7, "The controller does not support the given upgrade type."),
    ],
)
def test_a_level_that_is_not_possible_is_refused_with_the_reason(
    kafka: Any, version: int, name: str, level: int, kind: int, reason: str
) -> None:
    found = update(kafka, ("transaction.version", 2, UPGRADE), (name, level, kind), version=version)
    assert found.error_code is ErrorCode.invalid_update_version
    head = "The update failed for all features since the following feature had an error: Invalid update version "
    assert found.error_message.startswith(f"{head}{level} for feature {name}. "), found.error_message
    assert found.error_message.endswith(reason), found.error_message
    assert getattr(found, "results", ()) == ()


def test_a_broker_that_is_not_registered_cannot_be_unregistered(kafka: Any) -> None:
    for node in kafka.ports:
        found = kafka.raw(node).ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=99)
        assert found.error_code is ErrorCode.broker_id_not_registered
        assert found.error_message == "Broker ID 99 is not currently registered"


def test_the_tool_describes_the_quorum(kafka: Any, tools: Tools) -> None:
    found = tools.run("MetadataQuorumCommand", "describe", "--status").succeeded()
    fields = {line.split(":")[0]: line.split(":", 1)[1].strip() for line in found.text.splitlines() if ":" in line}
    part = quorum(kafka, 2).topics[0].partitions[0]
    assert (fields["LeaderId"], fields["LeaderEpoch"]) == (str(part.leader_id), str(part.leader_epoch))
    found = tools.run("MetadataQuorumCommand", "describe", "--replication").succeeded()
    statuses = {row[0]: row[-1] for row in found.rows[1:]}
    assert sorted(statuses) == sorted(map(str, kafka.ports))
    assert statuses[str(part.leader_id)] == "Leader"


def test_the_tool_describes_the_features(kafka: Any, tools: Tools) -> None:
    found = tools.run("FeatureCommand", "describe").succeeded()
    levels = {row[1]: row[7] for row in found.rows if row[0] == "Feature:"}
    assert (levels["group.version"], levels["transaction.version"]) == ("1", "2")
