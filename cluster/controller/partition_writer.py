"""The active controller's conditional writes of partition states (D2): many partitions in one transaction.

Owns: `PartitionWriter`. Every multi begins with the check of the `/controller_epoch` version that this controller
won, and each partition is written only at the version on which the decision was made. When a partition has another
version (its leader changed the ISR), the writer reads its chunk again, decides again and writes again; other chunks
do not wait.

What may fail: `ControllerMovedError` when another controller was elected; RegistryError when the registry is out of
reach: the caller then loads the context again, and with it whatever was applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..events.partitions import UncleanElection
from ..host.seam.failpoints import AFTER_STATE_WRITE, BEFORE_STATE_WRITE, passes
from ..ids import NO_NODE, TopicPartition
from ..registry import Create, Created, Delete, DeleteTree, NodeError, NodeExistsError, RegistryClient, Set, Stat
from ..registry.client import results_or_errors, value_of
from ..registry.paths import state_path, topic_path
from .controller_context import ControllerContext
from .controller_election import ControllerMovedError, WonElection
from .state_node import LeaderAndIsr, parse_state
from .topic_node import ReplicaAssignment, topic_json

CHUNK = 500
"""Partitions in one transaction: a few milliseconds of the registry's time."""

Decide = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None]
"""`decide(partition, current state)`: the next state, or None when the current one stays."""
PlannedAssignment = tuple[ReplicaAssignment, LeaderAndIsr | None]
"""A partition's new replicas, and its new state if it has a state."""


