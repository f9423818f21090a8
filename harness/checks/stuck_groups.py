"""`stuck-group`: a consumer group whose coordinator waits for longer than any of its members may take (L4).

A group leaves PreparingRebalance, CompletingRebalance, Assigning and Reconciling when its members have done their part,
or when their timeouts have passed: the coordinator then removes the members that have not. So a group with members
that has been in one of these states, in one generation, for longer than the longest rebalance or session timeout of its
members and `PATIENCE_NS` is stuck, whatever its members do. The time counts from the last fault on. A member that is
paused or slow within its timeouts is therefore no anomaly.

The rows of the taps say since when, and the brokers, asked when the run ended, that it is still so. Groups that have no
row, because the brokers are not Harrow's, leave a doubt where they are not at rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harrow.cluster.internal_topics import OFFSETS

from ..histories.group_states import AT_REST, GroupRow, GroupsAtTheEnd
from ..wording import counted
from .rows import AnomalyRow, OperationRow

STUCK_GROUP = "stuck-group"
PATIENCE_NS = 30_000_000_000
MS = 1_000_000
SHOWN_MOST = 5
"""Changes of a group that an anomaly shows."""


@dataclass(slots=True, kw_only=True)
class GroupFindings:
    """Anomalies and doubts."""

    anomalies: list[AnomalyRow] = field(default_factory=list[AnomalyRow])
    doubts: list[str] = field(default_factory=list[str])
    timeouts_ms: dict[str, int] = field(default_factory=dict[str, int])
    """The longest timeout of a member, by group."""


def stuck_groups(
    rows: Iterable[GroupRow], end: GroupsAtTheEnd | None, windows: Iterable[tuple[int, int]]
) -> GroupFindings:
    """Judge the groups of a run. `rows`: of `tap.groups`; `windows`: start and end of each fault."""
    found = GroupFindings()
    if end is None:
        return found
    healed_ns = max((last for _, last in windows if last <= end.asked_ns), default=0)
    changes: dict[str, list[GroupRow]] = {}
    for row in sorted(rows, key=_order):
        changes.setdefault(row.group, []).append(row)
    for group, own in sorted(changes.items()) if end.problems else ():
        if group not in end.states and own[-1].state not in AT_REST and own[-1].members:
            found.doubts.append(
                f"group {group} was in state {own[-1].state} last, and when the run ended not every broker said its "
                f"groups ({end.problems[0]}): whether it is stuck is not known"
            )
    for group, state in sorted(end.states.items()):
        own = [row for row in changes.get(group, ()) if row.time_ns <= end.asked_ns]
        if state in AT_REST:
            continue
        if not own:
            found.doubts.append(
                f"group {group} was in state {state} when the run ended, and no tap of a coordinator says since when: "
                "whether it is stuck is not known"
            )
        elif own[-1].state == state and own[-1].members:
            found.anomalies += _judge(own, end.asked_ns, healed_ns)
    return found


def _order(row: GroupRow) -> tuple[int, int]:
    """A later coordinator's rows are later, because one that was deposed may write its last rows late."""
    return row.leader_epoch, row.time_ns


def _judge(own: Sequence[GroupRow], end_ns: int, healed_ns: int) -> list[AnomalyRow]:
    """Return the anomaly of a group whose last row is no state of rest, if it is one."""
    last = own[-1]
    same = len(own) - 1
    while same and _is_same(own[same - 1], last):
        same -= 1
    since_ns = max(own[same].time_ns, healed_ns)
    timeout_ns = max(row.timeout_ms for row in own[same:]) * MS
    if end_ns - since_ns <= timeout_ns + PATIENCE_NS:
        return []
    text = (
        f"group {last.group} is in state {last.state} for {(end_ns - since_ns) / 1e9:.1f} s, in generation "
        f"{last.generation} with {counted(last.members, 'member')}, and the longest timeout of its members is "
        f"{timeout_ns / 1e9:.1f} s: its coordinator, broker {last.node}, waits for nothing that can still happen"
    )
    shown = list(own[max(0, same - 1) :])
    operations = [_operation(row) for row in shown[: SHOWN_MOST - 1] + shown[SHOWN_MOST - 1 :][-1:]]
    return [
        AnomalyRow(
            name=STUCK_GROUP,
            topic=OFFSETS.name,
            partition=last.partition,
            operations=operations,
            explanation=text,
        )
    ]


def _is_same(row: GroupRow, last: GroupRow) -> bool:
    return (row.state, row.generation, row.leader_epoch) == (last.state, last.generation, last.leader_epoch)


def _operation(row: GroupRow) -> OperationRow:
    return {
        "operation": f"group {row.group}",
        "completed_ns": row.time_ns,
        "broker": row.node,
        "group": row.group,
        "state": row.state,
        "generation": row.generation,
        "members": row.members,
        "timeout_ms": row.timeout_ms,
        "leader_epoch": row.leader_epoch,
    }
