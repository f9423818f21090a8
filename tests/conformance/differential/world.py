"""The small world that every case finds: topics with known places and records, made by requests like any other.

    one~       1 partition on [1, 2, 3]; 6 records in 3 batches
    two~       2 partitions on [1, 2] and [2, 3]; empty
    compact~   1 partition on [1], cleanup.policy=compact; a record with a key
    times~     1 partition on [1], message.timestamp.type=LogAppendTime; empty
    gone~      created and deleted; its id stays known

Internal topics are created first, all on node 1: it is the coordinator of all groups and transactions on
both systems, so that a wrong group id never meets another coordinator on one system alone.
"""

from __future__ import annotations

import json
from typing import Any

from .cases import Case, Step

ONE, TWO, COMPACT, TIMES, GONE = "one~", "two~", "compact~", "times~", "gone~"
PLACES: dict[str, tuple[list[list[int]], dict[str, str]]] = {
    ONE: ([[1, 2, 3]], {}),
    TWO: ([[1, 2], [2, 3]], {}),
    COMPACT: ([[1]], {"cleanup.policy": "compact"}),
    TIMES: ([[1]], {"message.timestamp.type": "LogAppendTime"}),
    GONE: ([[1]], {}),
}
INTERNAL_PARTITIONS = 5
RECORDS_IN_BATCHES = (1, 2, 3)


CHANGES_TOPICS = frozenset(
    {"AlterPartitionReassignments", "CreatePartitions", "DeleteTopics", "AlterConfigs", "IncrementalAlterConfigs"}
)


def is_changed_by(case: Case) -> bool:
    """True when a case may change the topics of its world: what the next cases find there depends on time then."""
    return any(
        step.role == "target" and step.api in CHANGES_TOPICS and "~" in json.dumps(step.body) for step in case.steps
    )


def create(name: str, places: list[list[int]], settings: dict[str, str], *, node: int = 1) -> Step:
    """Returns the step that creates a topic on these nodes."""
    body = {"topics": [_topic(name, places, settings)], "timeoutMs": 20_000}
    return Step(api="CreateTopics", version=7, node=node, body=body)


def _topic(name: str, places: list[list[int]], settings: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "numPartitions": -1,
        "replicationFactor": -1,
        "assignments": [{"partitionIndex": index, "brokerIds": nodes} for index, nodes in enumerate(places)],
        "configs": [{"name": key, "value": value} for key, value in settings.items()],
    }


def delete(*names: str, node: int = 1, role: str = "cleanup") -> Step:
    """Returns the step that deletes topics."""
    body = {"topicNames": list(names), "timeoutMs": 20_000}
    return Step(api="DeleteTopics", version=5, node=node, role=role, body=body)


def metadata(*names: str, node: int = 1, role: str = "setup") -> Step:
    """Returns the step that reads the metadata of topics, and waits for them when it is a set-up."""
    topics = [{"name": name} for name in names]
    body = {"topics": topics, "allowAutoTopicCreation": False}
    return Step(api="Metadata", version=12, node=node, role=role, body=body)


def ends(topic: str, *partitions: int, node: int = 1, role: str = "setup") -> Step:
    """Returns the step that asks for the end offsets: a leader that serves it is ready."""
    rows = [{"partitionIndex": each, "timestamp": -1} for each in partitions or (0,)]
    body = {"replicaId": -1, "topics": [{"name": topic, "partitions": rows}]}
    return Step(api="ListOffsets", version=7, node=node, role=role, body=body)


def internal_topics(controller: int) -> Case:
    """Returns the case that creates the internal topics; it is run once for each pair of clusters.

    They have one replica: a coordinator's writes need not wait for followers, and cases take less time.
    """
    places = [[1]] * INTERNAL_PARTITIONS
    settings = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    names = ("__consumer_offsets", "__transaction_state", "__share_group_state")
    steps = [create(name, places, settings, node=controller) for name in names]
    return Case(steps=(*steps, *(metadata(*names, node=node) for node in (1, 2, 3))))


def prepared(controller: int, worlds: list[str]) -> Case:
    """Returns the case that makes these worlds at once; `controller` is the node that creates topics."""
    names = {name: [named(name, world) for world in worlds] for name in PLACES}
    every = [each for group in names.values() for each in group]
    rows = [_topic(each, *how) for name, how in PLACES.items() for each in names[name]]
    body = {"topics": rows, "timeoutMs": 20_000}
    made = Step(api="CreateTopics", version=7, node=controller, body=body)
    known = [metadata(*every, node=node) for node in (1, 2, 3)]
    led_by_1 = [name for name in PLACES if name != GONE]
    serving = [_ends([each for name in led_by_1 for each in names[name]], 0, 1), _ends(names[TWO], 1, 2)]
    records = [_filled(names[ONE], size) for size in RECORDS_IN_BATCHES]
    steps = (made, *known, *serving, *records, _filled(names[COMPACT], 1), delete(*names[GONE], node=controller))
    return Case(steps=steps)


def named(name: str, world: str) -> str:
    """Returns the name of a topic in a world."""
    return name.replace("~", world)


def _ends(names: list[str], partition: int, node: int) -> Step:
    rows = [{"name": name, "partitions": [{"partitionIndex": partition, "timestamp": -1}]} for name in names]
    return Step(api="ListOffsets", version=7, node=node, body={"replicaId": -1, "topics": rows})


def _filled(names: list[str], size: int) -> Step:
    """Returns the step that produces a batch of `size` records to each topic."""
    described = {"records": [{"value": f"{size}-{each}"} for each in range(size)]}
    rows = [{"index": 0, "records": {"$batches": [described]}}]
    topics = [{"name": name, "partitionData": rows} for name in names]
    return Step(api="Produce", version=12, body={"acks": -1, "timeoutMs": 10_000, "topicData": topics})


def retired(controller: int, worlds: list[str]) -> Case:
    """Returns the case that deletes the topics of worlds."""
    names = [named(name, world) for name in PLACES if name != GONE for world in worlds]
    return Case(steps=(delete(*names, node=controller),))
