"""Appending as leader to the partitions of a request (C5, E3).

Owns: `Appends`, which appends to many partitions and then answers at once, or waits as `delayed_produce.py` says.

Source: Kafka's `ReplicaManager.appendRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import ErrorCode, HarrowError, KafkaError, RecordsRefusedError, StorageError
from ..ids import Offset, TopicPartition
from ..internal_topics import INTERNAL_TOPICS
from ..wire.batches import check_extent
from .delayed_produce import DelayedProduce, Done, WaitingAppend
from .produce_result import ProduceResult

if TYPE_CHECKING:
    from ..host.seam import Buffer, Host
    from ..storage.results import AppendInfo, Origin
    from .partition import Partition
    from .partition_directory import PartitionDirectory
    from .wake_ups import WakeUps

ADMIN_CLIENT = "__admin_client"
"""The client id that may write to internal topics, as in Kafka."""


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
        waiting: dict[TopicPartition, WaitingAppend] = {}
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
                waiting[tp] = WaitingAppend(partition, required, acks, now_ms)
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
