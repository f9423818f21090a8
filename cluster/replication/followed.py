"""What a fetcher knows of one partition that it follows.

Owns: `Followed`, the state of one partition under one leader epoch. Source: Kafka's `PartitionFetchState`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ids import LeaderEpoch
    from .partition import Partition

BACKOFF_FIRST_MS = 10


class Followed:
    """One partition under one leader epoch; replaced, never reused, when the epoch changes."""

    __slots__ = (
        "active",
        "asked_offset",
        "asked_start",
        "backoff_ms",
        "epoch",
        "not_before_ms",
        "partition",
        "truncating",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch: LeaderEpoch = partition.leader_epoch
        self.active = True
        self.truncating = True
        self.asked_offset = -1
        self.asked_start = -1
        self.not_before_ms = 0
        self.backoff_ms = BACKOFF_FIRST_MS
