"""Reassignments: partitions that move to other brokers (C9, KIP-455).

Owns: `Reassignments` of one active controller. The registry's topic node stores what is in progress (`adding_replicas`,
`removing_replicas`), so a new controller continues where its predecessor stopped.

    set       the same replicas in another order: replicas := target; the leader epoch stays, so no client is fenced
    begin     replicas := target, then the former ones; leader epoch + 1; the added replicas begin to follow
    (wait)    until every replica of the target is in the ISR
    end       leader and ISR within the target; the others are asked to stop and delete; replicas := target

Each step is one transaction: the topic node and the partition's state change together, so no crash leaves a
partition between two steps. `begin` on a partition that is reassigned already changes its target (a target of None
cancels); replicas that were being added and are not wanted any more are removed at once.

A removed replica whose broker is down receives StopReplica when the broker is back, from this active controller. Its
log is outside the cluster already: no replica fetches from it, and if the broker is ever assigned again, leader epochs
truncate it.

What may fail: as `ActiveController`. Source: Kafka's KafkaController.onPartitionReassignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import ErrorCode, KafkaError
from ..events.partitions import ReassignmentStep
from ..host.seam.failpoints import AFTER_ASSIGNMENT, AFTER_ASSIGNMENT_END, BEFORE_ASSIGNMENT_END, passes
from ..ids import NodeId, TopicPartition, by_topic
from . import partition_states as rules
from .controller_core import ControllerCore
from .partition_writer import PlannedAssignment
from .requests import RequestBatch
from .topic_node import ReplicaAssignment

Targets = Mapping[TopicPartition, Sequence[NodeId] | None]
"""The wanted replicas, preferred leader first; None cancels the reassignment in progress."""
ReassignmentResults = dict[TopicPartition, KafkaError | None]


class ReplicaRemovals:
    """Replicas that must be deleted and whose brokers have not confirmed it."""

    def __init__(self) -> None:
        self._left: dict[NodeId, dict[TopicPartition, None]] = {}

    def add(self, node_id: NodeId, tp: TopicPartition) -> None:
        """`node_id` must delete its replica of `tp`."""
        self._left.setdefault(node_id, {})[tp] = None

    def discard(self, node_id: NodeId, tp: TopicPartition) -> None:
        """The replica was deleted, or is assigned again."""
        self._left.get(node_id, {}).pop(tp, None)

    def left_on(self, nodes: Iterable[NodeId]) -> dict[NodeId, list[TopicPartition]]:
        """What each of `nodes` has still to delete."""
        return {node: list(self._left[node]) for node in nodes if self._left.get(node)}

    def confirmed(self, node_id: NodeId, response: Any) -> None:
        """A broker responded to StopReplica; after a storage error it deletes the replica at its next start."""
        for row in response.partition_errors:
            if row.error_code is not ErrorCode.kafka_storage_error:
                self.discard(node_id, TopicPartition(row.topic_name, row.partition_index))


class Reassignments:
    """Reassignments of one active controller."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self.removals = ReplicaRemovals()

    # -------------------------------------------------------------- beginning

    async def alter(self, wanted: Targets, *, any_factor: bool = True) -> ReassignmentResults:
        """Begin, change or cancel reassignments; for each partition None, or why it was refused.

        With `any_factor` False a target must have as many replicas as the partition has (KIP-860).
        """
        results: ReassignmentResults = {}
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

    def _check(self, tp: TopicPartition, target: Sequence[NodeId] | None, *, any_factor: bool) -> None:
        context = self._core.context
        if tp.topic in context.deleting or tp not in context.assignments:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, "The partition does not exist.")
        if target is None:
            if tp not in context.reassigned:
                raise KafkaError(ErrorCode.no_reassignment_in_progress, ErrorCode.no_reassignment_in_progress.name)
            return
        problem = _problem(target, context.brokers.keys())
        if problem:
            raise KafkaError(ErrorCode.invalid_replica_assignment, problem)
        factor = len(context.assignment(tp).target)
        if not any_factor and len(target) != factor:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"The replication factor is changed from {factor} to {len(target)}",
            )

    async def _begin(
        self, topic: str, targets: Mapping[TopicPartition, Sequence[NodeId] | None]
    ) -> ReassignmentResults:
        results: ReassignmentResults = {}
        before: dict[TopicPartition, ReplicaAssignment] = {}

        def plan() -> dict[TopicPartition, PlannedAssignment]:
            context, planned = self._core.context, dict[TopicPartition, PlannedAssignment]()
            for tp, target in targets.items():
                if tp not in context.assignments:
                    results[tp] = KafkaError(ErrorCode.unknown_topic_or_partition)
                    continue
                before[tp] = old = context.assignment(tp)
                new = old.toward(old.origin if target is None else target)
                if old.orders_the_same_as(new):
                    results[tp] = None
                    if new != old:
                        planned[tp] = (new, None)
                    continue
                now = context.partitions.get(tp)
                dropped = set(old.replicas) - set(new.replicas)
                proposal = now and rules.state_during_reassignment(dropped, new, now, context.electable())
                results[tp] = None
                if now is not None and proposal is None:
                    results[tp] = _no_remaining_leader(sorted(dropped))
                else:
                    planned[tp] = (new, proposal)
            return planned

        changed = await self._core.writer.assign(topic, plan)
        self._passes(AFTER_ASSIGNMENT, topic)
        self._send_begun(changed, before)
        await self.complete(changed)
        return results

    def _send_begun(
        self, changed: Sequence[TopicPartition], before: Mapping[TopicPartition, ReplicaAssignment]
    ) -> None:
        batch, context = self._core.new_batch(), self._core.context
        for tp in changed:
            old, new = before[tp], context.assignment(tp)
            for node in new.replicas:
                self.removals.discard(node, tp)
            if not old.orders_the_same_as(new):
                batch.leader_and_isr([tp], only=set(new.adding) - set(old.adding), new=True)
                batch.leader_and_isr([tp])
            for node in old.replicas:
                if node not in new.replicas:
                    self.removals.add(node, tp)
                    batch.stop([tp], only=(node,), delete=True)
            self._trace(tp, new, "begun" if new.is_reassigned else "set")
        batch.metadata(changed)
        batch.flush()

    # ----------------------------------------------------------------- ending

    async def complete(self, partitions: Iterable[TopicPartition]) -> None:
        """End the reassignments whose target is in sync."""
        context = self._core.context
        moving_now = [tp for tp in partitions if tp in context.reassigned and tp.topic not in context.deleting]
        for topic, moving in by_topic(moving_now).items():
            await self._end(topic, moving)

    async def _end(self, topic: str, partitions: Sequence[TopicPartition]) -> None:
        before: dict[TopicPartition, ReplicaAssignment] = {}

        def plan() -> dict[TopicPartition, PlannedAssignment]:
            context, planned = self._core.context, dict[TopicPartition, PlannedAssignment]()
            for tp in partitions:
                old, now = context.reassigned.get(tp), context.partitions.get(tp)
                if old is None:
                    continue
                proposal = now and rules.state_after_reassignment(old, now, context.electable())
                if now is None or proposal is not None:
                    before[tp] = old
                    planned[tp] = (ReplicaAssignment(replicas=old.target), proposal)
            return planned

        self._passes(BEFORE_ASSIGNMENT_END, topic)
        changed = await self._core.writer.assign(topic, plan)
        self._passes(AFTER_ASSIGNMENT_END, topic)
        batch = self._core.new_batch()
        batch.leader_and_isr(changed)
        batch.metadata(changed)
        for tp in changed:
            for node in before[tp].removing:
                self.removals.add(node, tp)
                batch.stop([tp], only=(node,), delete=True)
            self._trace(tp, self._core.context.assignment(tp), "ended")
        batch.flush()

    def _passes(self, name: str, topic: str) -> None:
        host = self._core.host
        passes(host.failpoints, host.trace, name, topic)

    def repeat_removals(self, batch: RequestBatch, nodes: Iterable[NodeId]) -> None:
        """Ask brokers that have started to delete the replicas that they have still to delete."""
        for node_id, left in self.removals.left_on(nodes).items():
            batch.stop(left, only=(node_id,), delete=True)

    # ---------------------------------------------------------------- reports

    def in_progress(self, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments in progress, of `wanted` (None: of all partitions)."""
        reassigned = self._core.context.reassigned
        asked = sorted(reassigned) if wanted is None else wanted
        return {tp: reassigned[tp] for tp in asked if tp in reassigned}

    def _trace(self, tp: TopicPartition, assignment: ReplicaAssignment, step: str) -> None:
        self._core.host.trace.emit(
            ReassignmentStep(
                topic=tp.topic,
                partition=tp.partition,
                step=step,
                replicas=tuple(assignment.replicas),
                adding=tuple(assignment.adding),
                removing=tuple(assignment.removing),
            )
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


def _no_remaining_leader(dropped: Sequence[NodeId]) -> KafkaError:
    return KafkaError(
        ErrorCode.eligible_leaders_not_available,
        f"Only replicas that would be removed ({[*dropped]}) are in sync and alive.",
    )
