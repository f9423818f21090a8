"""Truncating the logs of followers before they fetch, and after they fetched out of range (C7).

Owns: `FollowerTruncation`, the steps of one fetcher: ask the leader where epochs end, truncate as the strategy
decides (`truncation_strategies.py`), and bring a log back into the leader's range. Every truncation is traced with its
cause.

Source: Kafka's `AbstractFetcherThread.truncateToEpochEndOffsets`, `fetchOffsetAndTruncate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, HarrowError
from ..host.seam.failpoints import AFTER_FOLLOWER_TRUNCATION, BEFORE_FOLLOWER_TRUNCATION, passes
from ..ids import NO_EPOCH
from .leader_queries import LeaderQueries
from .truncation_strategies import TruncationPoint, TruncationStrategy, latest_epoch

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..ids import NodeId
    from ..network.peers import PeerClient
    from .followed_partition import FollowedPartition
    from .offset_trace import OffsetTrace


class FollowerTruncation:
    """Truncates what one fetcher follows."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        strategy: TruncationStrategy,
        offsets: OffsetTrace,
        *,
        timeout_ms: int,
        before_truncation: Callable[[], None],
        delay: Callable[[FollowedPartition], None],
        failed: Callable[[FollowedPartition, BaseException], None],
    ) -> None:
        """`delay` postpones a partition's next fetch; `failed` gets an error of a partition's own log."""
        self._host = host
        self._node_id = node_id
        self._strategy = strategy
        self._offsets = offsets
        self._timeout_ms = timeout_ms
        self._before_truncation = before_truncation
        self._delay = delay
        self._failed = failed

    async def truncate(self, client: PeerClient, truncating: Sequence[FollowedPartition]) -> None:
        """First step of every newly followed partition: truncate, ask, truncate again, as the strategy decides."""
        to_ask = [followed for followed in truncating if self._start(followed)]
        if not to_ask:
            return
        epochs = {followed: latest_epoch(followed.partition) for followed in to_ask}
        queries = LeaderQueries(client, self._node_id, self._timeout_ms)
        answers = await queries.end_offsets(
            [(followed.partition, self._fence(followed), epochs[followed]) for followed in to_ask]
        )
        for followed in to_ask:
            found = answers.get(followed.partition.topic_partition)
            if found is None or not followed.current():
                continue
            if found.error is not ErrorCode.none:
                self._delay(followed)
                continue
            cause = f"leader's epoch {found.epoch} ends at {found.end_offset}"
            point = self._answered(followed, found.epoch, found.end_offset, cause)
            if point is not None:
                # The queries end: an epoch that was truncated is not asked for again.
                asked = epochs[followed]
                followed.truncating = not point.done and latest_epoch(followed.partition) < asked

    def _start(self, followed: FollowedPartition) -> bool:
        """The strategy's first step; True when the leader has to be asked."""
        if not followed.current():
            return False
        try:
            point = self._strategy.start(followed.partition)
            if self._strategy.asks and not point.done:
                return True
            self._truncate_to(followed, point, "became follower")
            followed.truncating = False
        except (HarrowError, OSError) as error:
            self._failed(followed, error)
        return False

    def diverged(self, followed: FollowedPartition, epoch: int, end_offset: int) -> None:
        """A fetch response named the diverging epoch and its end at the leader (KIP-595). HarrowError, OSError."""
        point = self._strategy.answered(followed.partition, epoch, end_offset)
        self._truncate_to(followed, point, "diverging-epoch")

    def _answered(self, followed: FollowedPartition, epoch: int, end_offset: int, cause: str) -> TruncationPoint | None:
        try:
            point = self._strategy.answered(followed.partition, epoch, end_offset)
            self._truncate_to(followed, point, cause)
        except (HarrowError, OSError) as error:
            self._failed(followed, error)
            return None
        return point

    async def find_range(self, client: PeerClient, lost: Sequence[FollowedPartition]) -> None:
        """The log end is outside of the leader's log: truncate to its end, or start over at its start."""
        queries = LeaderQueries(client, self._node_id, self._timeout_ms)
        for followed in lost:
            partition, fence = followed.partition, self._fence(followed)
            end = await queries.offset(partition, fence, latest=True)
            start = await queries.offset(partition, fence, latest=False)
            if not followed.current():
                continue
            if end is None or start is None:
                self._delay(followed)
                continue
            try:
                self._enter_range(followed, start, end)
            except (HarrowError, OSError) as error:
                self._failed(followed, error)

    def _enter_range(self, followed: FollowedPartition, start: int, end: int) -> None:
        partition = followed.partition
        own_end = partition.log_end_offset
        if end < own_end:
            self._truncate_to(followed, TruncationPoint(offset=end, done=True), "out of range")
        elif start > own_end:
            self._before_truncation()
            partition.truncate_fully_and_start_at(start)
            self._offsets.truncated(partition, own_end, f"leader's log starts at {start}")
        else:
            self._delay(followed)  # in range by now: the leader's answers raced with an append

    def _truncate_to(self, followed: FollowedPartition, point: TruncationPoint, cause: str) -> None:
        self._before_truncation()
        partition = followed.partition
        before, high = partition.log_end_offset, partition.high_watermark
        if point.offset < high:
            self._host.trace.log(
                "warning", f"{partition.topic_partition}: truncating to {point.offset}, below the HW {high}"
            )
        host, tp = self._host, partition.topic_partition
        passes(host.failpoints, host.trace, BEFORE_FOLLOWER_TRUNCATION, tp)
        if partition.truncate_to(point.offset):
            self._offsets.truncated(partition, before, f"{self._strategy.name}: {cause}")
            passes(host.failpoints, host.trace, AFTER_FOLLOWER_TRUNCATION, tp)
        if partition.high_watermark != high:
            self._offsets.high_watermark(partition, "truncated")

    def _fence(self, followed: FollowedPartition) -> int:
        """The leader epoch for the leader to check (KIP-320); -1 under strategies from before that field."""
        return followed.epoch if self._strategy.fences else NO_EPOCH
