"""Partitions that move to other brokers: add replicas, wait for the ISR, switch, remove (C9, KIP-455).

Owns: `Reassignments` of one term. The registry's topic node says what is under way (`adding_replicas`,
`removing_replicas`), so a new controller goes on where the old one stopped.

    begin     replicas := target, then the former ones; leader epoch + 1; the added ones begin to follow
    (wait)    until every replica of the target is in the ISR
    end       leader and ISR within the target; the others are told to stop and delete; replicas := target

Each step is one transaction: the topic node and the partition's state change together, so no crash leaves a
partition between two steps. `begin` on a partition that moves already turns it to the new target, or back (a
target of None cancels); replicas that were being added and are wanted no more are removed at once.

A removed replica whose broker is dead is told when it is back, within this term; its log is outside the cluster
already: nobody fetches from it, and it would be truncated by epochs were it ever added again.

What may fail: as `Term`. Source: Kafka's KafkaController.onPartitionReassignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, KafkaError
from ..ids import NodeId, TopicPartition
from . import partition_states as rules
from .partition_writer import Assigned
from .state import Assignment

if TYPE_CHECKING:
    from .term import Term

Wanted = Mapping[TopicPartition, Sequence[NodeId] | None]
"""The wanted replicas, preferred leader first; None: as before the reassignment that is under way."""
Results = dict[TopicPartition, KafkaError | None]


class Removals:
    """Replicas that must go and whose brokers have not confirmed it."""

    def __init__(self) -> None:
        self._left: dict[NodeId, dict[TopicPartition, None]] = {}

    def add(self, node_id: NodeId, tp: TopicPartition) -> None:
        """`node_id` is to delete its replica of `tp`."""
        self._left.setdefault(node_id, {})[tp] = None

    def keep(self, node_id: NodeId, tp: TopicPartition) -> None:
        """It is a replica again."""
        self._left.get(node_id, {}).pop(tp, None)

    def left_on(self, nodes: Iterable[NodeId]) -> dict[NodeId, list[TopicPartition]]:
        """What each of `nodes` has still to delete."""
        return {node: list(self._left[node]) for node in nodes if self._left.get(node)}

    def confirmed(self, node_id: NodeId, response: Any) -> None:
        """A broker answered StopReplica; a storage error leaves the replica to be deleted at its next start."""
        for row in response.partition_errors:
            if row.error_code is not ErrorCode.kafka_storage_error:
                self.keep(node_id, TopicPartition(row.topic_name, row.partition_index))


class Reassignments:
    """What moves, and how."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self.removals = Removals()

    # -------------------------------------------------------------- beginning

    async def alter(self, wanted: Wanted, *, any_factor: bool = True) -> Results:
        """Begin, turn or cancel reassignments; for each partition None, or why not.

        With `any_factor` False a target must have as many replicas as the partition has (KIP-860).
        """
        results: Results = {}
        topics: dict[str, dict[TopicPartition, Sequence[NodeId] | None]] = {}
        for tp, target in wanted.items():
            try:
                self._check(tp, target, any_factor=any_factor)
                topics.setdefault(tp.topic, {})[tp] = target
            except KafkaError as error:
                results[tp] = error
        for topic, targets in topics.items():
            results.update(await self._begin(topic, targets))
        return results

    def _check(
        self, tp: TopicPartition, target: Sequence[NodeId] | None, *, any_factor: bool
    ) -> None:
        state = self._term.state
        if tp.topic in state.deleting or tp not in state.assignments:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, "The partition does not exist.")
        if target is None:
            if tp not in state.moving:
                raise KafkaError(
                    ErrorCode.no_reassignment_in_progress,
                    ErrorCode.no_reassignment_in_progress.name,
                )
            return
        problem = _problem(target, state.brokers.keys())
        if problem:
            raise KafkaError(ErrorCode.invalid_replica_assignment, problem)
        factor = len(state.assignment(tp).target)
        if not any_factor and len(target) != factor:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"The replication factor is changed from {factor} to {len(target)}",
            )

    async def _begin(
        self, topic: str, targets: Mapping[TopicPartition, Sequence[NodeId] | None]
    ) -> Results:
        results: Results = {}
        before: dict[TopicPartition, Assignment] = {}

        def plan() -> dict[TopicPartition, Assigned]:
            state, planned = self._term.state, dict[TopicPartition, Assigned]()
            for tp, target in targets.items():
                if tp not in state.assignments:
                    results[tp] = KafkaError(ErrorCode.unknown_topic_or_partition)
                    continue
                before[tp] = old = state.assignment(tp)
                new = old.toward(old.origin if target is None else target)
                now = state.partitions.get(tp)
                dropped = set(old.replicas) - set(new.replicas)
                proposal = now and rules.moving(dropped, new, now, state.electable())
                results[tp] = None
                if now is not None and proposal is None:
                    results[tp] = _nobody_stays(sorted(dropped))
                else:
                    planned[tp] = (new, proposal)
            return planned

        changed = await self._term.writer.assign(topic, plan)
        self._tell_begun(changed, before)
        await self.complete(changed)
        return results

    def _tell_begun(
        self, changed: Sequence[TopicPartition], before: Mapping[TopicPartition, Assignment]
    ) -> None:
        batch, state = self._term.batch(), self._term.state
        for tp in changed:
            old, new = before[tp], state.assignment(tp)
            for node in new.replicas:
                self.removals.keep(node, tp)
            batch.leader_and_isr([tp], only=set(new.adding) - set(old.adding), new=True)
            batch.leader_and_isr([tp])
            for node in old.replicas:
                if node not in new.replicas:
                    self.removals.add(node, tp)
                    batch.stop([tp], only=(node,), delete=True)
            self._trace(tp, new, "begun" if new.moving else "set")
        batch.metadata(changed)
        batch.flush()

    # ----------------------------------------------------------------- ending

    async def complete(self, partitions: Iterable[TopicPartition]) -> None:
        """End those whose target is in sync."""
        topics: dict[str, list[TopicPartition]] = {}
        for tp in partitions:
            if tp in self._term.state.moving and tp.topic not in self._term.state.deleting:
                topics.setdefault(tp.topic, []).append(tp)
        for topic, moving in topics.items():
            await self._end(topic, moving)

    async def _end(self, topic: str, partitions: Sequence[TopicPartition]) -> None:
        before: dict[TopicPartition, Assignment] = {}

        def plan() -> dict[TopicPartition, Assigned]:
            state, planned = self._term.state, dict[TopicPartition, Assigned]()
            for tp in partitions:
                old, now = state.moving.get(tp), state.partitions.get(tp)
                if old is None:
                    continue
                proposal = now and rules.moved(old, now, state.electable())
                if now is None or proposal is not None:
                    before[tp] = old
                    planned[tp] = (Assignment(replicas=old.target), proposal)
            return planned

        changed = await self._term.writer.assign(topic, plan)
        batch = self._term.batch()
        batch.leader_and_isr(changed)
        batch.metadata(changed)
        for tp in changed:
            for node in before[tp].removing:
                self.removals.add(node, tp)
                batch.stop([tp], only=(node,), delete=True)
            self._trace(tp, self._term.state.assignment(tp), "ended")
        batch.flush()

    # ---------------------------------------------------------------- reports

    def under_way(
        self, wanted: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Assignment]:
        """What moves, of `wanted` or of all."""
        moving = self._term.state.moving
        asked = sorted(moving) if wanted is None else wanted
        return {tp: moving[tp] for tp in asked if tp in moving}

    def _trace(self, tp: TopicPartition, assignment: Assignment, step: str) -> None:
        self._term.host.trace.emit(
            "partition.reassignment",
            topic=tp.topic,
            partition=tp.partition,
            step=step,
            replicas=list(assignment.replicas),
            adding=list(assignment.adding),
            removing=list(assignment.removing),
        )


def _problem(target: Sequence[NodeId], live: Iterable[NodeId]) -> str:
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) < len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {[*target]}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {[*target]}"
    dead = sorted(set(target) - set(live))
    if dead:
        return f"Replica assignment has brokers that are not alive. Replica list: {[*target]}, not alive: {dead}"
    return ""


def _nobody_stays(dropped: Sequence[NodeId]) -> KafkaError:
    return KafkaError(
        ErrorCode.eligible_leaders_not_available,
        f"Only replicas that would be removed ({[*dropped]}) are in sync and alive.",
    )
