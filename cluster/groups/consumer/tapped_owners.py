"""Reports to the tap which members of a consumer group own which partitions (J6).

Owns: no state; each change of the group is compared with the state before. A member owns what it has assigned,
and what it must revoke but has not acknowledged yet. A static member that left for a restart owns nothing.
"""

from __future__ import annotations

from functools import partial

from ...host.seam import Tap
from ...ids import TopicPartition
from ...wire.topic_ids import UUID
from .group_state import GroupData
from .members import LEAVE_STATIC_EPOCH, ConsumerMember
from .subscriptions import TopicView


def report_owners(
    tap: Tap, group_id: str, before: GroupData, after: GroupData, view: TopicView, leader_epoch: int
) -> None:
    """Report every member whose partitions changed; those that lost partitions first."""
    report = partial(_report, tap, group_id, view, leader_epoch)
    gained: list[ConsumerMember] = []
    for member_id in dict.fromkeys((*before.members, *after.members)):
        old, new = before.members.get(member_id), after.members.get(member_id)
        held, had = _owned(new), _owned(old)
        if new is not None and held - had:
            gained.append(new)
        elif held != had:
            report(new or old, held, after.epoch if new is None else None)
    for member in gained:
        report(member, _owned(member), None)


def _owned(member: ConsumerMember | None) -> set[tuple[UUID, int]]:
    if member is None or member.epoch == LEAVE_STATIC_EPOCH:
        return set()
    return set(member.held())


def _report(
    tap: Tap,
    group_id: str,
    view: TopicView,
    leader_epoch: int,
    member: ConsumerMember | None,
    held: set[tuple[UUID, int]],
    epoch: int | None,
) -> None:
    assert member is not None, "a member that changed"
    named = ((view.topic_name(topic_id), number) for topic_id, number in sorted(held))
    tap.member(
        group_id,
        member.member_id,
        member.metadata.client_id,
        generation=max(member.epoch, 0) if epoch is None else epoch,
        partitions=[TopicPartition(name, number) for name, number in named if name is not None],
        leader_epoch=leader_epoch,
        instance=member.instance_id,
    )
