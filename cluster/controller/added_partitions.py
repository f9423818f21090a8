"""More partitions for a topic that exists (CreatePartitions, C9).

Owns: `add_partitions`. The new partitions go on with the round robin of those there are: they begin where
partition 0's first replica lies and have as many replicas as partition 0. May fail: KafkaError as Kafka answers.

Source: Kafka's ZkAdminManager.createPartitions, AdminZkClient.createNewPartitionsAssignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError
from ..ids import NodeId, TopicPartition
from .assignment import assign_replicas, start_of_added
from .partition_writer import Assigned
from .state import Assignment

if TYPE_CHECKING:
    from .term import Term


async def add_partitions(
    term: Term,
    topic: str,
    count: int,
    placed: Sequence[Sequence[NodeId]] | None,
    *,
    dry: bool = False,
) -> None:
    """Bring `topic` to `count` partitions; `placed` are the replicas of the new ones, None: the round robin's."""

    def plan() -> dict[TopicPartition, Assigned]:
        new = _placed(term, topic, count, placed)
        return {
            TopicPartition(topic, number): (Assignment(replicas=tuple(replicas)), None)
            for number, replicas in new.items()
        }

    if topic not in term.state.topics:
        await term.topics_changed()  # one that was created a moment ago
    added = plan()
    if dry:
        return
    await term.writer.assign(topic, plan)
    await term.create_missing(topic)
    term.host.trace.log("info", f"controller: topic {topic} got partitions {sorted(added)}")


def _placed(
    term: Term, topic: str, count: int, placed: Sequence[Sequence[NodeId]] | None
) -> Mapping[int, Sequence[NodeId]]:
    state = term.state
    if topic in state.deleting:
        raise KafkaError(ErrorCode.invalid_topic_exception, "The topic is queued for deletion.")
    there = state.topic_assignment(topic)
    if not there:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"The topic '{topic}' does not exist."
        )
    if any(one.moving for one in there.values()):
        raise KafkaError(
            ErrorCode.reassignment_in_progress,
            f"A partition reassignment is in progress for the topic '{topic}'.",
        )
    _check_count(len(there), count)
    more = count - len(there)
    if placed is not None:
        _check_placed(placed, more, len(there[0].replicas), state.brokers.keys())
        return {len(there) + number: replicas for number, replicas in enumerate(placed)}
    racks = {node: broker.rack for node, broker in state.brokers.items()}
    start = start_of_added([*racks], there[0].replicas[0], racks)
    return assign_replicas(
        [*racks],
        more,
        len(there[0].replicas),
        start=start,
        shift=start,
        first_partition=len(there),
        racks=racks,
    )


def _check_count(there: int, count: int) -> None:
    if count < there:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"Topic currently has {there} partitions, which is higher than the requested {count}.",
        )
    if count == there:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {there} partitions.")


def _check_placed(
    placed: Sequence[Sequence[NodeId]], more: int, factor: int, live: Collection[NodeId]
) -> None:
    unknown = sorted({node for replicas in placed for node in replicas} - set(live))
    if unknown:
        raise _bad(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(placed) != more:
        raise _bad(
            f"Increasing the number of partitions by {more} but {len(placed)} assignments provided."
        )
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
