"""Tasks of Kafka Streams: a task is one partition of a subtopology.

Owns: value types and look-ups. Source: Kafka's TasksTuple, TasksTupleWithEpochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class TaskId(NamedTuple):
    """One task."""

    subtopology: str
    partition: int


Tasks = frozenset[TaskId]
NO_TASKS: Tasks = frozenset()


@dataclass(frozen=True, slots=True)
class TaskSets:
    """Tasks by kind: a target assignment, or what a member reports."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


NOTHING = TaskSets()


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks of a member; an active task has the assignment epoch in which the member got it."""

    active: Mapping[TaskId, int] = field(default_factory=dict[TaskId, int])
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def shares_any(self, owned: TaskSets) -> bool:
        """True when `owned` has one of these tasks, in the same kind."""
        return (
            any(task in owned.active for task in self.active)
            or not self.standby.isdisjoint(owned.standby)
            or not self.warmup.isdisjoint(owned.warmup)
        )

    def contains(self, owned: TaskSets) -> bool:
        """True when every task of `owned` is here, in the same kind."""
        actives = all(task in self.active for task in owned.active)
        return actives and owned.standby <= self.standby and owned.warmup <= self.warmup


NOTHING_HELD = HeldTasks()


def by_subtopology(tasks: Iterable[TaskId]) -> list[tuple[str, list[int]]]:
    """Subtopology -> partitions, both in order."""
    found: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        found.setdefault(subtopology, []).append(partition)
    return list(found.items())
