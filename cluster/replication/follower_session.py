"""The follower's side of a fetch session (KIP-227): which partitions the next fetch names.

Owns: `FollowerSession`. A full fetch (session id 0, epoch 0) names everything; the leader's answer may carry a
session id. While every followed partition is fetching and none is in back-off, the next fetches go on in that
session. They name the partitions whose log end or log start is not what was named last: those for which `changed` was
called. Every event that changes which partitions are fetched, or truncates a log, calls `end`: the next fetch is a
full one.

Invariant: a partition whose log end or log start has moved since it was named is in `_changed`.

Source: Kafka's `FetchSessionHandler`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..ids import NO_EPOCH
from ..wire.fetch import FetchPartition
from .fetch_session import next_epoch

if TYPE_CHECKING:
    from .followed_partition import FollowedPartition

FULL_FETCH, FINAL_EPOCH = 0, -1
"""Session epochs of a full fetch: one that asks for a session, one that asks for none."""


class FollowerSession:
    """The session of one fetcher with its leader."""

    __slots__ = ("_changed", "_fences", "_fetch_epochs", "_partition_bytes", "epoch", "session_id", "steady")

    def __init__(self, *, partition_bytes: int, fences: bool, fetch_epochs: bool) -> None:
        """`fences`: rows carry the leader epoch (KIP-320); `fetch_epochs`: and the last fetched epoch (KIP-595)."""
        self._partition_bytes = partition_bytes
        self._fences = fences
        self._fetch_epochs = fetch_epochs
        self.session_id = 0
        self.epoch = FINAL_EPOCH
        self.steady = False
        """True while all followed partitions are fetching, so that a session is possible."""
        self._changed: dict[FollowedPartition, None] = {}

    def end(self) -> None:
        """The next fetch is a full one."""
        self.steady = False
        self.session_id = 0
        self.epoch = FINAL_EPOCH
        self._changed.clear()

    def ask_for_session(self) -> None:
        """The full fetch that comes next names all followed partitions: ask the leader for a session."""
        assert self.session_id == 0, "a full fetch within a session"
        self.steady = True
        self.epoch = FULL_FETCH

    def answered(self, session_id: int) -> bool:
        """A response came; True when the next fetch goes on in a session."""
        if not self.steady:
            return False
        if self.session_id:
            self.epoch = next_epoch(self.epoch)
        else:
            self.session_id, self.epoch = session_id, 1
        return self.session_id != 0

    def changed(self, followed: FollowedPartition) -> None:
        """The log end or the log start of a followed partition moved: name it in the next fetch."""
        self._changed[followed] = None

    def rows(self, followed: Iterable[FollowedPartition]) -> list[FetchPartition]:
        """What the next fetch names: in a session the changed partitions, else all of `followed`."""
        in_session = self.session_id != 0
        rows: list[FetchPartition] = []
        fences, fetch_epochs = self._fences, self._fetch_epochs
        for candidate in self._changed if in_session else followed:
            partition = candidate.partition
            log = partition.log
            offset, start = log.log_end_offset, log.log_start_offset
            if in_session and (offset == candidate.named_offset and start == candidate.named_log_start):
                continue
            assert candidate.active, f"{partition} is not followed any more"
            candidate.named_offset, candidate.named_log_start = offset, start
            rows.append(
                FetchPartition(
                    partition.topic_id,
                    partition.topic_partition.partition,
                    candidate.epoch if fences else NO_EPOCH,
                    offset,
                    log.epochs.latest() if fetch_epochs else -1,
                    start,
                    self._partition_bytes,
                )
            )
        self._changed.clear()
        return rows
