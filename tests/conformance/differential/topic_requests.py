"""Sensible requests that create, change and describe topics and settings; see `requests.py`."""

from __future__ import annotations

from .cases import Json
from .requests import Body, Maker, base
from .world import ONE, TWO, create, delete, metadata

NEW = "new%"
TOPIC, BROKER = 2, 4
TIMEOUT_MS = 5_000


def made(make: Maker, places: list[list[int]] | None = None) -> None:
    """Adds the steps of a new topic that the case may change."""
    make.add(create(NEW, places or [[1, 2, 3]], {"retention.ms": "1000000"}, node=make.controller))
    for node in (1, 2, 3):
        make.add(metadata(NEW, node=node))


def remove(make: Maker) -> None:
    make.add(delete(NEW, node=make.controller))


def described(make: Maker) -> None:
    """Probes the partitions and the settings of the case's topic."""
    make.add(metadata(NEW, role="probe"))
    names = ["retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas"]
    make.probe("DescribeConfigs", {"resources": [resource(NEW, names)], "includeSynonyms": True})


def resource(name: str, names: list[str] | None, kind: int = TOPIC) -> Body:
    return {"resourceType": kind, "resourceName": name, "configurationKeys": names}


@base
def CreateTopics(make: Maker) -> None:  # noqa: N802
    assigned = make.random.random() < 0.6
    places = [{"partitionIndex": 0, "brokerIds": [1, 2]}, {"partitionIndex": 1, "brokerIds": [2, 3]}]
    row = {
        "name": NEW,
        "numPartitions": -1 if assigned else 2,
        "replicationFactor": -1 if assigned else 3,
        "assignments": places if assigned else [],
        "configs": [{"name": "retention.ms", "value": "1000"}, {"name": "cleanup.policy", "value": "delete"}],
    }
    only = make.random.random() < 0.4
    body = {"topics": [row], "timeoutMs": TIMEOUT_MS, "validateOnly": only}
    make.target("CreateTopics", body, node=make.some_node())
    if assigned and not only:
        described(make)
    remove(make)


@base
def DeleteTopics(make: Maker) -> None:  # noqa: N802
    made(make, [[1]])
    rows: list[Json] = [{"name": NEW, "topicId": "0" * 32}]
    if make.random.random() < 0.3:
        rows = [{"name": None, "topicId": {"$topicId": NEW}}]
    body = {"topics": rows, "topicNames": [NEW], "timeoutMs": TIMEOUT_MS}
    make.target("DeleteTopics", body, node=make.some_node())
    remove(make)


@base
def CreatePartitions(make: Maker) -> None:  # noqa: N802
    made(make, [[1]])
    assignments = [{"brokerIds": [2]}, {"brokerIds": [3]}]
    row = {"name": NEW, "count": 3, "assignments": assignments}
    only = make.random.random() < 0.4
    body = {"topics": [row], "timeoutMs": TIMEOUT_MS, "validateOnly": only}
    make.target("CreatePartitions", body, node=make.some_node())
    make.add(metadata(NEW, role="probe"))
    remove(make)


@base
def ElectLeaders(make: Maker) -> None:  # noqa: N802
    rows = [{"topic": TWO, "partitions": [0, 1]}]
    body = {"electionType": make.random.choice((0, 0, 1)), "topicPartitions": rows, "timeoutMs": TIMEOUT_MS}
    make.target("ElectLeaders", body, node=make.some_node())
    make.add(metadata(TWO, role="probe"))


@base
def AlterPartitionReassignments(make: Maker) -> None:  # noqa: N802
    made(make, [[1, 2]])
    replicas = make.random.choice(([1, 2], [2, 1], [1, 3], None))
    rows = [{"name": NEW, "partitions": [{"partitionIndex": 0, "replicas": replicas}]}]
    make.target("AlterPartitionReassignments", {"topics": rows, "timeoutMs": TIMEOUT_MS}, node=make.some_node())
    remove(make)


@base
def ListPartitionReassignments(make: Maker) -> None:  # noqa: N802
    rows = [{"name": ONE, "partitionIndexes": [0]}]
    make.target("ListPartitionReassignments", {"topics": rows, "timeoutMs": TIMEOUT_MS}, node=make.some_node())


@base
def DescribeConfigs(make: Maker) -> None:  # noqa: N802
    topics = ["retention.ms", "cleanup.policy"]
    forms = (
        resource(ONE, topics),
        resource(TWO, None),
        resource("1", ["log.retention.ms", "num.io.threads"], BROKER),
        resource("", ["background.threads"], BROKER),
    )
    body = {
        "resources": [make.random.choice(forms)],
        "includeDocumentation": False,
        "includeSynonyms": make.random.random() < 0.5,
    }
    make.target("DescribeConfigs", body)


SETTINGS = (
    ("retention.ms", "5000"),
    ("cleanup.policy", "compact"),
    ("max.message.bytes", "1000"),
    ("segment.bytes", "1048576"),
    ("min.insync.replicas", "2"),
    ("compression.type", "gzip"),
    ("message.timestamp.type", "LogAppendTime"),
    ("min.cleanable.dirty.ratio", "0.5"),
)


@base
def IncrementalAlterConfigs(make: Maker) -> None:  # noqa: N802
    made(make)
    key, value = make.random.choice(SETTINGS)
    operation = 0 if key != "cleanup.policy" else make.random.choice((0, 2, 3))
    rows = [{"name": key, "configOperation": operation, "value": value}]
    body = {
        "resources": [{"resourceType": TOPIC, "resourceName": NEW, "configs": rows}],
        "validateOnly": make.random.random() < 0.3,
    }
    make.target("IncrementalAlterConfigs", body, node=make.some_node())
    described(make)
    remove(make)


@base
def AlterConfigs(make: Maker) -> None:  # noqa: N802
    made(make)
    key, value = make.random.choice(SETTINGS)
    rows = [{"name": key, "value": value}]
    body = {
        "resources": [{"resourceType": TOPIC, "resourceName": NEW, "configs": rows}],
        "validateOnly": make.random.random() < 0.3,
    }
    make.target("AlterConfigs", body, node=make.some_node())
    described(make)
    remove(make)


@base
def ListConfigResources(make: Maker) -> None:  # noqa: N802
    make.target("ListConfigResources", {"resourceTypes": [make.random.choice((2, 4))]})
