"""The fetcher's state of one partition that it follows, under one leader epoch.

Owns: `FollowedPartition`. It is replaced, never reused, when the epoch changes; an answer that comes late finds
`active` False. Source: Kafka's `PartitionFetchState`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ids import LeaderEpoch
    from .partition import Partition

BACKOFF_FIRST_MS = 10


class FollowedPartition:
    """One followed partition: truncating first, then fetching; after an error it waits until `not_before_ms`."""

    __slots__ = (
        "active",
        "backoff_ms",
        "epoch",
        "named_log_start",
        "named_offset",
        "not_before_ms",
        "partition",
        "truncating",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch: LeaderEpoch = partition.leader_epoch
        self.active = True
        self.truncating = True
        self.named_offset = -1
        """The fetch offset that the leader was last sent."""
        self.named_log_start = -1
        self.not_before_ms = 0
        self.backoff_ms = BACKOFF_FIRST_MS

    def current(self) -> bool:
        """True while the partition is followed under the epoch with which it was added."""
        partition = self.partition
        return self.active and not partition.is_leader and partition.leader_epoch == self.epoch

    def delay(self, now_ms: int, backoff_most_ms: int) -> None:
        """Fetch it again after a pause, which doubles with each error in a row."""
        self.not_before_ms = now_ms + self.backoff_ms
        self.backoff_ms = min(self.backoff_ms * 2, max(backoff_most_ms, BACKOFF_FIRST_MS))

    def went_well(self) -> None:
        """The last fetch of it had no error: no pause, and the next one is short again."""
        self.not_before_ms = 0
        self.backoff_ms = BACKOFF_FIRST_MS
