"""A produce that waits in a purgatory for the followers of acks=all, or for an fsync (C5, E3, B11).

Owns: `DelayedProduce`, `WaitingAppend` (one of its partitions), and the two rules that say when an append is
acknowledged. A duplicate of an idempotent batch (F1) waits like the batch itself: its acknowledgement too says that all
in-sync replicas have it.

    acks   answered
    0      after the append on this leader
    1      the same, and after the fsync where `flush.messages` asks for one (B11)
    -1     when HW >= last offset + 1 in the generation of the append: `none`, or
           `not_enough_replicas_after_append` when the ISR shrank below the minimum meanwhile;
           when leadership was lost: `not_leader_or_follower`; at the deadline: `request_timed_out`

Source: Kafka's `DelayedProduce`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode
from ..ids import TopicPartition
from ..purgatory import DelayedOperation
from .produce_result import ProduceResult

if TYPE_CHECKING:
    from .partition import Partition

Done = Callable[[dict[TopicPartition, ProduceResult]], None]


def replicated_append_result(partition: Partition, required_offset: int, generation: int) -> ErrorCode | None:
    """The result of an acks=all append that ends below `required_offset`; None: followers still lag (rule of C5)."""
    error = _lost(partition, generation)
    if error is not None:
        return error
    if partition.high_watermark < required_offset:
        return None
    if partition.below_min_isr:
        return ErrorCode.not_enough_replicas_after_append
    return ErrorCode.none


def local_append_result(partition: Partition, required_offset: int, generation: int) -> ErrorCode | None:
    """The result of an acks=1 append that ends below `required_offset`; None: its fsync is due (B11)."""
    error = _lost(partition, generation)
    if error is not None:
        return error
    return ErrorCode.none if partition.log.acknowledgeable_end >= required_offset else None


def _lost(partition: Partition, generation: int) -> ErrorCode | None:
    """The error of an append whose leadership or log is gone; None: it may still be acknowledged."""
    if partition.failed:
        return ErrorCode.kafka_storage_error
    if not partition.is_leader or generation != partition.leadership_generation:
        return ErrorCode.not_leader_or_follower
    return None


def _may_commit(partition: Partition, offset: int, since_ms: int) -> bool:
    """Whether nothing has kept a leader's HW below `offset`, since an append then or a change of the ISR.

    A follower outside of the ISR that was caught up at that time may have kept it there, and no event says when it does
    so no longer.
    """
    isr = partition.isr_state
    caught_up_ms = max(since_ms, isr.since_ms) - partition.silence_max_ms
    lagging = [
        (node, remote)
        for node in partition.followers
        if (remote := partition.remote(node)) is not None and remote.log_end_offset < offset
    ]
    return (
        partition.is_leader
        and partition.log.acknowledgeable_end >= offset
        and all(node not in isr.maximal and remote.last_caught_up_ms < caught_up_ms for node, remote in lagging)
    )


class WaitingAppend:
    """One partition's append that followers, or this leader's disk, still lack."""

    __slots__ = ("_leadership_generation", "_partition", "_required_offset", "_rule", "_since_ms")

    def __init__(self, partition: Partition, required_offset: int, acks: int, since_ms: int) -> None:
        assert required_offset <= partition.log_end_offset, f"{partition}: nothing to wait for"
        self._partition = partition
        self._required_offset = required_offset
        self._leadership_generation = partition.leadership_generation
        self._rule = replicated_append_result if acks == -1 else local_append_result
        self._since_ms = since_ms

    def result(self) -> ErrorCode | None:
        """Its result; None: still waiting."""
        return self._rule(self._partition, self._required_offset, self._leadership_generation)

    def is_due(self) -> bool:
        """Whether it has a result, or would have one if the high watermark were where the ISR allows it to be."""
        return self.result() is not None or (
            self._rule is replicated_append_result
            and _may_commit(self._partition, self._required_offset, self._since_ms)
        )


class DelayedProduce(DelayedOperation):
    """Appends with acks=all whose followers lag (E3), or with acks=1 whose fsync is due (B11)."""

    __slots__ = ("_done", "_results", "_waiting")

    def __init__(
        self,
        deadline_ms: int,
        waiting: dict[TopicPartition, WaitingAppend],
        results: dict[TopicPartition, ProduceResult],
        done: Done,
    ) -> None:
        super().__init__(deadline_ms)
        self._waiting = waiting
        self._results = results
        self._done = done

    def try_complete(self) -> bool:
        """Take in the results that are known; complete with the last one."""
        for tp, waiting in tuple(self._waiting.items()):
            result = waiting.result()
            if result is None:
                continue
            del self._waiting[tp]
            if result is not ErrorCode.none:
                self._results[tp] = self._results[tp].failed(result)
        return not self._waiting and self.force_complete()

    def due_keys(self) -> Sequence[Hashable]:
        """Return the partitions that it waits for in vain."""
        return [tp for tp, waiting in self._waiting.items() if waiting.is_due()]

    def on_complete(self) -> None:
        """Answer; partitions without a result have timed out."""
        for tp in self._waiting:
            self._results[tp] = self._results[tp].failed(ErrorCode.request_timed_out)
        self._done(self._results)
