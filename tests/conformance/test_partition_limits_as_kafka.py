"""A request for too many partitions is refused at once, as by Apache Kafka 4.2 (C9)."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey

Code = ErrorCode
MOST = 10_000
ENOUGH_S = 5.0
"""Far below what the work for so many partitions takes."""


def controller(kafka: Any) -> Any:
    return kafka.raw(kafka.raw().metadata().controller_id)


def created(kafka: Any, *counts: int, dry: bool, factor: int = 1) -> list[ErrorCode]:
    """The error of each of several new topics."""
    rows = tuple(
        {
            "name": f"many-{uuid4().hex}",
            "num_partitions": count,
            "replication_factor": factor,
            "assignments": (),
            "configs": (),
        }
        for count in counts
    )
    answer = controller(kafka).ask(ApiKey.CREATE_TOPICS, 5, topics=rows, timeout=30_000, validate_only=dry)
    return [ErrorCode(row.error_code) for row in answer.topics]


def grown(kafka: Any, counts: dict[str, int], *, dry: bool) -> list[ErrorCode]:
    """The error of each topic that gets more partitions."""
    rows = tuple({"name": name, "count": count, "assignments": None} for name, count in counts.items())
    answer = controller(kafka).ask(ApiKey.CREATE_PARTITIONS, 2, topics=rows, timeout=30_000, validate_only=dry)
    return [ErrorCode(row.error_code) for row in answer.results]


@pytest.mark.parametrize("dry", [False, True])
def test_a_request_for_too_many_new_partitions_creates_no_topic(kafka: Any, dry: bool) -> None:
    began = time.monotonic()
    for counts in ((2**31 - 1,), (MOST + 1,), (MOST,), (1, MOST), (MOST // 2, MOST // 2), (MOST, -1)):
        found = created(kafka, *counts, dry=dry)
        assert found == [Code.policy_violation] * len(counts), counts
    assert created(kafka, MOST + 1, dry=dry, factor=9) == [Code.policy_violation]
    assert time.monotonic() - began < ENOUGH_S
    names = {row.name for row in kafka.raw().metadata().topics}
    assert not any(name.startswith("many-") for name in names)


def test_a_request_for_just_enough_partitions_is_valid(kafka: Any) -> None:
    """A topic counts as an entry, too; a topic that is refused does not."""
    assert created(kafka, MOST - 1, dry=True) == [Code.none]
    assert created(kafka, MOST - 3, 1, dry=True) == [Code.none, Code.none]
    assert created(kafka, MOST - 2, 1, dry=True) == [Code.policy_violation] * 2
    assert created(kafka, MOST - 1, 0, dry=True) == [Code.none, Code.invalid_partitions]


def test_a_topic_does_not_get_too_many_partitions_by_a_request(kafka: Any) -> None:
    """All topics of the request are refused, as in Apache Kafka 4.4; before, Kafka had UNKNOWN_SERVER_ERROR for one."""
    topic, other = kafka.topic("grows", 1), kafka.topic("grows-too", 1)
    refused = Code.policy_violation
    for dry in (False, True):
        assert grown(kafka, {topic: 2**31 - 1}, dry=dry) == [refused]
    assert grown(kafka, {topic: MOST + 2}, dry=True) == [refused]
    assert grown(kafka, {topic: MOST + 1}, dry=True) == [Code.none]
    both = grown(kafka, {topic: 6_000, other: 6_000}, dry=True)
    assert both == [refused, refused]
    assert len(kafka.raw().metadata(topic).topics[0].partitions) == 1
