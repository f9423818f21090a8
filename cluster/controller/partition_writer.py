"""The controller's conditional writes of partition states (D2): many partitions in one transaction.

Owns: `PartitionWriter`. Every multi begins with the check of this term's `/controller_epoch`; each partition's
write is conditional on the version that the decision was made on. When one partition has moved on (its leader
changed the ISR), its chunk is read again, decided again and written again; the rest is not held up.

What may fail: `ControllerMovedError` when the term is over, RegistryError when the registry is out of reach (what
was applied is then found by loading anew).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..ids import TopicPartition
from ..registry import (
    Create,
    Created,
    Delete,
    DeleteTree,
    NodeError,
    NodeExistsError,
    RegistryClient,
    Set,
    Stat,
)
from ..registry.client import settled, value_of
from ..registry.paths import state_path, topic_path
from .election import ControllerMovedError, Mandate
from .state import Assignment, ClusterState, PartitionState, partition_state, topic_json

CHUNK = 500
"""Partitions in one transaction: a few milliseconds of the registry's time."""

Decide = Callable[[TopicPartition, PartitionState], PartitionState | None]
Assigned = tuple[Assignment, PartitionState | None]
"""Where a partition's replicas shall lie, and its state with it where it has one."""


class PartitionWriter:
    """Writes of one term, kept in step with `state`."""

    def __init__(self, registry: RegistryClient, mandate: Mandate, state: ClusterState) -> None:
        self._registry = registry
        self._mandate = mandate
        self._state = state

    async def change(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> list[TopicPartition]:
        """Bring each partition to the state that `decide` wants for it; those that were changed."""
        changed: list[TopicPartition] = []
        pending = list(partitions)
        while pending:
            wanted = self._decided(pending, decide)
            chunks = [wanted[at : at + CHUNK] for at in range(0, len(wanted), CHUNK)]
            answers = await settled(*[self._submit_set(chunk) for chunk in chunks])
            pending = list[TopicPartition]()
            for chunk, answer in zip(chunks, answers, strict=True):
                if isinstance(answer, NodeError):
                    self._raise_if_moved(answer)
                    await self.refresh([tp for tp, _ in chunk])
                    pending += [tp for tp, _ in chunk]
                else:
                    changed += self._note(chunk, value_of(answer)[1:])
        return changed

    def _decided(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> list[tuple[TopicPartition, PartitionState]]:
        found: list[tuple[TopicPartition, PartitionState]] = []
        for tp in partitions:
            state = self._state.partitions.get(tp)
            proposal = None if state is None else decide(tp, state)
            if proposal is not None:
                epoch = self._mandate.epoch
                found.append((tp, replace(proposal, controller_epoch=epoch)))
        return found

    def _submit_set(self, chunk: Sequence[tuple[TopicPartition, PartitionState]]) -> Any:
        writes = [Set(state_path(tp), state.to_json(), state.version) for tp, state in chunk]
        return self._registry.submit(self._mandate.multi(writes))

    async def create(self, wanted: Mapping[TopicPartition, PartitionState]) -> list[TopicPartition]:
        """Write the first state of new partitions; one that has a state already keeps and shows it."""
        created: list[TopicPartition] = []
        pending = list(wanted.items())
        while pending:
            chunk = pending[:CHUNK]
            writes = [
                Create(state_path(tp), state.to_json(), make_parents=True) for tp, state in chunk
            ]
            try:
                answer = await self._registry.submit(self._mandate.multi(writes))
            except NodeExistsError as error:
                there, _ = chunk[error.index - 1]
                await self.refresh([there])
                pending = [item for item in pending if item[0] != there]
                continue
            except NodeError as error:
                self._raise_if_moved(error)
                raise
            created += self._note(chunk, [one.stat for one in _created(answer[1:])])
            pending = pending[CHUNK:]
        return created

    def _note(
        self, chunk: Sequence[tuple[TopicPartition, PartitionState]], stats: Sequence[Stat]
    ) -> list[TopicPartition]:
        for (tp, state), stat in zip(chunk, stats, strict=True):
            self._state.partitions[tp] = replace(state, version=stat.version, written=stat.mzxid)
        return [tp for tp, _ in chunk]

    async def refresh(self, partitions: Sequence[TopicPartition]) -> None:
        """Read states again; a partition whose state is gone is forgotten."""
        found = await self._registry.get_many([state_path(tp) for tp in partitions])
        for tp, answer in zip(partitions, found, strict=True):
            if answer is None:
                self._state.partitions.pop(tp, None)
            else:
                self._state.partitions[tp] = partition_state(*answer)

    async def assign(
        self, topic: str, plan: Callable[[], Mapping[TopicPartition, Assigned]]
    ) -> list[TopicPartition]:
        """Change a topic's assignment and its partitions' states in one transaction; those that were changed.

        `plan` is asked again, after a new look, when somebody else has written meanwhile. Nothing is written
        for an empty plan.
        """
        while planned := plan():
            chunk = [
                (tp, replace(state, controller_epoch=self._mandate.epoch))
                for tp, (_, state) in planned.items()
                if state is not None
            ]
            version = self._state.topic_versions[topic]
            rows = self._state.topic_assignment(topic)
            rows |= {tp.partition: assignment for tp, (assignment, _) in planned.items()}
            data = topic_json(self._state.topics.get(topic), rows)
            writes = [
                Set(topic_path(topic), data, version),
                *(Set(state_path(tp), state.to_json(), state.version) for tp, state in chunk),
            ]
            try:
                answer = await self._registry.submit(self._mandate.multi(writes))
            except NodeError as error:
                self._raise_if_moved(error)
                if error.index == 1:
                    if not await self._refresh_topic(topic):
                        return []
                else:
                    await self.refresh([chunk[error.index - 2][0]])
                continue
            self._state.topic_versions[topic] = answer[1].version
            for tp, (assignment, _) in planned.items():
                self._state.assign(tp, assignment)
            self._note(chunk, answer[2:])
            return list(planned)
        return []

    async def _refresh_topic(self, topic: str) -> bool:
        """Read a topic's assignment again; False when it is gone (the watch on topics tells the rest)."""
        path = topic_path(topic)
        found = (await self._registry.get_many([path]))[0]
        if found is not None:
            self._state.read_topics({path: found})
        return found is not None

    async def remove(self, operations: Sequence[Delete | DeleteTree]) -> None:
        """Deletions of this term, all or nothing; NodeError when one of the nodes is not as expected."""
        try:
            await self._registry.submit(self._mandate.multi(operations))
        except NodeError as error:
            self._raise_if_moved(error)
            raise

    @staticmethod
    def _raise_if_moved(error: NodeError) -> None:
        if error.index == 0:
            raise ControllerMovedError(f"another controller was elected: {error}") from None


def _created(answers: Sequence[Any]) -> list[Created]:
    return list(answers)
