"""The bytes of the consumer protocol that members of Harrow's exchange with the user's (K8)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import WireError
from harrow.cluster.groups.consumer.consumer_protocol import encode_subscription
from harrow.harness.fault_clients.group_view import assigned_in, topics_in
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import metadata

NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=9)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 99), max_size=4), max_size=3)
Subscription: Any = metadata.ConsumerProtocolSubscription
Assignment: Any = metadata.ConsumerProtocolAssignment


@given(topics=st.lists(NAMES, max_size=4), owned=st.none() | PARTITIONS)
def test_a_subscription_is_read_by_us_and_by_kafka_python(
    topics: list[str], owned: dict[str, list[int]] | None
) -> None:
    data = encode_subscription(topics, owned)
    assert topics_in(data) == topics
    read = Subscription.decode(data)
    assert list(read.topics) == topics
    assert {row.topic: list(row.partitions) for row in read.owned_partitions} == (owned or {})


@given(held=PARTITIONS, version=st.integers(0, 3))
def test_an_assignment_of_kafka_python_is_read(held: dict[str, list[int]], version: int) -> None:
    rows = [Assignment.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in held.items()]
    data = Assignment(assigned_partitions=rows, user_data=b"").encode(version=version)
    assert assigned_in(data) == {topic: tuple(numbers) for topic, numbers in held.items()}


def test_a_member_without_an_assignment_has_no_partition() -> None:
    assert assigned_in(b"") == {}


def test_bytes_that_end_too_early_are_refused() -> None:
    with pytest.raises(WireError, match="a subscription of a group's member ends too early"):
        topics_in(encode_subscription(["orders"])[:7])
