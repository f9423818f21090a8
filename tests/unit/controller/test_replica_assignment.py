"""Kafka's own table of AdminUtils, and what holds for any numbers."""

from __future__ import annotations

from collections import Counter

import pytest
from harrow.cluster.controller.assignment import alternated, assign_replicas, start_of_added
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import NodeId
from hypothesis import given
from hypothesis import strategies as st


def nodes(count: int) -> list[NodeId]:
    return [NodeId(node) for node in range(count)]


def test_five_brokers_and_ten_partitions_give_the_table_of_kafka() -> None:
    # AdminRackAwareTest / AdminUtilsTest: testReplicaAssignment
    expected = {
        0: [0, 1, 2],
        1: [1, 2, 3],
        2: [2, 3, 4],
        3: [3, 4, 0],
        4: [4, 0, 1],
        5: [0, 2, 3],
        6: [1, 3, 4],
        7: [2, 4, 0],
        8: [3, 0, 1],
        9: [4, 1, 2],
    }
    assert assign_replicas(nodes(5), 10, 3, start=0, shift=0) == expected


@given(st.integers(1, 7), st.integers(1, 40), st.integers(1, 7), st.integers(0, 50), st.integers(0, 50))
def test_replicas_are_distinct_and_leaders_are_spread_evenly(
    brokers: int, partitions: int, factor: int, start: int, shift: int
) -> None:
    factor = min(factor, brokers)
    found = assign_replicas(nodes(brokers), partitions, factor, start=start, shift=shift)
    assert list(found) == list(range(partitions))
    assert all(len(set(replicas)) == factor for replicas in found.values())
    leaders = Counter(replicas[0] for replicas in found.values())
    assert max(leaders.values()) - min(leaders.get(n, 0) for n in nodes(brokers)) <= 1


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "code"),
    [
        (3, 0, 1, ErrorCode.invalid_partitions),
        (3, 1, 0, ErrorCode.invalid_replication_factor),
        (3, 1, 4, ErrorCode.invalid_replication_factor),
        (0, 1, 1, ErrorCode.invalid_replication_factor),
    ],
)
def test_impossible_counts_are_refused(brokers: int, partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        assign_replicas(nodes(brokers), partitions, factor, start=0, shift=0)
    assert raised.value.code is code


def racks(**nodes: list[int]) -> dict[NodeId, str | None]:
    return {NodeId(node): rack for rack, row in nodes.items() for node in row}


def test_brokers_are_ordered_with_alternating_racks() -> None:
    # AdminRackAwareTest: testGetRackAlternatedBrokerListAndAssignReplicasToBrokers
    rack_of = {node: str(rack) for node, rack in racks(a=[0, 3], b=[2, 5], c=[1, 4]).items()}
    assert alternated(rack_of) == [NodeId(n) for n in (0, 2, 1, 3, 5, 4)]


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_replicas_are_placed_on_as_many_racks_as_possible(
    sizes: list[int], partitions: int, factor: int, start: int, shift: int
) -> None:
    numbers = iter(range(sum(sizes)))
    rack_of: dict[NodeId, str | None] = {
        NodeId(next(numbers)): f"rack {rack}" for rack, size in enumerate(sizes) for _ in range(size)
    }
    factor = min(factor, len(rack_of))
    found = assign_replicas([*rack_of], partitions, factor, start=start, shift=shift, racks=rack_of)
    for replicas in found.values():
        assert len(set(replicas)) == factor
        assert len({rack_of[node] for node in replicas}) == min(factor, len(sizes))


def test_brokers_with_and_without_racks_are_refused() -> None:
    rack_of: dict[NodeId, str | None] = {NodeId(0): "a", NodeId(1): None}
    with pytest.raises(KafkaError) as raised:
        assign_replicas(nodes(2), 1, 1, start=0, shift=0, racks=rack_of)
    assert raised.value.code is ErrorCode.unknown_server_error


def test_added_partitions_continue_the_round_robin() -> None:
    first = assign_replicas(nodes(4), 3, 2, start=2, shift=2)
    start = start_of_added(nodes(4), first[0][0], {})
    more = assign_replicas(nodes(4), 5, 2, start=start, shift=start, first_partition=3)
    assert list(more) == [3, 4, 5, 6, 7]
    leaders = Counter(row[0] for row in (first | more).values())
    assert set(leaders.values()) == {2}
