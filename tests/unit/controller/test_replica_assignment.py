"""Kafka's own table of AdminUtils, and what holds for any numbers."""

from __future__ import annotations

from collections import Counter

import pytest
from harrow.cluster.controller.assignment import assign_replicas
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import NodeId
from hypothesis import given
from hypothesis import strategies as st


def nodes(count: int) -> list[NodeId]:
    return [NodeId(node) for node in range(count)]


def test_kafkas_table_of_five_brokers_and_ten_partitions() -> None:
    # AdminRackAwareTest / AdminUtilsTest: testReplicaAssignment
    expected = {
        0: [0, 1, 2], 1: [1, 2, 3], 2: [2, 3, 4], 3: [3, 4, 0], 4: [4, 0, 1],
        5: [0, 2, 3], 6: [1, 3, 4], 7: [2, 4, 0], 8: [3, 0, 1], 9: [4, 1, 2],
    }  # fmt: skip
    assert assign_replicas(nodes(5), 10, 3, start=0, shift=0) == expected


@given(
    st.integers(1, 7), st.integers(1, 40), st.integers(1, 7), st.integers(0, 50), st.integers(0, 50)
)
def test_replicas_are_distinct_and_leaders_even(
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
def test_impossible_numbers_are_refused(
    brokers: int, partitions: int, factor: int, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as raised:
        assign_replicas(nodes(brokers), partitions, factor, start=0, shift=0)
    assert raised.value.code is code
