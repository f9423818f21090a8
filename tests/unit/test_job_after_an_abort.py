"""Where the job of `harrow chaos --workload exactly-once` continues after an abort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from harrow.harness.workloads.exactly_once.job import Job

ORDERS = TopicPartition("orders", 0)


class ConsumerOfOldOffsets:
    """The group's coordinator was replaced, does not know it, and returns 3."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def assignment(self) -> list[TopicPartition]:
        return [ORDERS]

    def committed(self, partitions: Sequence[TopicPartition], _timeout_s: float) -> Any:
        return [TopicPartition(row.topic, row.partition, 3) for row in partitions]

    def seek(self, place: TopicPartition) -> None:
        self.at.append(place.offset)


@pytest.mark.parametrize(
    ("own", "then", "at"),
    [
        ({("orders", 0): 6}, None, 6),
        ({("orders", 0): 2}, None, 3),
        ({}, None, 3),
        ({("orders", 0): 6}, "_revoked", 3),
        ({("orders", 0): 6}, "_lost", 3),
        ({("orders", 0): 6}, "_assigned", 3),
    ],
    ids=["own-is-later", "own-is-older", "none", "revoked", "lost", "assigned-again"],
)
def test_it_does_not_go_below_its_own_commits_while_it_owns_the_partition(
    own: dict[tuple[str, int], int], then: str | None, at: int
) -> None:
    job: Any = Job("127.0.0.1:1", "orders", "bills", "billing", "dynamic", "2000", "job-1")
    job._consumer = consumer = ConsumerOfOldOffsets()
    job._ends = own
    if then is not None:
        getattr(job, then)(consumer, [ORDERS])
    job._continue_at_committed()
    assert consumer.at == [at]
