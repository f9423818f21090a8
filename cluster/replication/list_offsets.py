"""ListOffsets and OffsetForLeaderEpoch: where a log begins and ends, and where a leader epoch ends.

Owns: `OffsetHandlers`. "Latest" is the limit of the reader (`fetch_isolation.py`): for a consumer the high
watermark, for read_committed the last stable offset, for a follower (replica id >= 0) the log end. Consumers get
OFFSET_NOT_AVAILABLE until a new leader's high watermark has reached the start of its epoch, so that no consumer sees
it go back (KIP-207).

    timestamp  -1 latest · -2 earliest · -3 the largest timestamp · -4 earliest local · else first at or after
               -5 latest tiered, -6 earliest pending upload: -1 always, because there is no tiered storage

Source: Kafka's `Partition.fetchOffsetForTimestamp`, `KafkaApis.handleListOffsetRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..authorizer import CLUSTER, Operation, ResourceType
from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Watermarks
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..wire import messages
from ..wire.request import denial
from .fetch_isolation import FetchIsolation, isolation_of

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..wire.request import Fate, Request
    from .partition import Partition
    from .partition_directory import PartitionDirectory

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version of a request that may have this timestamp."""
_NOT_AVAILABLE_FROM = 5
"""Clients before this version know LEADER_NOT_AVAILABLE instead (KIP-207)."""

TimestampOffset = tuple[int, int, int]
"""(timestamp, offset, leader epoch); -1 each where unknown."""
_NOTHING: TimestampOffset = (-1, -1, -1)


def latest_offset(partition: Partition, isolation: FetchIsolation) -> Offset:
    """The latest offset for a reader. KafkaError(offset_not_available) while a new leader does not know it."""
    if isolation is not FetchIsolation.LOG_END:
        partition.check_latest()
    return isolation.upper_bound(partition)


