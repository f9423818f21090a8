"""The sticky assignor: which member should have which task.

Owns: `assign`, a pure function of the members, their target assignments before and the tasks. Nothing depends on the
order of a table: members and processes are taken in the order of their ids.

Active tasks, in turn:

1. a task stays at the member that had it, while that member has fewer than its share;
2. else it goes to a member that has its state, under the same condition: one that had it as standby, or that reported
   an offset of its changelog;
3. else to the process with the least load, and there to the member with the fewest tasks.

Then each task with state gets standbys: at the member that had it as active, at a member that has its state, else at
the process with the least load; never at a process that has the task already. Where there are too few processes it
gets fewer.

Of the members that have the state of a task, those that had it as standby come first, then those with the larger
offset; a later one is taken only where both its process and itself have less load. There are no warm-up tasks, as in
Kafka 4.4.

Source: KIP-1071; Kafka's StickyTaskAssignor, ProcessState.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .tasks import TaskId, TaskSets


class Assignee(NamedTuple):
    """One member for the assignor."""

    member_id: str
    process_id: str
    before: TaskSets
    """Its target assignment before."""
    offsets: tuple[tuple[str, int, int], ...] = ()
    """What it reported of changelogs: subtopology, partition, offset."""


class TaskGroup(NamedTuple):
    """The tasks of one subtopology."""

    subtopology: str
    tasks: int
    is_stateful: bool


class _Process:
    """One process: its members and what they have."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.counts: dict[str, int] = {}
        """Member -> number of its tasks."""
        self.tasks: set[TaskId] = set()
        self.total = 0

    @property
    def load(self) -> float:
        """Tasks for each member."""
        return self.total / len(self.counts)


class _Quota:
    """How many tasks each member should have at most: a member that has reached it leaves the rest to the others."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.most = 0
        self._compute()

    def _compute(self) -> None:
        self.most = -(-self._tasks // self._members) if self._members else 0

    def added(self, count: int) -> None:
        """A member has `count` tasks now."""
        if count == self.most:
            self._members -= 1
            self._tasks -= count
            self._compute()


def assign(members: Sequence[Assignee], groups: Sequence[TaskGroup], standbys: int) -> dict[str, TaskSets]:
    """Member -> its tasks; every task is active at one member if there is a member."""
    if not members:
        return {}
    run = _Run(sorted(members, key=lambda member: member.member_id), groups, standbys)
    run.assign_active([TaskId(row.subtopology, n) for row in groups for n in range(row.tasks)])
    if standbys:
        run.assign_standbys([TaskId(row.subtopology, n) for row in groups if row.is_stateful for n in range(row.tasks)])
    return {
        member.member_id: TaskSets(frozenset(run.active[member.member_id]), frozenset(run.standby[member.member_id]))
        for member in members
    }


class _Run:
    """One computation."""

    def __init__(self, members: Sequence[Assignee], groups: Sequence[TaskGroup], standbys: int) -> None:
        total_active = sum(row.tasks for row in groups)
        stateful = sum(row.tasks for row in groups if row.is_stateful)
        self._standbys = standbys
        self._active_quota = _Quota(total_active, len(members))
        self._quota = _Quota(total_active + stateful * standbys, len(members))
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self.active: dict[str, set[TaskId]] = {}
        self.standby: dict[str, set[TaskId]] = {}
        self._had_active: dict[TaskId, str] = {}
        self._with_state: dict[TaskId, list[tuple[bool, int, str]]] = {}
        """Task -> members that have its state: whether not as standby, offset below zero, member."""
        for member in members:
            self._add(member)
        for rows in self._with_state.values():
            rows.sort()

    def _add(self, member: Assignee) -> None:
        name = member.member_id
        process = self._processes.setdefault(member.process_id, _Process(member.process_id))
        process.counts[name] = 0
        self._process_of[name] = process
        self.active[name], self.standby[name] = set(), set()
        self._had_active.update(dict.fromkeys(sorted(member.before.active), name))
        offsets = {TaskId(subtopology, partition): offset for subtopology, partition, offset in member.offsets}
        for task in sorted(member.before.standby | offsets.keys()):
            row = (task not in member.before.standby, -offsets.get(task, 0), name)
            self._with_state.setdefault(task, []).append(row)

    # ---- active tasks ----------------------------------------------------------------------------

    def assign_active(self, tasks: Sequence[TaskId]) -> None:
        """Give each task to one member."""
        by_partition = sorted(tasks, key=lambda task: (task.partition, task.subtopology))
        left = [task for task in by_partition if not self._stays(task, self._had_active.get(task))]
        left = [task for task in left if not self._stays(task, self._least_loaded(task))]
        for task in sorted(left):
            self._put(self._member_of(self._by_load()[0]), task, active=True)

    def _stays(self, task: TaskId, name: str | None) -> bool:
        if name is None or self._process_of[name].counts[name] >= self._active_quota.most:
            return False
        self._put(name, task, active=True)
        return True

    # ---- standby tasks ---------------------------------------------------------------------------

    def assign_standbys(self, tasks: Sequence[TaskId]) -> None:
        """Give each task `standbys` members of other processes, as far as there are some."""
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology), reverse=True):
            given = 0
            while given < self._standbys and self._stands_by_again(task):
                given += 1
            if given < self._standbys:
                left.append((task, self._standbys - given))
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                free = [process for process in self._by_load() if task not in process.tasks]
                if not free:
                    break
                self._put(self._member_of(free[0]), task, active=False)

    def _stands_by_again(self, task: TaskId) -> bool:
        before = self._had_active.get(task)
        if before is not None and task not in self._process_of[before].tasks and self._has_room(before):
            self._put(before, task, active=False)
            return True
        name = self._least_loaded(task, again=True)
        if name is None or not self._has_room(name):
            return False
        self._put(name, task, active=False)
        return True

    # ---- members and processes -------------------------------------------------------------------

    def _has_room(self, name: str) -> bool:
        return self._process_of[name].counts[name] < self._quota.most

    def _put(self, name: str, task: TaskId, *, active: bool) -> None:
        process = self._process_of[name]
        (self.active if active else self.standby)[name].add(task)
        process.tasks.add(task)
        process.total += 1
        process.counts[name] += 1
        if active:
            self._active_quota.added(process.counts[name])
        self._quota.added(process.counts[name])

    def _by_load(self) -> list[_Process]:
        return sorted(self._processes.values(), key=lambda process: (process.load, process.process_id))

    @staticmethod
    def _member_of(process: _Process) -> str:
        return min(process.counts, key=lambda name: (process.counts[name], name))

    def _least_loaded(self, task: TaskId, *, again: bool = False) -> str | None:
        """The member that has the state of a task; `again`: of those whose process does not have the task now."""
        found: str | None = None
        for _, _, name in self._with_state.get(task, ()):
            if again and task in self._process_of[name].tasks:
                continue
            if found is None or self._is_less_loaded(name, found):
                found = name
        return found

    def _is_less_loaded(self, name: str, other: str) -> bool:
        own, others = self._process_of[name], self._process_of[other]
        return own.load < others.load and own.counts[name] < others.counts[other]
