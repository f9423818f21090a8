"""The small world that every case finds: topics with known places and records, made by requests like any other.

    one~       1 partition on [1, 2, 3]; 6 records in 3 batches
    two~       2 partitions on [1, 2] and [2, 3]; empty
    compact~   1 partition on [1], cleanup.policy=compact; a record with a key
    times~     1 partition on [1], message.timestamp.type=LogAppendTime; empty
    gone~      created and deleted; its id stays known

Internal topics are created first, with all leaders on node 1: it is the coordinator of all groups and transactions on
both systems, so that a wrong group id never meets another coordinator on one system alone.
"""

from __future__ import annotations

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


def create(name: str, places: list[list[int]], settings: dict[str, str], *, node: int = 1) -> Step:
    """Returns the step that creates a topic on these nodes."""
    topic = {
        "name": name,
        "numPartitions": -1,
        "replicationFactor": -1,
        "assignments": [
            {"partitionIndex": index, "brokerIds": nodes} for index, nodes in enumerate(places)
        ],
        "configs": [{"name": key, "value": value} for key, value in settings.items()],
    }
    return Step(
        api="CreateTopics", version=7, node=node, body={"topics": [topic], "timeoutMs": 20_000}
    )


def delete(*names: str, node: int = 1, role: str = "cleanup") -> Step:
    """Returns the step that deletes topics."""
    body = {"topicNames": list(names), "timeoutMs": 20_000}
    return Step(api="DeleteTopics", version=5, node=node, role=role, body=body)


def metadata(*names: str, node: int = 1, role: str = "setup") -> Step:
    """Returns the step that reads the metadata of topics, and waits for them when it is a set-up."""
    topics = [{"name": name} for name in names]
    body = {"topics": topics, "allowAutoTopicCreation": False}
    return Step(api="Metadata", version=12, node=node, role=role, body=body)


def produce(
    topic: str, batches: list[dict[str, Any]], *, partition: int = 0, node: int = 1
) -> Step:
    """Returns the step that produces batches by name, with acks=all."""
    rows = [{"index": partition, "records": {"$batches": batches}}]
    body = {"acks": -1, "timeoutMs": 10_000, "topicData": [{"name": topic, "partitionData": rows}]}
    return Step(api="Produce", version=12, node=node, body=body)


def ends(topic: str, *partitions: int, node: int = 1, role: str = "setup") -> Step:
    """Returns the step that asks for the end offsets: a leader that serves it is ready."""
    rows = [{"partitionIndex": each, "timestamp": -1} for each in partitions or (0,)]
    body = {"replicaId": -1, "topics": [{"name": topic, "partitions": rows}]}
    return Step(api="ListOffsets", version=7, node=node, role=role, body=body)


def internal_topics(controller: int) -> Case:
    """Returns the case that creates the internal topics; it is run once for each pair of clusters."""
    places = [[1, 2, 3]] * INTERNAL_PARTITIONS
    settings = {"cleanup.policy": "compact"}
    names = ("__consumer_offsets", "__transaction_state")
    steps = [create(name, places, settings, node=controller) for name in names]
    return Case(steps=(*steps, *(metadata(*names, node=node) for node in (1, 2, 3))))


def prepared(controller: int) -> Case:
    """Returns the case that makes a world; `controller` is the node that creates topics."""
    made = [create(name, *how, node=controller) for name, how in PLACES.items()]
    known = [metadata(*PLACES, node=node) for node in (1, 2, 3)]
    serving = [ends(ONE), ends(TWO, 0), ends(TWO, 1, node=2), ends(COMPACT), ends(TIMES)]
    records = [
        produce(ONE, [{"records": [{"value": f"{size}-{each}"} for each in range(size)]}])
        for size in RECORDS_IN_BATCHES
    ]
    filled = [*records, produce(COMPACT, [{}])]
    gone = delete(GONE, node=controller)
    return Case(steps=(*made, *known, *serving, *filled, gone))


def retired(controller: int, names: list[str]) -> Case:
    """Returns the case that deletes the topics of a world."""
    return Case(steps=(delete(*names, node=controller),))
