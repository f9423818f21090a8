"""The assignor of share groups: every partition has a member, every member has one where it can, sticky (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from harrow.cluster.groups.consumer.members import NO_PARTITIONS, Partitions, each
from harrow.cluster.groups.share.simple_assignor import ShareSubscriber, assign_simple
from hypothesis import given
from hypothesis import strategies as st

TOPICS = [UUID(int=number) for number in range(1, 4)]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1, max_size=3)
groups = st.dictionaries(st.sampled_from("abcdefghij"), st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=10)


def assigned(
    topics: dict[UUID, int], wanted: dict[str, frozenset[UUID]], before: dict[str, Partitions] | None = None
) -> dict[str, Partitions]:
    members = [
        ShareSubscriber(name, frozenset(t for t in mine if t in topics), (before or {}).get(name, NO_PARTITIONS))
        for name, mine in wanted.items()
    ]
    assignable = {topic: frozenset(range(count)) for topic, count in topics.items()}
    return assign_simple(members, assignable, same_topics=len(set(wanted.values())) == 1)


@given(topics=counts, first=groups, then=groups)
def test_no_partition_and_no_member_is_left_out(
    topics: dict[UUID, int], first: dict[str, frozenset[UUID]], then: dict[str, frozenset[UUID]]
) -> None:
    found = assigned(topics, then, assigned(topics, first))
    assert found.keys() == then.keys()
    for topic, count in topics.items():
        takers = [name for name, mine in then.items() if topic in mine]
        given_out = {number for name in takers for number in found[name].get(topic, ())}
        assert given_out == (set(range(count)) if takers else set())
    for name, mine in then.items():
        assert set(found[name]) <= mine
        assert found[name] or not mine & topics.keys() or len(set(then.values())) > 1


@given(topics=counts, names=st.integers(1, 10))
def test_members_of_the_same_topics_differ_by_one_partition(topics: dict[UUID, int], names: int) -> None:
    wanted = dict.fromkeys("abcdefghij"[:names], frozenset(topics))
    found = assigned(topics, wanted)
    sizes = [len(list(each(partitions))) for partitions in found.values()]
    assert max(sizes) - min(sizes) <= 1
    assert assigned(topics, wanted, found) == found, "nothing moves without a reason"


def test_kafkas_examples() -> None:
    """More members than partitions: each partition is shared; fewer: each has one member."""
    first, second = TOPICS[:2]
    shared = assigned({first: 2}, dict.fromkeys("abcd", frozenset((first,))))
    assert sorted(sorted(each(rows)) for rows in shared.values()) == [
        [(first, 0)],
        [(first, 0)],
        [(first, 1)],
        [(first, 1)],
    ]
    alone = assigned({first: 2, second: 2}, dict.fromkeys("ab", frozenset((first, second))))
    assert sorted(partition for rows in alone.values() for partition in each(rows)) == [
        (first, 0),
        (first, 1),
        (second, 0),
        (second, 1),
    ]
