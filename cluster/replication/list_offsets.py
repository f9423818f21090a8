"""ListOffsets and OffsetForLeaderEpoch: where a log begins and ends, and where an epoch does.

Owns: the two handlers. A consumer's latest offset is the HW, one of committed records' the last stable offset,
refused as OFFSET_NOT_AVAILABLE until a new leader's HW has reached the start of its epoch, so that it is never seen
to go back (KIP-207). A follower (replica id >= 0) is told the log's end.

    timestamp  -1 latest · -2 earliest · -3 the largest timestamp · -4 earliest local · else first at or after

Source: Kafka's `Partition.fetchOffsetForTimestamp`, `KafkaApis.handleListOffsetRequest`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, KafkaError, StorageError
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..wire import messages
from .fetch_reads import READ_COMMITTED

if TYPE_CHECKING:
    from ..wire.request import Request
    from .partition import Partition
    from .replica_manager import ReplicaManager

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
_NOT_AVAILABLE_FROM = 5
"""Clients before this version know LEADER_NOT_AVAILABLE instead (KIP-207)."""

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch); -1 each where unknown."""
_NOTHING: Found = (-1, -1, -1)


class _End(Enum):
    """Where the sight of who asks ends."""

    LOG = "the log's end"
    HIGH_WATERMARK = "the high watermark"
    STABLE = "the last stable offset"

    def of(self, partition: Partition) -> Offset:
        """That offset now."""
        if self is _End.LOG:
            return partition.log_end_offset
        return partition.last_stable_offset if self is _End.STABLE else partition.high_watermark

    def told(self, partition: Partition) -> Offset:
        """The same for an answer; KafkaError(offset_not_available) while a new leader does not know it."""
        if self is not _End.LOG:
            partition.check_latest()
        return self.of(partition)


class Offsets:
    """Handlers that only look offsets up."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._host = manager.host

    async def handle_list_offsets(self, request: Request) -> None:
        """Answer each partition by its timestamp."""
        asked = request.decode()
        s = messages.response(request)
        reader = _reader(asked)
        topics: list[Any] = []
        for topic in asked.topics:
            rows: list[Any] = []
            for row in topic.partitions:
                error = ErrorCode.none
                found = _NOTHING
                try:
                    found = await self._look_up(topic.name, row, reader)
                except KafkaError as refused:
                    error = refused.code
                    if error is ErrorCode.offset_not_available:
                        error = _not_available(request.version)
                rows.append(
                    s.ListOffsetsPartitionResponse(
                        partition_index=row.partition_index,
                        error_code=error,
                        timestamp=found[0],
                        offset=found[1],
                        leader_epoch=found[2],
                    )
                )
            topics.append(s.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(rows)))
        request.respond(s.ListOffsetsResponse(topics=tuple(topics)))

    async def _look_up(self, topic: str, row: Any, reader: _End) -> Found:
        epoch: int = getattr(row, "current_leader_epoch", -1)
        partition = self._leader(TopicPartition(topic, row.partition_index), epoch)
        timestamp: int = row.timestamp
        log = partition.log
        if timestamp == LATEST:
            return -1, reader.told(partition), partition.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            return -1, start, log.epochs.end_offset_for(LeaderEpoch(0), log.log_end_offset)[0]
        if timestamp < MAX_TIMESTAMP or (timestamp == MAX_TIMESTAMP and reader is _End.LOG):
            raise KafkaError(ErrorCode.unsupported_version)
        return await self._by_time(partition, timestamp, epoch, reader)

    async def _by_time(
        self, partition: Partition, timestamp: int, epoch: int, reader: _End
    ) -> Found:
        log = partition.log
        try:
            found: Found | None
            if timestamp == MAX_TIMESTAMP:
                found = await self._host.tasks.run_blocking(log.offset_of_max_timestamp)
            else:
                found = await self._host.tasks.run_blocking(log.offset_for_timestamp, timestamp)
        except (StorageError, OSError) as failed:
            self._manager.log_failed(partition, failed)
            raise KafkaError(ErrorCode.kafka_storage_error) from failed
        error = partition.check_leader(epoch)  # we let others run
        if error is not ErrorCode.none:
            raise KafkaError(error)
        if found is not None and found[1] < reader.of(partition):
            return found
        reader.told(partition)  # KafkaError while it may be there
        return _NOTHING

    def handle_offset_for_leader_epoch(self, request: Request) -> None:
        """Answer each partition with the largest epoch at or below the asked one and its end.

        The end is the log's, not the HW: a consumer compares it with a position that an earlier
        leader's HW allowed, which this one's may not have reached again yet (KIP-279, KIP-320).
        """
        asked = request.decode()
        s = messages.response(request)
        topics: list[Any] = []
        for topic in asked.topics:
            rows: list[Any] = []
            for row in topic.partitions:
                error, epoch, end = ErrorCode.none, -1, -1
                try:
                    tp = TopicPartition(topic.topic, row.partition)
                    partition = self._leader(tp, row.current_leader_epoch)
                    epoch, end = partition.log.epochs.end_offset_for(
                        row.leader_epoch, partition.log_end_offset
                    )
                except KafkaError as refused:
                    error = refused.code
                rows.append(
                    s.EpochEndOffset(
                        partition=row.partition,
                        error_code=error,
                        leader_epoch=epoch,
                        end_offset=end,
                    )
                )
            topics.append(s.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(rows)))
        request.respond(s.OffsetForLeaderEpochResponse(topics=tuple(topics)))

    def _leader(self, tp: TopicPartition, epoch: int) -> Partition:
        partition = self._manager.partition(tp)
        if partition is None:
            raise KafkaError(self._manager.missing(tp))
        error = partition.check_leader(epoch)
        if error is not ErrorCode.none:
            raise KafkaError(error)
        return partition


def _reader(asked: Any) -> _End:
    if asked.replica_id >= 0:
        return _End.LOG
    committed = getattr(asked, "isolation_level", 0) == READ_COMMITTED
    return _End.STABLE if committed else _End.HIGH_WATERMARK


def _not_available(version: int) -> ErrorCode:
    if version >= _NOT_AVAILABLE_FROM:
        return ErrorCode.offset_not_available
    return ErrorCode.leader_not_available
