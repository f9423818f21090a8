"""More partitions for a topic that exists (CreatePartitions, C9).

Owns: `add_partitions`. The new partitions continue the round robin of the existing ones: it starts at the broker of
partition 0's first replica, and each has as many replicas as partition 0. May fail: KafkaError with Kafka's codes.

Source: Kafka's ZkAdminManager.createPartitions, AdminZkClient.createNewPartitionsAssignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..errors import ErrorCode, KafkaError
from ..ids import NodeId, TopicPartition
from .assignment import assign_replicas, start_of_added
from .controller_context import ControllerContext
from .controller_core import ControllerCore
from .partition_writer import PlannedAssignment
from .topic_events import TopicEvents
from .topic_node import ReplicaAssignment

REQUEST_MOST = 10_000
"""How many partitions a request may create."""


async def add_partitions(
    core: ControllerCore,
    topics: TopicEvents,
    topic: str,
    count: int,
    placed: Sequence[Sequence[NodeId]] | None,
    *,
    most: int = REQUEST_MOST,
    dry: bool = False,
) -> int:
    """Bring `topic` to `count` partitions, at most `most` new ones; returns the number of new ones.

    `placed`: replicas of the new ones; None: as the round robin says. `dry`: only check.
    """

    def plan() -> dict[TopicPartition, PlannedAssignment]:
        new = _placed(core.context, topic, count, placed, most)
        return {
            TopicPartition(topic, number): (ReplicaAssignment(replicas=tuple(replicas)), None)
            for number, replicas in new.items()
        }

    if topic not in core.context.topics:
        await topics.topics_changed()  # a topic that was created a moment ago
    added = plan()
    if dry:
        return len(added)
    await core.writer.assign(topic, plan)
    await topics.partitions_added(topic)
    core.host.trace.log("info", f"controller: topic {topic} got partitions {sorted(added)}")
    return len(added)


def _placed(
    context: ControllerContext, topic: str, count: int, placed: Sequence[Sequence[NodeId]] | None, most: int
) -> Mapping[int, Sequence[NodeId]]:
    if topic in context.deleting:
        raise KafkaError(ErrorCode.invalid_topic_exception, "The topic is queued for deletion.")
    existing = context.topic_assignment(topic)
    if not existing:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{topic}' does not exist.")
    if any(assignment.is_reassigned for assignment in existing.values()):
        raise KafkaError(
            ErrorCode.reassignment_in_progress, f"A partition reassignment is in progress for the topic '{topic}'."
        )
    _check_count(len(existing), count)
    more = count - len(existing)
    if placed is not None:
        _check_placed(placed, more, len(existing[0].replicas), context.brokers.keys())
    if more > most:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"Excessively large number of partitions per request: {more} more for the topic '{topic}', of "
            f"{most} that the request may still create. Create fewer partitions with a request.",
        )
    if placed is not None:
        return {len(existing) + number: replicas for number, replicas in enumerate(placed)}
    racks = {node: broker.rack for node, broker in context.brokers.items()}
    start = start_of_added([*racks], existing[0].replicas[0], racks)
    return assign_replicas(
        [*racks], more, len(existing[0].replicas), start=start, shift=start, first_partition=len(existing), racks=racks
    )


def _check_count(existing: int, count: int) -> None:
    if count < existing:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"Topic currently has {existing} partitions, which is higher than the requested {count}.",
        )
    if count == existing:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {existing} partitions.")


def _check_placed(placed: Sequence[Sequence[NodeId]], more: int, factor: int, live: Collection[NodeId]) -> None:
    unknown = sorted({node for replicas in placed for node in replicas} - set(live))
    if unknown:
        raise _bad(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(placed) != more:
        raise _bad(f"Increasing the number of partitions by {more} but {len(placed)} assignments provided.")
    for replicas in placed:
        if len(set(replicas)) != len(replicas):
            raise _bad(f"Duplicate brokers not allowed in replica assignment: {[*replicas]}.")
        if len(replicas) != factor:
            raise _bad(
                f"Inconsistent replication factor between partitions, partition 0 has {factor} "
                f"while one of the new partitions has {len(replicas)}."
            )


def _bad(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, problem)
