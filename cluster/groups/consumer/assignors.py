"""Server-side assignors: which member should have which partition.

Owns: `uniform` and `range`, pure functions of the members' subscriptions, the topics and the target assignment before.
Both give every partition of a subscribed topic to one of its subscribers, and depend on no order of a table.

uniform: numbers of partitions as equal as the subscriptions allow; a member keeps what it had unless balance needs it.
range:   for each topic, subscribers in the order of their instance or member id get consecutive partitions, the first
         ones get one more; topics with equal numbers of partitions and subscribers are divided in the same way.

Source: Kafka's UniformAssignor and RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...wire.topic_ids import UUID
from .members import Partitions, by_topic_id, each

TopicPartitionId = tuple[UUID, int]


class Subscriber(NamedTuple):
    """One member for an assignor."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    before: Partitions
    """Its target assignment before."""


Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], dict[str, Partitions]]
"""(members, topic id -> number of partitions) -> member id -> partitions."""


def assign_uniform(members: Sequence[Subscriber], topics: Mapping[UUID, int]) -> dict[str, Partitions]:
    """Balanced and sticky."""
    ordered = sorted(members, key=lambda member: member.member_id)
    held = _kept(ordered, topics)
    taken = {partition for partitions in held.values() for partition in partitions}
    subscribers = _subscribers(ordered)
    free = [p for p in _all_partitions(topics, subscribers) if p not in taken]
    for partition in free:
        least = min(subscribers[partition[0]], key=lambda name: (len(held[name]), name))
        held[least].append(partition)
    _balance(held, subscribers)
    return {member_id: by_topic_id(partitions) for member_id, partitions in held.items()}


def assign_range(members: Sequence[Subscriber], topics: Mapping[UUID, int]) -> dict[str, Partitions]:
    """Consecutive partitions of each topic."""
    ordered = sorted(members, key=lambda member: member.instance_id or member.member_id)
    held: dict[str, list[TopicPartitionId]] = {member.member_id: [] for member in ordered}
    for topic_id, names in _subscribers(ordered).items():
        count = topics.get(topic_id, 0)
        quota, extra = divmod(count, len(names))
        start = 0
        for place, name in enumerate(names):
            end = start + quota + (place < extra)
            held[name].extend((topic_id, number) for number in range(start, end))
            start = end
    return {member_id: by_topic_id(partitions) for member_id, partitions in held.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""Name -> assignor, as `group.consumer.assignors` and clients name them."""


def _kept(members: Sequence[Subscriber], topics: Mapping[UUID, int]) -> dict[str, list[TopicPartitionId]]:
    """What each member keeps: partitions that exist, of topics that it still subscribes to, each for one member."""
    taken: set[TopicPartitionId] = set()
    held: dict[str, list[TopicPartitionId]] = {}
    for member in members:
        mine = [
            (topic_id, number)
            for topic_id, number in sorted(each(member.before))
            if topic_id in member.topics and number < topics.get(topic_id, 0) and (topic_id, number) not in taken
        ]
        taken.update(mine)
        held[member.member_id] = mine
    return held


def _subscribers(members: Sequence[Subscriber]) -> dict[UUID, list[str]]:
    """Topic id -> members that subscribe to it, in the order of `members`."""
    found: dict[UUID, list[str]] = {}
    for member in members:
        for topic_id in sorted(member.topics):
            found.setdefault(topic_id, []).append(member.member_id)
    return found


def _all_partitions(topics: Mapping[UUID, int], subscribers: Mapping[UUID, list[str]]) -> Iterable[TopicPartitionId]:
    for topic_id in sorted(subscribers):
        yield from ((topic_id, number) for number in range(topics.get(topic_id, 0)))


def _balance(held: dict[str, list[TopicPartitionId]], subscribers: Mapping[UUID, list[str]]) -> None:
    """Move one partition at a time from a member to another that has at least two fewer, until there is none.

    Each move lowers the sum of the squares of the numbers of partitions, so the loop ends. A member gives one
    partition in each round, so that none gives more than balance needs.
    """
    moved = True
    while moved:
        least = min(map(len, held.values()), default=0)
        givers = [name for name, partitions in held.items() if len(partitions) >= least + 2]
        givers.sort(key=lambda name: (-len(held[name]), name))
        moved = sum(_give_one(name, held, subscribers) for name in givers) > 0


def _give_one(name: str, held: dict[str, list[TopicPartitionId]], subscribers: Mapping[UUID, list[str]]) -> bool:
    takers: dict[UUID, str] = {}
    for partition in reversed(held[name]):
        topic_id = partition[0]
        if topic_id not in takers:
            takers[topic_id] = min(subscribers[topic_id], key=lambda other: (len(held[other]), other))
        taker = takers[topic_id]
        if len(held[taker]) + 2 <= len(held[name]):
            held[name].remove(partition)
            held[taker].append(partition)
            return True
    return False
