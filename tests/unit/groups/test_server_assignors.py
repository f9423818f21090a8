"""The assignors of the coordinator: complete, disjoint, balanced, sticky (G2)."""

from __future__ import annotations

from uuid import UUID

import pytest
from harrow.cluster.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from harrow.cluster.groups.consumer.members import NO_PARTITIONS, Partitions, each
from hypothesis import given
from hypothesis import strategies as st

TOPICS = [UUID(int=number) for number in range(1, 5)]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), max_size=4)
subscriptions = st.dictionaries(
    st.sampled_from("abcdef"), st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=6
)


def members(topics: dict[str, frozenset[UUID]], before: dict[str, Partitions] | None = None) -> list[Subscriber]:
    return [Subscriber(name, None, wanted, (before or {}).get(name, NO_PARTITIONS)) for name, wanted in topics.items()]


def count(partitions: Partitions) -> int:
    return len(list(each(partitions)))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(topics=counts, first=subscriptions, then=subscriptions)
def test_each_partition_of_a_subscribed_topic_goes_to_one_subscriber(
    name: str, topics: dict[UUID, int], first: dict[str, frozenset[UUID]], then: dict[str, frozenset[UUID]]
) -> None:
    assign = ASSIGNORS[name]
    found = assign(members(then, assign(members(first), topics)), topics)
    assert found.keys() == then.keys()
    given_out = [partition for partitions in found.values() for partition in each(partitions)]
    subscribed = {topic for wanted in then.values() for topic in wanted}
    assert sorted(given_out) == sorted(
        (topic, number) for topic in subscribed for number in range(topics.get(topic, 0))
    )
    assert all(partitions.keys() <= then[member] for member, partitions in found.items())


@given(topics=counts, first=st.sets(st.sampled_from("abcdef")), then=st.sets(st.sampled_from("abcdef"), min_size=1))
def test_uniform_is_balanced_and_moves_no_more_than_balance_needs(
    topics: dict[UUID, int], first: set[str], then: set[str]
) -> None:
    """With equal subscriptions, numbers differ by one at most, and a member keeps what it may."""
    everything = frozenset(TOPICS)
    before = assign_uniform(members(dict.fromkeys(sorted(first), everything)), topics)
    after = assign_uniform(members(dict.fromkeys(sorted(then), everything), before), topics)
    sizes = [count(partitions) for partitions in after.values()]
    assert max(sizes) - min(sizes) <= 1
    quota = sum(topics.values()) // len(then)
    for name in first & then:
        kept = set(each(before[name])) & set(each(after[name]))
        assert len(kept) >= min(count(before[name]), quota)


@given(topics=counts, wanted=subscriptions)
def test_uniform_with_different_subscriptions_leaves_no_useful_move(
    topics: dict[UUID, int], wanted: dict[str, frozenset[UUID]]
) -> None:
    found = assign_uniform(members(wanted), topics)
    for giver, partitions in found.items():
        for topic, _ in each(partitions):
            for taker in found:
                if topic in wanted[taker]:
                    assert count(found[giver]) - count(found[taker]) <= 1


def test_range_gives_consecutive_partitions_and_the_same_ones_of_equal_topics() -> None:
    topics = {TOPICS[0]: 5, TOPICS[1]: 5}
    wanted = dict.fromkeys(["b", "a"], frozenset(topics))
    found = assign_range(members(wanted), topics)
    assert found["a"] == {topic: frozenset((0, 1, 2)) for topic in topics}
    assert found["b"] == {topic: frozenset((3, 4)) for topic in topics}


def test_range_orders_static_members_by_their_instance_id() -> None:
    topic = TOPICS[0]
    pair = [
        Subscriber("a", "z", frozenset((topic,)), NO_PARTITIONS),
        Subscriber("b", "y", frozenset((topic,)), NO_PARTITIONS),
    ]
    found = assign_range(pair, {topic: 2})
    assert found == {"b": {topic: frozenset((0,))}, "a": {topic: frozenset((1,))}}