class OffsetHandlers:
    """Handlers that only look offsets up."""

    def __init__(
        self, host: Host, directory: PartitionDirectory, log_failed: Callable[[Partition, BaseException], None]
    ) -> None:
        self._host = host
        self._directory = directory
        self._log_failed = log_failed

    async def handle_list_offsets(self, request: Request) -> None:
        """Answer each partition by its timestamp."""
        body = request.decode()
        s = messages.response(request)
        isolation = isolation_of(body.replica_id, getattr(body, "isolation_level", 0))
        ends: list[Watermarks] = []
        topics: dict[str, list[Any]] = {}
        denied = request.denied(Operation.DESCRIBE, ResourceType.TOPIC, (topic.name for topic in body.topics))
        for (name, index), rows in _by_partition(body.topics).items():
            error, found = ErrorCode.none, _NOTHING
            try:
                if name in denied:
                    raise denial(ResourceType.TOPIC)
                found = await self._look_up(name, rows, isolation, request.version)
                if rows[0].timestamp == LATEST and isolation is not FetchIsolation.LOG_END:
                    committed = isolation is FetchIsolation.TXN_COMMITTED
                    latest = (index, found[2], found[1])
                    ends.append(Watermarks.listed(name, *latest, committed=committed))
            except KafkaError as refused:
                error = refused.code
                if error is ErrorCode.offset_not_available:
                    error = _not_available(request.version)
            topics.setdefault(name, []).append(
                s.ListOffsetsPartitionResponse(
                    partition_index=index, error_code=error, timestamp=found[0], offset=found[1], leader_epoch=found[2]
                )
            )

        def sent(fate: Fate) -> None:
            if fate.arrives:
                self._host.tap.watermarks(request.client_id, ends, invoked_ns=request.received_ns, listed=True)

        response = s.ListOffsetsResponse(
            topics=tuple(s.ListOffsetsTopicResponse(name=name, partitions=tuple(rows)) for name, rows in topics.items())
        )
        request.respond(response, on_send=sent if self._host.tap.enabled and ends else None)

    async def _look_up(
        self, topic: str, rows: Sequence[Any], isolation: FetchIsolation, version: int
    ) -> TimestampOffset:
        """`rows`: what the request has of a partition; more than one is an error."""
        if len(rows) > 1:
            raise KafkaError(ErrorCode.invalid_request)
        (row,) = rows
        timestamp: int = row.timestamp
        if timestamp < EARLIEST and version < _SINCE.get(timestamp, version + 1):
            raise KafkaError(ErrorCode.unsupported_version)
        epoch: int = getattr(row, "current_leader_epoch", -1)
        partition = self._directory.leader_of(TopicPartition(topic, row.partition_index), epoch)
        log = partition.log
        if timestamp == LATEST:
            return -1, latest_offset(partition, isolation), partition.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            return -1, start, log.epochs.end_offset_for(LeaderEpoch(0), log.log_end_offset)[0]
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return _NOTHING
        return await self._by_time(partition, timestamp, epoch, isolation)

    async def _by_time(
        self, partition: Partition, timestamp: int, epoch: int, isolation: FetchIsolation
    ) -> TimestampOffset:
        log = partition.log
        try:
            found: TimestampOffset | None
            if timestamp == MAX_TIMESTAMP:
                found = await self._host.tasks.run_blocking(log.offset_of_max_timestamp)
            else:
                found = await self._host.tasks.run_blocking(log.offset_for_timestamp, timestamp)
        except (StorageError, OSError) as failed:
            self._log_failed(partition, failed)
            raise KafkaError(ErrorCode.kafka_storage_error) from failed
        error = partition.check_leader(epoch)  # it may have changed during the read
        if error is not ErrorCode.none:
            raise KafkaError(error)
        if found is not None and found[1] < isolation.upper_bound(partition):
            return found
        latest_offset(partition, isolation)  # KafkaError while it may be there
        return _NOTHING

    def handle_offset_for_leader_epoch(self, request: Request) -> None:
        """Answer each partition with the largest epoch at or below the requested epoch, and with its end.

        The last epoch ends at the log end, not at the HW: a consumer compares it with a position that an earlier
        leader's HW allowed and that this leader's HW may not have reached again yet (KIP-279, KIP-320).
        """
        body = request.decode()
        s = messages.response(request)
        topics: list[Any] = []
        denied: frozenset[str] = frozenset()
        if not request.unrestricted and not request.allows(Operation.CLUSTER_ACTION, *CLUSTER):
            denied = request.denied(Operation.DESCRIBE, ResourceType.TOPIC, (topic.topic for topic in body.topics))
        for topic in body.topics:
            rows: list[Any] = []
            for row in topic.partitions:
                error, epoch, end = ErrorCode.none, -1, -1
                try:
                    if topic.topic in denied:
                        raise denial(ResourceType.TOPIC)
                    tp = TopicPartition(topic.topic, row.partition)
                    partition = self._directory.leader_of(tp, row.current_leader_epoch)
                    epoch, end = partition.log.epochs.end_offset_for(row.leader_epoch, partition.log_end_offset)
                except KafkaError as refused:
                    error = refused.code
                rows.append(
                    s.EpochEndOffset(partition=row.partition, error_code=error, leader_epoch=epoch, end_offset=end)
                )
            topics.append(s.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(rows)))
        request.respond(s.OffsetForLeaderEpochResponse(topics=tuple(topics)))


def _by_partition(topics: Iterable[Any]) -> dict[tuple[str, int], list[Any]]:
    """The rows of each partition; more than one where the request names it twice."""
    found: dict[tuple[str, int], list[Any]] = {}
    for topic in topics:
        for row in topic.partitions:
            found.setdefault((topic.name, row.partition_index), []).append(row)
    return found


def _not_available(version: int) -> ErrorCode:
    if version >= _NOT_AVAILABLE_FROM:
        return ErrorCode.offset_not_available
    return ErrorCode.leader_not_available
