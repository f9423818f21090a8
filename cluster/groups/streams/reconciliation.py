"""The next step of one member towards its target assignment.

Owns: the rule that gives no active task to two members, and no task twice to one process. A member gives up tasks
first, at its old epoch; when it no longer reports them as owned, its epoch rises to the assignment epoch, and it gets
those tasks of its target that are free. The rest follows in later heartbeats.

| state             | moves on when                                                     |
| ----------------- | ----------------------------------------------------------------- |
| STABLE            | the assignment epoch is another than the member's                 |
| UNREVOKED_TASKS   | the member reports its tasks, and none of those to be revoked     |
| UNRELEASED_TASKS  | at each heartbeat                                                 |

An active task is free when no member has it as active, and the member's process has it in no kind. A standby or warm-up
task is free when the member's process has it in no kind.

Source: Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import ErrorCode, KafkaError
from .members import CurrentAssignment, MemberState, StreamsMember
from .tasks import NOTHING_HELD, HeldTasks, TaskId, TaskSets


@dataclass(frozen=True, slots=True)
class Holders:
    """Who has which task now, assigned or to be revoked."""

    active: frozenset[TaskId] = frozenset()
    of_process: dict[str, set[TaskId]] = field(default_factory=dict[str, set[TaskId]])
    """Process -> its tasks in any kind."""


def holders(members: Iterable[StreamsMember]) -> Holders:
    """What all members have."""
    active: set[TaskId] = set()
    of_process: dict[str, set[TaskId]] = {}
    for member in members:
        mine = of_process.setdefault(member.process_id, set())
        for held in (member.current.assigned, member.current.revoking):
            active.update(held.active)
            mine.update(held.active, held.standby, held.warmup)
    return Holders(frozenset(active), of_process)


def reconcile(
    member: StreamsMember,
    target: TaskSets,
    assignment_epoch: int,
    owned: TaskSets | None,
    all_members: Iterable[StreamsMember],
) -> CurrentAssignment:
    """The member's next assignment, or its present one. `owned`: what the member reports; None: nothing reported.

    KafkaError(FENCED_MEMBER_EPOCH) for a member in a state that is not known.
    """
    current = member.current
    epoch = current.epoch
    if member.is_reconciled_to(assignment_epoch):
        return current
    if current.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        epoch = assignment_epoch
    if current.state is MemberState.UNREVOKED_TASKS:
        if owned is None or current.revoking.shares_any(owned):
            return current
        epoch += 1
    return _next(member, epoch, target, assignment_epoch, owned, holders(all_members))


def _next(
    member: StreamsMember,
    epoch: int,
    target: TaskSets,
    assignment_epoch: int,
    owned: TaskSets | None,
    held: Holders,
) -> CurrentAssignment:
    had = member.current.assigned
    kept = HeldTasks(
        {task: at for task, at in had.active.items() if task in target.active},
        had.standby & target.standby,
        had.warmup & target.warmup,
    )
    surplus = HeldTasks(
        {task: at for task, at in had.active.items() if task not in target.active},
        had.standby - target.standby,
        had.warmup - target.warmup,
    )
    if surplus and (owned is None or surplus.shares_any(owned)):
        return _step(member, epoch, MemberState.UNREVOKED_TASKS, kept, surplus)
    mine = held.of_process.get(member.process_id, set())
    gained = HeldTasks(
        dict.fromkeys(sorted(target.active - kept.active.keys() - held.active - mine), assignment_epoch),
        target.standby - kept.standby - mine,
        target.warmup - kept.warmup - mine,
    )
    assigned = HeldTasks({**kept.active, **gained.active}, kept.standby | gained.standby, kept.warmup | gained.warmup)
    complete = (frozenset(assigned.active), assigned.standby, assigned.warmup) == (
        target.active,
        target.standby,
        target.warmup,
    )
    state = MemberState.STABLE if complete else MemberState.UNRELEASED_TASKS
    return _step(member, assignment_epoch, state, assigned, NOTHING_HELD)


def _step(
    member: StreamsMember, epoch: int, state: MemberState, assigned: HeldTasks, revoking: HeldTasks
) -> CurrentAssignment:
    return CurrentAssignment(
        epoch=epoch, previous_epoch=member.current.epoch, state=state, assigned=assigned, revoking=revoking
    )
