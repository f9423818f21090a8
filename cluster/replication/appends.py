"""Appending as leader, and waiting for the followers of acks=all (C5, E3).

Owns: `ProduceResult`; `Appends`, which appends to many partitions and then answers at once or waits; the delayed
produce; and the two rules that say when an append is acknowledged. A duplicate of an idempotent batch (F1)
waits like the batch itself: its acknowledgement too says that all in-sync replicas have it.

    acks   answered
    0      after the append on this leader
    1      the same, and after the fsync where `flush.messages` asks for one (B11)
    -1     when HW >= last offset + 1 in the generation of the append: `none`, or
           `not_enough_replicas_after_append` when the ISR shrank below the minimum meanwhile;
           when leadership was lost: `not_leader_or_follower`; at the deadline: `request_timed_out`

Source: Kafka's `ReplicaManager.appendRecords` and `DelayedProduce`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import ErrorCode, HarrowError, KafkaError, RecordsRefusedError, StorageError
from ..ids import NO_OFFSET, Offset, TopicPartition
from ..internal_topics import INTERNAL_TOPICS
from ..purgatory import DelayedOperation
from ..wire.batches import check_extent

if TYPE_CHECKING:
    from ..host.seam import Buffer, Host
    from ..storage.results import AppendInfo, Origin
    from .partition import Partition
    from .partition_directory import PartitionDirectory
    from .wake_ups import WakeUps

ADMIN_CLIENT = "__admin_client"
"""The client id that may write to internal topics, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResult:
    """The result of appending to one partition; offsets are -1 where nothing was appended."""

    error: ErrorCode
    base_offset: Offset = NO_OFFSET
    last_offset: Offset = NO_OFFSET
    append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    message: str = ""
    record_errors: Sequence[tuple[int, str]] = ()
    """Index and fault of each record because of which the batch is refused (KIP-467)."""
    stored_header: bytes = b""
    """As in `AppendInfo`."""

    @classmethod
    def refused(
        cls, error: ErrorCode, message: str = "", record_errors: Sequence[tuple[int, str]] = ()
    ) -> ProduceResult:
        """Nothing was appended."""
        return cls(error=error, message=message, record_errors=record_errors)

    def failed(self, error: ErrorCode) -> ProduceResult:
        """The same append, which ended in `error` after it was made: an error carries no offsets."""
        return replace(self, error=error, base_offset=NO_OFFSET, append_time_ms=-1)


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


class _WaitingAppend:
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
        waiting: dict[TopicPartition, _WaitingAppend],
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


class Appends:
    """Appends to the partitions that this broker leads."""

    def __init__(
        self,
        host: Host,
        directory: PartitionDirectory,
        wake_ups: WakeUps,
        log_failed: Callable[[Partition, BaseException], None],
    ) -> None:
        self._host = host
        self._directory = directory
        self._wake_ups = wake_ups
        self._log_failed = log_failed

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer],
        *,
        acks: int,
        timeout_ms: int,
        done: Done,
        origin: Origin,
        internal_topics: bool,
    ) -> None:
        """Append each entry to its partition and call `done` once with all results."""
        results: dict[TopicPartition, ProduceResult] = {}
        waiting: dict[TopicPartition, _WaitingAppend] = {}
        now_ms = self._host.clock.monotonic_ms()
        if acks not in (-1, 0, 1):
            refused = ProduceResult.refused(ErrorCode.invalid_required_acks, f"acks={acks}: expected -1, 0 or 1")
            done({tp: self._refused(tp, records, refused) for tp, records in entries.items()})
            return
        for tp, records in entries.items():
            partition = self._directory.partition(tp)
            if tp.topic in INTERNAL_TOPICS and not internal_topics:
                results[tp] = ProduceResult.refused(
                    ErrorCode.invalid_topic_exception, f"{tp.topic} is written by brokers only"
                )
                continue
            results[tp] = result = self._append(tp, partition, records, acks, origin)
            if partition is None or result.error is not ErrorCode.none or not acks:
                continue
            required = result.last_offset + 1
            end = partition.log.log_end_offset
            assert required <= end, f"{partition}: acknowledges up to {required}, the log ends at {end}"
            if acks == -1 or partition.log.acknowledgeable_end < required:
                waiting[tp] = _WaitingAppend(partition, required, acks, now_ms)
        if not waiting:
            done(results)
            return
        deadline_ms = now_ms + max(0, timeout_ms)
        operation = DelayedProduce(deadline_ms, waiting, results, done)
        if not operation.try_complete():  # a try that completes nothing causes no events
            self._wake_ups.produces.watch(operation, tuple(waiting))

    def _refused(self, tp: TopicPartition, records: Buffer, other: ProduceResult) -> ProduceResult:
        """`other`, a refusal for acks or leader, unless Kafka finds something before it looks at them.

        That is a partition that does not exist, or bytes that are no batch.
        """
        if self._directory.is_unknown(tp):
            return ProduceResult.refused(ErrorCode.unknown_topic_or_partition)
        try:
            check_extent(records)
        except KafkaError as error:
            return ProduceResult.refused(error.code, error.message)
        return other

    def _append(
        self, tp: TopicPartition, partition: Partition | None, records: Buffer, acks: int, origin: Origin
    ) -> ProduceResult:
        if partition is None:
            why = self._directory.unopened.get(tp, "")
            missing = ProduceResult.refused(self._directory.missing(tp), why)
            return self._refused(tp, records, missing)
        try:
            info = partition.append_as_leader(records, acks=acks, origin=origin)
            try:
                self._host.failpoints.hit("log.after-append")
            finally:
                self._wake_ups.appended(partition)
        except RecordsRefusedError as error:
            return ProduceResult.refused(error.code, error.message, error.record_errors)
        except KafkaError as error:
            if error.code is ErrorCode.kafka_storage_error:
                self._log_failed(partition, error)
            refused = ProduceResult.refused(error.code, error.message)
            moved = error.code is ErrorCode.not_leader_or_follower
            return self._refused(tp, records, refused) if moved else refused
        except StorageError as error:
            self._log_failed(partition, error)
            return ProduceResult.refused(ErrorCode.kafka_storage_error, str(error))
        except HarrowError as error:
            return ProduceResult.refused(ErrorCode.unknown_server_error, str(error))
        return _result(info)


def _result(info: AppendInfo) -> ProduceResult:
    return ProduceResult(
        error=ErrorCode.none,
        base_offset=Offset(info.first_offset),
        last_offset=Offset(info.last_offset),
        append_time_ms=info.append_time_ms,
        log_start_offset=Offset(info.log_start_offset),
        stored_header=info.stored_header,
    )