class PartitionWriter:
    """Writes under one controller epoch, and keeps `context` equal to what was written."""

    def __init__(self, registry: RegistryClient, won: WonElection, context: ControllerContext) -> None:
        self._registry = registry
        self._won = won
        self._context = context

    async def change(self, partitions: Iterable[TopicPartition], decide: Decide) -> list[TopicPartition]:
        """Bring each partition to the state that `decide` returns for it; returns the changed partitions."""
        changed: list[TopicPartition] = []
        pending = list(partitions)
        while pending:
            wanted = self._decided(pending, decide)
            chunks = [wanted[at : at + CHUNK] for at in range(0, len(wanted), CHUNK)]
            if chunks:
                self._passes(BEFORE_STATE_WRITE)
            results = await results_or_errors(*[self._submit_set(chunk) for chunk in chunks])
            pending = list[TopicPartition]()
            for chunk, result in zip(chunks, results, strict=True):
                if isinstance(result, NodeError):
                    self._raise_if_moved(result)
                    await self.refresh([tp for tp, _ in chunk])
                    pending += [tp for tp, _ in chunk]
                else:
                    changed += self._store(chunk, value_of(result)[1:])
        if changed:
            self._passes(AFTER_STATE_WRITE)
        return changed

    def _passes(self, name: str) -> None:
        host = self._registry.host
        passes(host.failpoints, host.trace, name, f"controller of epoch {self._won.epoch}")

    def _decided(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> list[tuple[TopicPartition, LeaderAndIsr]]:
        decided: list[tuple[TopicPartition, LeaderAndIsr]] = []
        for tp in partitions:
            state = self._context.partitions.get(tp)
            proposal = None if state is None else decide(tp, state)
            if state is None or proposal is None:
                continue
            assert proposal.version == state.version, f"{tp}: not decided on {state}: {proposal}"
            same = proposal.leader == state.leader and proposal.leader_epoch == state.leader_epoch
            assert same or proposal.leader_epoch > state.leader_epoch, f"{tp}: {state} became {proposal} in its epoch"
            if proposal.leader not in (NO_NODE, *state.isr):
                self._trace_unclean(tp, state, proposal)
            decided.append((tp, replace(proposal, controller_epoch=self._won.epoch)))
        return decided

    def _trace_unclean(self, tp: TopicPartition, state: LeaderAndIsr, next_: LeaderAndIsr) -> None:
        """Say that committed records may be lost from this leader epoch on; a verdict reads it."""
        self._registry.host.trace.emit(
            UncleanElection(
                topic=tp.topic,
                partition=tp.partition,
                leader=next_.leader,
                leader_epoch=next_.leader_epoch,
                isr=tuple(state.isr),
            )
        )

    def _submit_set(self, chunk: Sequence[tuple[TopicPartition, LeaderAndIsr]]) -> Any:
        return self._registry.submit(self._won.multi([_set(tp, state) for tp, state in chunk]))

    async def create(self, wanted: Mapping[TopicPartition, LeaderAndIsr]) -> list[TopicPartition]:
        """Write the first state of new partitions; a partition that has a state already keeps that one."""
        created: list[TopicPartition] = []
        pending = list(wanted.items())
        while pending:
            chunk = pending[:CHUNK]
            writes = [Create(state_path(tp), state.to_json(), make_parents=True) for tp, state in chunk]
            try:
                results = await self._registry.submit(self._won.multi(writes))
            except NodeExistsError as error:
                existing, _ = chunk[error.index - 1]
                await self.refresh([existing])
                pending = [item for item in pending if item[0] != existing]
                continue
            except NodeError as error:
                self._raise_if_moved(error)
                raise
            created += self._store(chunk, [result.stat for result in _created(results[1:])])
            pending = pending[CHUNK:]
        return created

    def _store(
        self, chunk: Sequence[tuple[TopicPartition, LeaderAndIsr]], stats: Sequence[Stat]
    ) -> list[TopicPartition]:
        for (tp, state), stat in zip(chunk, stats, strict=True):
            before = self._context.partitions.get(tp)
            assert before is None or stat.version > before.version, f"{tp}: {before} became {stat}"
            assert before is None or state.leader_epoch >= before.leader_epoch, f"{tp}: {before} became {state}"
            self._context.partitions[tp] = replace(state, version=stat.version, written=stat.mzxid)
        return [tp for tp, _ in chunk]

    async def refresh(self, partitions: Sequence[TopicPartition]) -> None:
        """Read states again; a partition whose node was deleted is removed from the context."""
        found = await self._registry.get_many([state_path(tp) for tp in partitions])
        for tp, node in zip(partitions, found, strict=True):
            if node is None:
                self._context.partitions.pop(tp, None)
            else:
                self._context.partitions[tp] = parse_state(*node)

    async def assign(
        self, topic: str, plan: Callable[[], Mapping[TopicPartition, PlannedAssignment]]
    ) -> list[TopicPartition]:
        """Change a topic's assignment and its partitions' states in one transaction; returns the changed partitions.

        When one of the nodes has another version, the writer reads it and calls `plan` again. An empty plan writes
        nothing.
        """
        while planned := plan():
            chunk = [
                (tp, replace(state, controller_epoch=self._won.epoch))
                for tp, (_, state) in planned.items()
                if state is not None
            ]
            try:
                results = await self._registry.submit(
                    self._won.multi([self._set_topic(topic, planned), *(_set(tp, state) for tp, state in chunk)])
                )
            except NodeError as error:
                self._raise_if_moved(error)
                if error.index == 1:
                    if not await self._refresh_topic(topic):
                        return []
                else:
                    await self.refresh([chunk[error.index - 2][0]])
                continue
            self._context.topic_versions[topic] = results[1].version
            for tp, (assignment, _) in planned.items():
                self._context.assign(tp, assignment)
            self._store(chunk, results[2:])
            return list(planned)
        return []

    def _set_topic(self, topic: str, planned: Mapping[TopicPartition, PlannedAssignment]) -> Set:
        assert all(tp.topic == topic for tp in planned), (
            f"the node of {topic} would get partitions of others: {[*planned]}"
        )
        rows = self._context.topic_assignment(topic)
        rows |= {tp.partition: assignment for tp, (assignment, _) in planned.items()}
        data = topic_json(self._context.topics.get(topic), rows)
        return Set(topic_path(topic), data, self._context.topic_versions[topic])

    async def _refresh_topic(self, topic: str) -> bool:
        """Read a topic's assignment again; False when it was deleted (the watch on topics handles that)."""
        path = topic_path(topic)
        found = (await self._registry.get_many([path]))[0]
        if found is not None:
            self._context.read_topics({path: found})
        return found is not None

    async def remove(self, operations: Sequence[Delete | DeleteTree]) -> None:
        """Deletions under this controller epoch, all or nothing; NodeError when a node is not as expected."""
        try:
            await self._registry.submit(self._won.multi(operations))
        except NodeError as error:
            self._raise_if_moved(error)
            raise

    @staticmethod
    def _raise_if_moved(error: NodeError) -> None:
        if error.index == 0:
            raise ControllerMovedError(f"another controller was elected: {error}") from None


def _set(tp: TopicPartition, state: LeaderAndIsr) -> Set:
    assert state.version >= 0, f"{tp}: a state is written at the version that was read"
    return Set(state_path(tp), state.to_json(), state.version)


def _created(results: Sequence[Any]) -> list[Created]:
    return list(results)
