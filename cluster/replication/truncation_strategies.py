"""How a new follower makes its log a prefix of its leader's (C7): four truncation strategies.

Owns: the decision, not the deed. A strategy says what to ask the leader (nothing, or the end offset of an epoch) and,
from the answer, where to truncate. `follower_truncation.py` asks, and the partition truncates.

    high-watermark  (Kafka 0.10) truncate to the own HW when the leader is another or this broker has just
                    started, ask nothing. Loses committed records (the HW lags a round behind) and lets
                    logs diverge (seeds 002, 004): it is here so that tests can find its bugs.
    kip-101         (0.11) ask for the end of the own last epoch, truncate there. A second fast leader change
                    can still diverge: if the leader does not know that epoch, its answer is about another epoch.
    kip-279         (2.0) the answer names its epoch; a follower that does not know this epoch truncates its own later
                    epochs and asks again.
    kip-320         (2.7) no query: each Fetch states the epoch of the last record, the leader answers
                    with the diverging epoch (KIP-595), and the truncation is that of kip-279. The default.

Only `kip-320` states the current leader epoch in fetches and queries, to be fenced by it: before 2.1 there was no such
field. A leader answers OffsetForLeaderEpoch as KIP-279 does, whatever its own strategy: the offset is that of
KIP-101, and a `kip-101` follower ignores the epoch beside it.

Worked example (kip-279). Follower epochs (1, 0) (2, 10), end 20; leader (1, 0) (3, 12), end 15.
Asked for epoch 2 the leader answers (1, 12): its largest epoch at or below 2 ends at 12. The
follower's epoch 1 ends at 10: truncate to min(12, 10) = 10.

Source: Kafka's `AbstractFetcherThread.getOffsetTruncationState`; KIP-101, KIP-279, KIP-320, KIP-595.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..ids import LeaderEpoch

if TYPE_CHECKING:
    from .partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationPoint:
    """Truncate to `offset` (the log end or beyond: nothing to truncate); then ask again unless `done`."""

    offset: int
    done: bool


class TruncationStrategy(Protocol):
    """`asks` and `on_fetch` say which of the leader's two answers a strategy uses."""

    name: str
    asks: bool
    """OffsetForLeaderEpoch is sent before the first fetch."""
    fences: bool
    """Requests to the leader carry the leader epoch that this follower knows (KIP-320)."""
    on_fetch: bool
    """Fetch carries the last fetched epoch, and the follower truncates by a diverging epoch in the response."""

    def start(self, partition: Partition) -> TruncationPoint:
        """The first step of a new follower, before it has asked the leader."""
        ...

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> TruncationPoint:
        """The step after the leader answered (epoch, end offset) for this log's latest epoch; -1 is "unknown"."""
        ...


def _high_watermark(partition: Partition) -> TruncationPoint:
    return TruncationPoint(offset=min(partition.high_watermark, partition.log_end_offset), done=True)


def _nothing(partition: Partition) -> TruncationPoint:
    return TruncationPoint(offset=partition.log_end_offset, done=False)


class HighWatermarkTruncation:
    """Truncate to the own high watermark."""

    name = "high-watermark"
    asks = False
    fences = False
    on_fetch = False

    def start(self, partition: Partition) -> TruncationPoint:
        """Truncate to the HW at once, unless the leader is the same as before."""
        if partition.leader_changed:
            return _high_watermark(partition)
        return TruncationPoint(offset=partition.log_end_offset, done=True)

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> TruncationPoint:  # noqa: ARG002
        """Truncate to the HW; this strategy asks nothing and ignores an answer."""
        return _high_watermark(partition)


class Kip101Truncation:
    """Truncate to the leader's end offset for the own latest epoch, whichever epoch that offset belongs to."""

    name = "kip-101"
    asks = True
    fences = False
    on_fetch = False

    def start(self, partition: Partition) -> TruncationPoint:
        """Truncate to the HW if the log has no epochs, else ask."""
        return _nothing(partition) if latest_epoch(partition) >= 0 else _high_watermark(partition)

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> TruncationPoint:  # noqa: ARG002
        """Truncate to the offset; to the HW when the leader knows none."""
        if end_offset < 0:
            return _high_watermark(partition)
        return TruncationPoint(offset=min(end_offset, partition.log_end_offset), done=True)


class Kip279Truncation:
    """Truncate to where the leader's answer and the own epochs agree; ask again until they do."""

    name = "kip-279"
    asks = True
    fences = False
    on_fetch = False

    def start(self, partition: Partition) -> TruncationPoint:
        """Truncate to the HW if the log has no epochs, else ask."""
        return _nothing(partition) if latest_epoch(partition) >= 0 else _high_watermark(partition)

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> TruncationPoint:
        """Truncate to the smaller end of the common epoch; without one drop the own later epochs and ask again."""
        if end_offset < 0:
            return _high_watermark(partition)
        log_end = partition.log_end_offset
        if epoch < 0:
            return TruncationPoint(offset=min(end_offset, log_end), done=True)
        own_epoch, own_end = partition.log.epochs.end_offset_for(LeaderEpoch(epoch), log_end)
        if own_epoch < 0 or own_end < 0:
            return TruncationPoint(offset=min(end_offset, log_end), done=True)
        if own_epoch != epoch:
            return TruncationPoint(offset=min(own_end, log_end), done=False)
        return TruncationPoint(offset=min(end_offset, own_end, log_end), done=True)


class Kip320Truncation(Kip279Truncation):
    """KIP-279's truncation, by the diverging epoch that the leader finds in a Fetch."""

    name = "kip-320"
    asks = False
    fences = True
    on_fetch = True

    def start(self, partition: Partition) -> TruncationPoint:
        """Truncate to the HW if the log has no epochs, else leave it to the first fetch."""
        if latest_epoch(partition) < 0:
            return _high_watermark(partition)
        return TruncationPoint(offset=partition.log_end_offset, done=True)


STRATEGIES: dict[str, TruncationStrategy] = {
    strategy.name: strategy
    for strategy in (HighWatermarkTruncation(), Kip101Truncation(), Kip279Truncation(), Kip320Truncation())
}
"""Every strategy by its value of `harrow.replica.truncation`."""


def latest_epoch(partition: Partition) -> int:
    """The latest leader epoch of the log; -1 when it has none."""
    return partition.log.epochs.latest()
