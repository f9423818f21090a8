"""The next step of one member towards its target assignment.

Owns: the rule that gives no partition to two members. A member gives up partitions first, at its old epoch; when it no
longer reports them as owned, its epoch rises to the assignment epoch, and it gets those partitions of its target
that no other member holds. The rest follows in later heartbeats.

| state                | moves on when                                                         |
| -------------------- | --------------------------------------------------------------------- |
| STABLE               | the assignment epoch is another than the member's                     |
| STABLE, UNREVOKED_…  | the member's subscription changed: it gives up what it left           |
| UNREVOKED_PARTITIONS | the member reports its partitions, and none of those to be revoked    |
| UNRELEASED_PARTITIONS| at each heartbeat                                                     |

Source: Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...errors import ErrorCode, KafkaError
from ...wire.topic_ids import UUID
from .members import NO_PARTITIONS, ConsumerMember, CurrentAssignment, MemberState, Partitions, by_topic_id, each


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What a member subscribes to now. A target assignment may be older, and have what the member left (KIP-1263)."""

    topics: Collection[UUID]
    changed: bool
    """True when the operation changed it."""


def reconcile(
    member: ConsumerMember,
    target: Partitions,
    assignment_epoch: int,
    owned: Partitions | None,
    owners: Mapping[tuple[UUID, int], str],
    subscribed: Subscribed,
) -> CurrentAssignment:
    """The member's next assignment, or its present one. `owned`: what the member reports; None: nothing reported.

    KafkaError(FENCED_MEMBER_EPOCH) for a member in a state that is not known.
    """
    current = member.current
    epoch = current.epoch
    if current.state is MemberState.STABLE and epoch == assignment_epoch:
        return _without_left_topics(member, owned, subscribed)
    if current.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The consumer group member is in a unknown state. The member must abandon all its "
                "partitions and rejoin.",
            )
        epoch = assignment_epoch
    if current.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, set(each(current.revoking))):
        return _without_left_topics(member, owned, subscribed)
    wanted = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in subscribed.topics}
    return _next(member, epoch, wanted, assignment_epoch, owned, owners)


def _without_left_topics(member: ConsumerMember, owned: Partitions | None, subscribed: Subscribed) -> CurrentAssignment:
    """At its old epoch, a member that no longer subscribes to a topic gives up the partitions of that topic."""
    current = member.current
    left = {topic_id: rows for topic_id, rows in current.assigned.items() if topic_id not in subscribed.topics}
    if not subscribed.changed or not left:
        return current
    kept = {topic_id: rows for topic_id, rows in current.assigned.items() if topic_id not in left}
    revoking = by_topic_id((*each(current.revoking), *each(left)))
    stays = _owns_any(owned, set(each(revoking)))
    assert stays or not current.revoking, f"{member.member_id} revokes {current.revoking} and reports {owned}"
    held = sorted(each(kept)) + (sorted(each(revoking)) if stays else [])
    return CurrentAssignment(
        epoch=current.epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNREVOKED_PARTITIONS if stays else current.state,
        assigned=kept,
        revoking=revoking if stays else NO_PARTITIONS,
        epochs={partition: current.epochs[partition] for partition in sorted(held)},
    )


def _next(
    member: ConsumerMember,
    epoch: int,
    target: Partitions,
    assignment_epoch: int,
    owned: Partitions | None,
    owners: Mapping[tuple[UUID, int], str],
) -> CurrentAssignment:
    wanted, had = set(each(target)), set(each(member.current.assigned))
    kept, surplus = had & wanted, had - wanted
    if surplus and _owns_any(owned, surplus):
        return _step(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=surplus)
    missing = wanted - kept
    held = {p for p in missing if owners.get(p, member.member_id) != member.member_id}
    state = MemberState.UNRELEASED_PARTITIONS if held else MemberState.STABLE
    return _step(member, assignment_epoch, state, assigned=kept | (missing - held))


def _step(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    *,
    assigned: Collection[tuple[UUID, int]],
    revoking: Collection[tuple[UUID, int]] = (),
) -> CurrentAssignment:
    old = member.current
    # a partition that the member must revoke and then gets again is a new one
    kept = {partition: old.epochs[partition] for partition in each(old.assigned)}
    assert epoch >= old.epoch, f"{member.member_id}: epoch {epoch} after {old.epoch}"
    assert bool(revoking) == (state is MemberState.UNREVOKED_PARTITIONS), f"{member.member_id}: {state}, {revoking}"
    assert not set(assigned).intersection(revoking), f"{member.member_id} has and revokes {assigned} and {revoking}"
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=old.epoch,
        state=state,
        assigned=by_topic_id(assigned),
        revoking=by_topic_id(revoking),
        epochs={partition: kept.get(partition, epoch) for partition in sorted((*assigned, *revoking))},
    )


def _owns_any(owned: Partitions | None, partitions: Collection[tuple[UUID, int]]) -> bool:
    """True unless the member reported that it has none of them."""
    return owned is None or any(partition in partitions for partition in each(owned))
