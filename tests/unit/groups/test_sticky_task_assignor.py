"""The sticky assignor of streams groups: every task once, balanced, where it was, standbys elsewhere (KIP-1071)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from harrow.cluster.groups.streams.sticky_assignor import Assignee, TaskGroup, assign
from harrow.cluster.groups.streams.tasks import NOTHING, TaskId, TaskSets
from hypothesis import given
from hypothesis import strategies as st

GROUPS = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=3).map(
    lambda rows: [TaskGroup(str(number), tasks, stateful) for number, (tasks, stateful) in enumerate(rows)]
)
MEMBERS = st.lists(st.sampled_from("pqr"), min_size=1, max_size=6).map(
    lambda processes: {f"m{number}": process for number, process in enumerate(processes)}
)


def assigned(
    processes: Mapping[str, str], groups: list[TaskGroup], standbys: int, before: Mapping[str, TaskSets] | None = None
) -> dict[str, TaskSets]:
    members = [Assignee(name, process, (before or {}).get(name, NOTHING)) for name, process in processes.items()]
    return assign(members, groups, standbys)


def check(found: Mapping[str, TaskSets], processes: Mapping[str, str], groups: list[TaskGroup], standbys: int) -> None:
    tasks = [TaskId(row.subtopology, number) for row in groups for number in range(row.tasks)]
    stateful = [TaskId(row.subtopology, number) for row in groups if row.is_stateful for number in range(row.tasks)]
    assert sorted(task for sets in found.values() for task in sets.active) == sorted(tasks)
    of_process = Counter(
        (processes[name], task) for name, sets in found.items() for task in (*sets.active, *sets.standby)
    )
    assert all(count == 1 for count in of_process.values()), "a process has a task twice"
    copies = Counter(task for sets in found.values() for task in sets.standby)
    expected = min(standbys, len(set(processes.values())) - 1)
    assert copies == Counter({task: expected for task in stateful if expected})
    assert not any(sets.warmup for sets in found.values())


@given(processes=MEMBERS, groups=GROUPS, standbys=st.integers(0, 2))
def test_every_task_is_active_once_with_its_standbys_in_other_processes(
    processes: dict[str, str], groups: list[TaskGroup], standbys: int
) -> None:
    found = assigned(processes, groups, standbys)
    check(found, processes, groups, standbys)
    assert found == assigned(dict(reversed(processes.items())), groups, standbys), "no order of a table counts"


@given(processes=MEMBERS, groups=GROUPS, standbys=st.integers(0, 2), change=st.integers(-2, 2))
def test_after_members_came_or_left_the_properties_hold_again(
    processes: dict[str, str], groups: list[TaskGroup], standbys: int, change: int
) -> None:
    before = assigned(processes, groups, standbys)
    after = {**processes, **{f"n{number}": "s" for number in range(change)}}
    for name in list(after)[: max(-change, 0)]:
        if len(after) > 1:
            del after[name]
    check(assigned(after, groups, standbys, before), after, groups, standbys)


def test_members_of_their_own_processes_have_equal_numbers_of_tasks_and_keep_them() -> None:
    groups = [TaskGroup("0", 6, False), TaskGroup("1", 6, True)]
    processes = {name: f"process {name}" for name in "abc"}
    first = assigned(processes, groups, 0)
    assert [len(sets.active) for sets in first.values()] == [4, 4, 4]
    assert assigned(processes, groups, 0, first) == first, "nothing moves without a reason"
    more = assigned({**processes, "d": "process d"}, groups, 0, first)
    assert [len(sets.active) for sets in more.values()] == [3, 3, 3, 3]
    assert all(more[name].active <= first[name].active for name in "abc"), "only the new member gets other tasks"


def test_a_task_goes_to_the_member_that_has_its_state_as_standby() -> None:
    groups = [TaskGroup("1", 4, True)]
    processes = {name: f"process {name}" for name in "abc"}
    first = assigned(processes, groups, 1)
    lost = first["a"].active
    left = {name: process for name, process in processes.items() if name != "a"}
    found = assigned(left, groups, 1, first)
    moved = [task for task in sorted(lost) for name in left if task in found[name].active & first[name].standby]
    assert moved, "a standby became active"


def test_a_task_goes_to_the_member_that_reported_the_largest_offset_of_its_changelog() -> None:
    """As in Kafka 4.4: members without standbys may have state on their disks."""
    task, other = TaskId("1", 0), TaskId("1", 1)
    groups = [TaskGroup("1", 2, True)]

    def found(standbys: int = 0, **members: Assignee) -> dict[str, TaskSets]:
        return assign(list(members.values()), groups, standbys)

    a = Assignee("a", "p", TaskSets(), (("1", 0, 5), ("1", 7, 99)))
    b = Assignee("b", "q", TaskSets(), (("1", 0, 9),))
    assert {name: sets.active for name, sets in found(a=a, b=b).items()} == {"a": {other}, "b": {task}}
    stood_by = a._replace(before=TaskSets(standby=frozenset({task})))
    assert found(a=stood_by, b=b)["a"].active == {task}, "a standby before any offset"
    single = [TaskGroup("1", 1, True)]
    held = a._replace(before=TaskSets(active=frozenset({task})))
    idle = Assignee("c", "r", TaskSets())
    assert assign([held, b, idle], single, 1)["b"].standby == {task}
    assert assign([held, idle, b._replace(offsets=())], single, 1)["b"].standby == {task}, "the first without load"
    assert assign([held, idle._replace(offsets=(("1", 0, 1),)), b._replace(offsets=())], single, 1)["c"].standby == {
        task
    }


def test_a_process_with_two_members_gets_two_thirds() -> None:
    found = assigned({"a": "p", "b": "p", "c": "q"}, [TaskGroup("0", 6, False)], 0)
    assert [len(found[name].active) for name in "abc"] == [2, 2, 2]
