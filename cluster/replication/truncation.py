"""How a new follower brings its log in line with its leader's (C7): four rules, one name each.

Owns: the decision, not the deed. A rule says what to ask the leader (nothing, or the end offset of an
epoch) and, from the answer, where to cut. The fetcher asks and the partition cuts.

    high-watermark  (Kafka 0.10) cut to the own HW when the leader is another or this broker has just
                    started, ask nobody. Loses committed records (the HW lags a round behind) and lets
                    logs diverge (seeds 002, 004): here to be caught.
    kip-101         (0.11) ask for the end of the own last epoch, cut there. A second fast leader change
                    can still diverge: the leader may not know that epoch, its answer then is of another.
    kip-279         (2.0) the answer names its epoch; a follower that does not know it cuts its own later
                    epochs and asks again.
    kip-320         (2.7) no question: each Fetch says the epoch of the last record, the leader answers
                    with the diverging epoch (KIP-595), and the cut is kip-279's. The default.

Fetches and questions carry the current leader epoch, to be fenced by it, under `kip-320` only: before 2.1
there was no such field. A leader answers OffsetForLeaderEpoch as KIP-279 does whatever its rule: the
offset is that of KIP-101, and the epoch beside it is what a `kip-101` follower does not look at.

Worked example (kip-279). Follower epochs (1, 0) (2, 10), end 20; leader (1, 0) (3, 12), end 15.
Asked for epoch 2 the leader answers (1, 12): the largest epoch it has at or below 2 ends at 12. The
follower's epoch 1 ends at 10: cut to min(12, 10) = 10.

Source: Kafka's `AbstractFetcherThread.getOffsetTruncationState`; KIP-101, KIP-279, KIP-320, KIP-595.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..ids import LeaderEpoch

if TYPE_CHECKING:
    from .partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Truncate to `offset` (the log's end or beyond: nothing to cut); then ask again unless `done`."""

    offset: int
    done: bool


class Truncation(Protocol):
    """One rule. `asks` and `on_fetch` say which of the leader's two answers it uses."""

    name: str
    asks: bool
    """OffsetForLeaderEpoch is sent before the first fetch."""
    fences: bool
    """Requests to the leader carry the epoch that it is thought to lead in (KIP-320)."""
    on_fetch: bool
    """Fetch carries the last fetched epoch, and a diverging epoch in its answer is obeyed."""

    def start(self, partition: Partition) -> Cut:
        """What a new follower does first, before it asked anybody."""
        ...

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> Cut:
        """What the leader's (epoch, end offset) for this log's latest epoch means; -1 is "unknown"."""
        ...


def _high_watermark(partition: Partition) -> Cut:
    return Cut(offset=min(partition.high_watermark, partition.log_end_offset), done=True)


def _nothing(partition: Partition) -> Cut:
    return Cut(offset=partition.log_end_offset, done=False)


class HighWatermarkTruncation:
    """Cut to the own high watermark."""

    name = "high-watermark"
    asks = False
    fences = False
    on_fetch = False

    def start(self, partition: Partition) -> Cut:
        """Cut to the HW at once, unless the leader is whom it followed before."""
        if partition.leader_changed:
            return _high_watermark(partition)
        return Cut(offset=partition.log_end_offset, done=True)

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> Cut:  # noqa: ARG002 - one signature
        """Never asks; the answer would not change its mind."""
        return _high_watermark(partition)


class Kip101Truncation:
    """Cut to the leader's end offset of the own latest epoch, whatever epoch that offset is of."""

    name = "kip-101"
    asks = True
    fences = False
    on_fetch = False

    def start(self, partition: Partition) -> Cut:
        """Without epochs fall back to the HW, else ask."""
        return _nothing(partition) if latest_epoch(partition) >= 0 else _high_watermark(partition)

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> Cut:  # noqa: ARG002 - one signature
        """Cut to the offset; to the HW when the leader knows none."""
        if end_offset < 0:
            return _high_watermark(partition)
        return Cut(offset=min(end_offset, partition.log_end_offset), done=True)


class Kip279Truncation:
    """Cut to where the leader's answer and the own epochs agree, asking again until they do."""

    name = "kip-279"
    asks = True
    fences = False
    on_fetch = False

    def start(self, partition: Partition) -> Cut:
        """Without epochs fall back to the HW, else ask."""
        return _nothing(partition) if latest_epoch(partition) >= 0 else _high_watermark(partition)

    def answered(self, partition: Partition, epoch: int, end_offset: int) -> Cut:
        """Cut to the smaller end of the epoch both know; before the own later epochs and ask again else."""
        if end_offset < 0:
            return _high_watermark(partition)
        log_end = partition.log_end_offset
        if epoch < 0:
            return Cut(offset=min(end_offset, log_end), done=True)
        own_epoch, own_end = partition.log.epochs.end_offset_for(LeaderEpoch(epoch), log_end)
        if own_epoch < 0 or own_end < 0:
            return Cut(offset=min(end_offset, log_end), done=True)
        if own_epoch != epoch:
            return Cut(offset=min(own_end, log_end), done=False)
        return Cut(offset=min(end_offset, own_end, log_end), done=True)


class Kip320Truncation(Kip279Truncation):
    """KIP-279's cut by the diverging epoch that the leader finds in a Fetch."""

    name = "kip-320"
    asks = False
    fences = True
    on_fetch = True

    def start(self, partition: Partition) -> Cut:
        """Without epochs fall back to the HW, else let the first fetch find out."""
        if latest_epoch(partition) < 0:
            return _high_watermark(partition)
        return Cut(offset=partition.log_end_offset, done=True)


STRATEGIES: dict[str, Truncation] = {
    rule.name: rule
    for rule in (
        HighWatermarkTruncation(),
        Kip101Truncation(),
        Kip279Truncation(),
        Kip320Truncation(),
    )
}
"""Every rule by the name that `harrow.replica.truncation` takes."""


def latest_epoch(partition: Partition) -> int:
    """Epoch of the log's last entry; -1 when it has none."""
    return partition.log.epochs.latest()
