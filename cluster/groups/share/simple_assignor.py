"""Kafka's assignor `simple`: which member should read from which partitions; partitions are shared.

Owns: `assign_simple`, a pure function. With more partitions than members each partition has one member; with more
members than partitions each partition has so many that every member has one. Members keep what they have unless
balance needs it. Where members subscribe to different topics, each topic is balanced alone.

Kafka numbers members and partitions in the order of hash tables; here they are sorted, so that the result depends on
no order of a table. Kafka's loop over members that need partitions may end before the last partition (a member that
has the partition already ends it for all that follow, when it is the only one left); here it goes on, as the comment
of Kafka's method says, so that no partition is without a member.

Source: KIP-932; Kafka's SimpleAssignor, SimpleHomogeneousAssignmentBuilder, SimpleHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

from ...wire.topic_ids import UUID
from ..consumer.members import Partitions, by_topic_id, each

Share = tuple[UUID, int]


class ShareSubscriber(NamedTuple):
    """One member for the assignor."""

    member_id: str
    topics: frozenset[UUID]
    """Topics that exist."""
    before: Partitions
    """Its target assignment before."""


def assign_simple(
    members: Sequence[ShareSubscriber], assignable: Partitions, *, same_topics: bool
) -> dict[str, Partitions]:
    """Member id -> partitions, each of a topic that the member subscribes to.

    `assignable`: the partitions that may be assigned. `same_topics`: all members subscribe to the same names.
    """
    ordered = sorted(members, key=lambda member: member.member_id)
    subscribed = sorted({topic_id for member in ordered for topic_id in member.topics})
    pieces = [subscribed] if same_topics else [[topic_id] for topic_id in subscribed]
    found: dict[str, list[Share]] = {member.member_id: [] for member in ordered}
    for topics in pieces:
        names = [member.member_id for member in ordered if member.topics.issuperset(topics)]
        held = {member.member_id: _held(member, topics) for member in ordered if member.member_id in names}
        targets = [(topic_id, number) for topic_id in topics for number in sorted(assignable.get(topic_id, ()))]
        for name, partitions in _spread(names, targets, held).items():
            found[name].extend(partitions)
    return {name: by_topic_id(partitions) for name, partitions in found.items()}


def _held(member: ShareSubscriber, topics: Sequence[UUID]) -> list[Share]:
    return sorted(partition for partition in each(member.before) if partition[0] in topics)


def _spread(
    names: Sequence[str], targets: Sequence[Share], held: Mapping[str, Sequence[Share]]
) -> dict[str, list[Share]]:
    """Balance `targets` over the members `names`."""
    sharing = -(-len(names) // len(targets)) if targets else 0
    quotas = _quotas(names, sharing * len(targets))
    # the first partitions of a member that has too many go
    mine = {name: list(held[name])[max(len(held[name]) - quotas[name], 0) :] for name in names}
    owners: dict[Share, list[str]] = {partition: [] for partition in targets}
    for name in names:
        for partition in mine[name]:
            owners.setdefault(partition, []).append(name)
    for partition, sharers in owners.items():
        for name in sharers[: max(len(sharers) - sharing, 0)]:
            sharers.remove(name)
            mine[name].remove(partition)
    _fill(mine, owners, sharing, quotas)
    return mine


def _quotas(names: Sequence[str], assignments: int) -> dict[str, int]:
    each_has = assignments / len(names) if names else 0.0
    return {name: ceil(each_has * (place + 1)) - ceil(each_has * place) for place, name in enumerate(names)}


def _fill(
    mine: dict[str, list[Share]], owners: Mapping[Share, list[str]], sharing: int, quotas: Mapping[str, int]
) -> None:
    """Give partitions that have too few members to members that have too few partitions, in turn."""
    waiting = [name for name, partitions in mine.items() if len(partitions) < quotas[name]]
    place = refused = 0
    for partition, sharers in owners.items():
        refused = 0
        while waiting and refused < len(waiting) and len(sharers) < sharing:
            place %= len(waiting)
            name = waiting[place]
            if name in sharers:
                refused += 1
                place += 1
                continue
            refused = 0
            sharers.append(name)
            mine[name].append(partition)
            if len(mine[name]) < quotas[name]:
                place += 1
            else:
                del waiting[place]
