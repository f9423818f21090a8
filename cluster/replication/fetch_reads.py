"""What a fetch reads: its partitions as they were when it came, and the records within its limits (A4, C6, F5).

Owns: `RequestedPartition`, one partition of a fetch; `FetchReader`, which reads them in the order of the request. How
far it may read is the rule of `fetch_isolation.py`.

Source: Kafka's `Partition.readRecords`, `UnifiedLog.read`, `ReplicaManager.readFromLog`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, StorageError
from ..ids import NO_NODE, NodeId, Offset, TopicPartition
from ..wire.fetch import FetchPartition, FetchRequest
from ..wire.fetch_response import FetchAnswer
from .fetch_isolation import FetchIsolation, isolation_of

if TYPE_CHECKING:
    from ..host.seam import Part
    from .partition import Partition

PreferredReplica = Callable[["Partition", int], NodeId]
"""The replica that a consumer should read at this offset; -1: this one."""
LogFailed = Callable[["Partition", StorageError], None]
"""Called with a partition whose log could not be read."""
BEFORE_READS = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})
"""Errors that Kafka finds before it reads: such a row has an empty list of aborted transactions, others have none."""
_NONE = ErrorCode.none


class RequestedPartition:
    """One partition of a fetch: the request's row, the replica here, and its role when the fetch came."""

    __slots__ = ("anywhere", "error", "leader_epoch", "leadership_generation", "led", "partition", "row")

    def __init__(
        self, row: FetchPartition, partition: Partition | None, error: ErrorCode, *, anywhere: bool = False
    ) -> None:
        self.row = row
        self.partition = partition
        self.error = error
        self.anywhere = anywhere
        """A follower may serve it too (KIP-392)."""
        self.led = partition is not None and partition.is_leader
        self.leader_epoch = -1 if partition is None else partition.leader_epoch
        self.leadership_generation = -1 if partition is None else partition.leadership_generation

    def role_changed(self) -> bool:
        """True when the replica has another role or epoch than when the fetch came, or its log has failed."""
        partition = self.partition
        return partition is not None and (
            partition.leader_epoch != self.leader_epoch
            or partition.leadership_generation != self.leadership_generation
            or partition.is_leader is not self.led
            or partition.failed
        )


class FetchReader:
    """Reads all partitions of one fetch within its limits, in the order of the request."""

    __slots__ = ("_committed", "_isolation", "_log_failed", "_max_bytes", "_preferred", "requested", "upper_bound")

    def __init__(
        self,
        requested: list[RequestedPartition],
        fetch: FetchRequest,
        max_bytes: int,
        log_failed: LogFailed,
        preferred: PreferredReplica | None = None,
    ) -> None:
        """`preferred`: which replica the reader should read instead of this one; None: always this one."""
        self.requested = requested
        self._preferred = preferred
        self._log_failed = log_failed
        self._isolation = isolation_of(fetch.replica_id, fetch.isolation_level)
        self._committed = self._isolation is FetchIsolation.TXN_COMMITTED
        self.upper_bound = self.read_limit()
        self._max_bytes = max_bytes

    def read_limit(self) -> Callable[[Partition], Offset]:
        """The first offset of a partition that this fetch must not read; each read looks at it once (KAFKA-9835)."""
        return self._isolation.upper_bound

    def changed(self) -> bool:
        """True when the role of a partition is not the same as when the fetch came."""
        return any(requested.role_changed() for requested in self.requested)

    def has_data(self) -> bool:
        """True when at least one byte could be read."""
        for requested in self.requested:
            partition = requested.partition
            if partition is not None and self.upper_bound(partition) > requested.row.fetch_offset:
                return True
        return False

    def keys_with_data(self) -> list[TopicPartition]:
        """The partitions of which at least one byte could be read."""
        return [
            partition.topic_partition
            for requested in self.requested
            if (partition := requested.partition) is not None
            and self.upper_bound(partition) > requested.row.fetch_offset
        ]

    def read(self) -> tuple[list[FetchAnswer], int, bool]:
        """`(answers, bytes of records, whether the answers must leave at once)`."""
        answers: list[FetchAnswer] = []
        left, total, urgent = self._max_bytes, 0, False
        for requested in self.requested:
            answer, size = self._read_partition(requested, left, first=total == 0)
            answers.append(answer)
            total += size
            left -= size
            urgent = urgent or answer.error != 0 or answer.diverging is not None
            urgent = urgent or answer.preferred_read_replica != NO_NODE
        return answers, total, urgent

    def _read_partition(self, requested: RequestedPartition, left: int, *, first: bool) -> tuple[FetchAnswer, int]:
        row, partition = requested.row, requested.partition
        error = requested.error
        if partition is not None and error is _NONE:
            check = partition.check_replica if requested.anywhere else partition.check_leader
            error = check(row.current_leader_epoch)
        if partition is None or error is not _NONE:
            aborted = () if error in BEFORE_READS else None
            return FetchAnswer(row.topic, row.partition, error, aborted=aborted), 0
        try:
            return self._records(row, partition, left, first=first)
        except KafkaError as refused:
            return FetchAnswer(row.topic, row.partition, refused.code), 0
        except StorageError as failed:
            self._log_failed(partition, failed)
            return FetchAnswer(row.topic, row.partition, ErrorCode.kafka_storage_error), 0

    def _records(self, row: FetchPartition, partition: Partition, left: int, *, first: bool) -> tuple[FetchAnswer, int]:
        log, offset, high = partition.log, row.fetch_offset, partition.high_watermark
        start = log.log_start_offset
        diverging = None
        if row.last_fetched_epoch >= 0:
            diverging = partition.diverging(offset, row.last_fetched_epoch)
        if diverging is None and not start <= offset <= log.log_end_offset:
            # A follower's log end is not the partition's: a consumer must not reset its offset because of it (KIP-392).
            ahead = offset > start and not partition.is_leader
            raise KafkaError(ErrorCode.offset_not_available if ahead else ErrorCode.offset_out_of_range)
        parts: Sequence[Part] = ()
        aborted: Sequence[tuple[int, int]] | None = () if self._committed else None
        size = 0
        upper = self.upper_bound(partition)
        preferred = NO_NODE
        if self._preferred is not None and diverging is None:
            preferred = self._preferred(partition, offset)
        if preferred != NO_NODE:
            aborted = None
        elif diverging is None and upper > offset and (left > 0 or first):
            limit = max(0, min(row.max_bytes, left))
            data = log.read_to_send(Offset(offset), limit, upper, at_least_one=first)
            parts, size = data.parts, data.size
            if self._committed:
                within = log.aborted_within_read(Offset(offset), data.first_offset, upper)
                aborted = [(txn.producer_id, txn.first_offset) for txn in within]
        stable = self._stable_offset(partition, high, upper)
        answer = FetchAnswer(
            row.topic,
            row.partition,
            0,
            high,
            stable,
            start,
            parts,
            aborted,
            preferred,
            diverging,
            read_epoch=partition.leader_epoch if partition.is_leader else -1,
        )
        return answer, size

    def _stable_offset(self, partition: Partition, high: Offset, upper: Offset) -> Offset:
        """The last stable offset of the answer; a follower is sent the high watermark, it needs no other."""
        if self._isolation is FetchIsolation.LOG_END:
            return high
        return upper if self._committed else partition.last_stable_offset
