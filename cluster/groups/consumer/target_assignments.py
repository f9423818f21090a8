"""The group epoch and the target assignment: when they change, and to what.

Owns: `ConsumerRules`, what the rules of a group need of its broker, and the two steps that joins, leaves and changed
topics have in common.

Source: Kafka's GroupMetadataManager (updateTargetAssignment), TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ...config.group_table import HEARTBEAT, SESSION
from ...wire.topic_ids import UUID
from .assignors import ASSIGNORS, Subscriber
from .group_records import GroupEpoch, GroupEpochRecord, TargetEpochRecord, TargetRecord
from .group_state import Draft, GroupData
from .members import Partitions, each
from .subscriptions import TopicView, metadata_hash, partition_counts, subscribed_topics, topics_of, update_regexes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """The broker's settings of consumer groups."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    """At least so long after one target assignment the next one is computed (KIP-1263)."""
    max_size: int
    assignors: tuple[str, ...]
    """Allowed assignors; the first is the default."""
    upgrades: bool
    downgrades: bool
    """`group.consumer.migration.policy`."""
    classic_max_size: int


NEW_EPOCH, FIRST_EPOCH = 1, 2
"""A group begins with epoch 1, and its first subscription is a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRules:
    """What the rules of a group need: topics, settings, the wall clock."""

    view: TopicView
    limits: ConsumerLimits
    wall_ms: Callable[[], int]
    group_number: Callable[[str, str], int]
    """The value of a setting for one group: its own, else the broker's."""
    group_interval_ms: Callable[[str], int]
    """The assignment interval of one group."""

    def of_group(self, group_id: str) -> ConsumerRules:
        """The rules with the settings of one group, as they are now."""
        limits = self.limits
        session_ms = self.group_number(group_id, SESSION)
        heartbeat_ms = self.group_number(group_id, HEARTBEAT)
        interval_ms = self.group_interval_ms(group_id)
        known = (limits.session_timeout_ms, limits.heartbeat_interval_ms, limits.assignment_interval_ms)
        if (session_ms, heartbeat_ms, interval_ms) == known:
            return self
        changed = replace(
            limits,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            assignment_interval_ms=interval_ms,
        )
        return replace(self, limits=changed)


def update_group_epoch(draft: Draft, rules: ConsumerRules, *, bump: bool, first: int = FIRST_EPOCH) -> None:
    """Resolve regular expressions, and raise the group epoch if `bump` or if a subscribed topic changed.

    `first`: the epoch of a group that had none.
    """
    update_regexes(draft, rules.view, rules.wall_ms())
    state = draft.state
    found = metadata_hash(partition_counts(subscribed_topics(state), rules.view))
    if bump or found != state.metadata_hash:
        draft.add(GroupEpochRecord(GroupEpoch(state.epoch + 1 if state.epoch else first, found)))


def update_target(draft: Draft, rules: ConsumerRules) -> None:
    """Compute the target assignment of the group epoch, unless there is one or the last one is too young."""
    state = draft.state
    if state.epoch <= state.target_epoch:
        return
    computed_ms = assignment_time(state.computed_ms, rules.limits.assignment_interval_ms, rules.wall_ms)
    if computed_ms is None:
        return
    counts = partition_counts(subscribed_topics(state), rules.view)
    members = [
        Subscriber(
            member.member_id,
            member.instance_id,
            frozenset(partition_counts(topics_of(member, state), rules.view)),
            state.target(member.member_id),
        )
        for member in state.members.values()
    ]
    targets = ASSIGNORS[assignor_name(state, rules.limits)](members, counts)
    _check(targets, members, counts)
    for member_id, target in targets.items():
        if member_id not in state.targets or target != state.target(member_id):
            draft.add(TargetRecord(member_id, target))
    draft.add(TargetEpochRecord(state.epoch, computed_ms))


def assignment_time(computed_ms: int, interval_ms: int, wall_ms: Callable[[], int]) -> int | None:
    """The time of a target assignment that is computed now; None where the last one is too young (KIP-1263).

    `computed_ms`: the time of the last one. Until the interval is over, members go on towards the last one, and the
    group epoch may rise again: the next heartbeat after the interval computes one assignment for all that changed. As
    in Kafka, the wall clock counts, and a group that was empty does not wait. A group without interval needs no time;
    Kafka writes it there, too.
    """
    if not interval_ms:
        return 0
    now_ms = wall_ms()
    return None if computed_ms and now_ms < computed_ms + interval_ms else now_ms


def _check(targets: Mapping[str, Partitions], members: Iterable[Subscriber], counts: Mapping[UUID, int]) -> None:
    """What the head of `assignors.py` promises: each partition of a subscribed topic has one of its subscribers."""
    given = Counter(partition for target in targets.values() for partition in each(target))
    wanted = {(topic, n) for member in members for topic in member.topics for n in range(counts.get(topic, 0))}
    assert given.keys() == wanted, f"assigned and not subscribed, or not assigned: {sorted(given.keys() ^ wanted)}"
    assert all(count == 1 for count in given.values()), f"assigned to several members: {given}"
    for member in members:
        target = targets[member.member_id]
        assert target.keys() <= member.topics, f"{member.member_id} is assigned topics that it does not subscribe to"


def assignor_name(state: GroupData, limits: ConsumerLimits) -> str:
    """The assignor that most members name; the default where none does."""
    named = Counter(m.metadata.assignor for m in state.members.values() if m.metadata.assignor in limits.assignors)
    best = sorted(named.items(), key=lambda row: (-row[1], row[0] or ""))
    return (best[0][0] if best else None) or limits.assignors[0]
