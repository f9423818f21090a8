"""DeleteRecords (API 21): records below an offset are gone, on every replica, before the client gets its answer (B7).

Owns: `DeleteRecordsHandler` and `DelayedDeleteRecords` in its purgatory. The leader raises its log start at once.
Followers learn it from their next fetch response and state theirs in the fetch after that. The low watermark of a
partition is the smallest log start of its live replicas; the answer waits until that has reached the requested
offset, or for `timeout_ms`. Segments below the log start are deleted by the next retention check, and the log start
survives a restart in `log-start-offset-checkpoint`.

    offset -1                                    the high watermark
    above the high watermark, or below -1        offset_out_of_range
    an internal topic                            invalid_topic_exception
    a topic whose cleanup.policy lacks `delete`  policy_violation
    leadership lost while it waits               not_leader_or_follower
    the deadline                                 request_timed_out: the leader has deleted, a replica lags

Source: Kafka's `ReplicaManager.deleteRecords`, `DelayedDeleteRecords`, `Partition.deleteRecordsOnLeader`; KIP-107.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError, StorageError
from ..ids import NO_OFFSET, Offset, TopicPartition
from ..internal_topics import INTERNAL_TOPICS
from ..purgatory import DelayedOperation
from ..wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..host.seam import Host
    from ..wire.request import Request
    from .partition import Partition
    from .partition_directory import PartitionDirectory
    from .wake_ups import WakeUps

VERSION_LOW, VERSION_HIGH = 0, 2
TO_HIGH_WATERMARK = -1


@dataclass(slots=True, kw_only=True)
class DeleteRecordsResult:
    """The result of one partition; its low watermark has to reach `required`."""

    error: ErrorCode
    low_watermark: Offset = NO_OFFSET
    required: Offset = NO_OFFSET
    leadership_generation: int = 0


Results = dict[TopicPartition, DeleteRecordsResult]


class DelayedDeleteRecords(DelayedOperation):
    """Deletions that a live replica has not followed yet (E5)."""

    __slots__ = ("_directory", "_done", "_results", "_waiting")

    def __init__(
        self, directory: PartitionDirectory, deadline_ms: int, results: Results, done: Callable[[Results], None]
    ) -> None:
        super().__init__(deadline_ms)
        self._directory = directory
        self._results = results
        self._done = done
        self._waiting = {tp: row for tp, row in results.items() if row.error is ErrorCode.none}

    def try_complete(self) -> bool:
        """Take in the results that are known; complete with the last one."""
        for tp, result in tuple(self._waiting.items()):
            error, low = self._low_watermark(tp, result)
            if error is ErrorCode.none and low < result.required:
                continue
            del self._waiting[tp]
            result.error, result.low_watermark = error, low
        return not self._waiting and self.force_complete()

    def _low_watermark(self, tp: TopicPartition, result: DeleteRecordsResult) -> tuple[ErrorCode, Offset]:
        partition = self._directory.partition(tp)
        if partition is None:
            return self._directory.missing(tp), NO_OFFSET
        error = partition.check_leader()
        if error is ErrorCode.none and partition.leadership_generation != result.leadership_generation:
            error = ErrorCode.not_leader_or_follower
        return error, NO_OFFSET if error is not ErrorCode.none else partition.low_watermark

    def on_complete(self) -> None:
        """Answer; partitions without a result have timed out."""
        for result in self._waiting.values():
            result.error, result.low_watermark = ErrorCode.request_timed_out, NO_OFFSET
        self._done(self._results)


class DeleteRecordsHandler:
    """Deletes records of partitions that are led here."""

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

    def handle(self, request: Request) -> None:
        """Delete in partitions led here; answer when the live replicas have followed."""
        body = request.decode()
        asked: dict[TopicPartition, int] = {  # as in Kafka, the last row of a partition counts
            TopicPartition(topic.name, row.partition_index): row.offset
            for topic in body.topics
            for row in topic.partitions
        }
        denied = request.denied(Operation.DELETE, ResourceType.TOPIC, (tp.topic for tp in asked))
        failed = ErrorCode.topic_authorization_failed
        results = {
            tp: DeleteRecordsResult(error=failed) if tp.topic in denied else self._delete(tp, offset)
            for tp, offset in asked.items()
        }
        timeout_ms = max(0, messages.to_milliseconds(body.timeout))
        operation = DelayedDeleteRecords(
            self._directory, self._host.clock.monotonic_ms() + timeout_ms, results, lambda done: _respond(request, done)
        )
        self._wake_ups.deletions.try_complete_else_watch(operation, tuple(results))

    def _delete(self, tp: TopicPartition, offset: int) -> DeleteRecordsResult:
        if tp.topic in INTERNAL_TOPICS:
            return DeleteRecordsResult(error=ErrorCode.invalid_topic_exception)
        partition = self._directory.partition(tp)
        if partition is None:
            return DeleteRecordsResult(error=self._directory.missing(tp))
        try:
            required = delete_before(partition, offset)
        except KafkaError as refused:
            return DeleteRecordsResult(error=refused.code)
        except (StorageError, OSError) as failed:
            self._log_failed(partition, failed)
            return DeleteRecordsResult(error=ErrorCode.kafka_storage_error)
        return DeleteRecordsResult(
            error=ErrorCode.none, required=required, leadership_generation=partition.leadership_generation
        )


def delete_before(partition: Partition, offset: int) -> Offset:
    """Raise a leader's log start to `offset` (-1: to its high watermark) and return that offset. KafkaError."""
    error = partition.check_leader()
    if error is not ErrorCode.none:
        raise KafkaError(error)
    log = partition.log
    if "delete" not in log.config.text("cleanup.policy"):
        raise KafkaError(
            ErrorCode.policy_violation,
            f"records of {partition.topic_partition} are not deleted: its cleanup.policy lacks delete",
        )
    required = partition.high_watermark if offset == TO_HIGH_WATERMARK else Offset(offset)
    if not 0 <= required <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"{partition.topic_partition}: offset {offset} is above the high watermark "
            f"{partition.high_watermark}, or negative",
        )
    log.increment_log_start_offset(required)
    return required


def _respond(request: Request, results: Results) -> None:
    s = messages.response(request)
    topics: dict[str, list[Any]] = {}
    for tp, result in results.items():
        topics.setdefault(tp.topic, []).append(
            s.DeleteRecordsPartitionResult(
                partition_index=tp.partition, low_watermark=result.low_watermark, error_code=result.error
            )
        )
    request.respond(
        s.DeleteRecordsResponse(
            topics=tuple(s.DeleteRecordsTopicResult(name=name, partitions=tuple(rows)) for name, rows in topics.items())
        )
    )
