"""What a fetch reads: its partitions as they were when it came, and the records within its limits (A4, C6, F5).

Owns: `Asked`, one partition of a fetch, and `Reader`, which reads them in the order asked.

    who asks                 reads up to                       and is told of
    a follower               the log's end
    a consumer               the high watermark
    one of committed data    the last stable offset            aborted transactions among what it reads

The last stable offset moves with the high watermark only: a marker ends its transaction for readers once it is
below it. So whoever waits for either is woken by the same event.

Source: Kafka's `Partition.readRecords`, `UnifiedLog.read`, `ReplicaManager.readFromLog`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, StorageError
from ..ids import Offset
from ..wire.fetch import FetchPartition, FetchRequest
from ..wire.fetch_response import FetchAnswer

if TYPE_CHECKING:
    from ..host.seam import Part
    from .partition import Partition
    from .replica_manager import ReplicaManager

READ_COMMITTED = 1
"""`isolation_level` of Fetch and ListOffsets."""
_NONE = ErrorCode.none


class Asked:
    """One partition of a fetch: what is asked, of which replica, and as of which leader epoch."""

    __slots__ = (
        "anywhere",
        "error",
        "generation",
        "leader_epoch",
        "led",
        "partition",
        "row",
        "sent_high",
        "sent_start",
    )

    def __init__(
        self,
        row: FetchPartition,
        partition: Partition | None,
        error: ErrorCode,
        *,
        anywhere: bool = False,
    ) -> None:
        self.row = row
        self.partition = partition
        self.error = error
        self.anywhere = anywhere
        """A follower may serve it too (KIP-392)."""
        self.led = partition is not None and partition.is_leader
        self.leader_epoch = -1 if partition is None else partition.leader_epoch
        self.generation = -1 if partition is None else partition.generation
        self.sent_high = self.sent_start = -1  # what the follower of a session was last told


class Reader:
    """Reads all partitions of one fetch within its limits, in the order asked."""

    __slots__ = ("_committed", "_from_follower", "_manager", "_max_bytes", "asked")

    def __init__(self, manager: ReplicaManager, asked: list[Asked], fetch: FetchRequest) -> None:
        self.asked = asked
        self._manager = manager
        self._from_follower = fetch.replica_id >= 0
        self._committed = not self._from_follower and fetch.isolation_level == READ_COMMITTED
        limit = fetch.max_bytes
        if not self._from_follower:
            limit = min(limit, manager.config.number("fetch.max.bytes"))
        self._max_bytes = limit

    def upper(self, partition: Partition) -> Offset:
        """Where this reader must stop."""
        if self._from_follower:
            return partition.log_end_offset
        return partition.last_stable_offset if self._committed else partition.high_watermark

    def changed(self) -> bool:
        """True when a partition is no longer led as it was when the fetch came."""
        for one in self.asked:
            partition = one.partition
            if partition is not None and (
                partition.leader_epoch != one.leader_epoch
                or partition.generation != one.generation
                or partition.is_leader is not one.led
                or partition.failed
            ):
                return True
        return False

    def has_data(self) -> bool:
        """True when at least one byte could be read."""
        for one in self.asked:
            partition = one.partition
            if partition is not None and self.upper(partition) > one.row.fetch_offset:
                return True
        return False

    def read(self) -> tuple[list[FetchAnswer], int, bool]:
        """`(answers, bytes of records, whether they must leave at once)`."""
        answers: list[FetchAnswer] = []
        left, total, urgent = self._max_bytes, 0, False
        for one in self.asked:
            answer, size = self._read_one(one, left, first=total == 0)
            answers.append(answer)
            total += size
            left -= size
            urgent = urgent or answer.error != 0 or answer.diverging is not None
        return answers, total, urgent

    def _read_one(self, one: Asked, left: int, *, first: bool) -> tuple[FetchAnswer, int]:
        row, partition = one.row, one.partition
        error = one.error
        if partition is not None and error is _NONE:
            check = partition.check_replica if one.anywhere else partition.check_leader
            error = check(row.current_leader_epoch)
        if partition is None or error is not _NONE:
            return FetchAnswer(row.topic, row.partition, error), 0
        try:
            return self._records(row, partition, left, first=first)
        except KafkaError as refused:
            return FetchAnswer(row.topic, row.partition, refused.code), 0
        except StorageError as failed:
            self._manager.log_failed(partition, failed)
            return FetchAnswer(row.topic, row.partition, ErrorCode.kafka_storage_error), 0

    def _records(
        self, row: FetchPartition, partition: Partition, left: int, *, first: bool
    ) -> tuple[FetchAnswer, int]:
        log, offset, high = partition.log, row.fetch_offset, partition.high_watermark
        start = log.log_start_offset
        diverging = None
        if row.last_fetched_epoch >= 0:
            diverging = partition.diverging(offset, row.last_fetched_epoch)
        if diverging is None and not start <= offset <= log.log_end_offset:
            # a follower's end is not the partition's: nobody is to begin anew for it (KIP-392)
            ahead = offset > start and not partition.is_leader
            raise KafkaError(
                ErrorCode.offset_not_available if ahead else ErrorCode.offset_out_of_range
            )
        parts: Sequence[Part] = ()
        aborted: Sequence[tuple[int, int]] | None = () if self._committed else None
        size = 0
        upper = self.upper(partition)
        if diverging is None and upper > offset and (left > 0 or first):
            limit = max(0, min(row.max_bytes, left))
            data = log.read_to_send(Offset(offset), limit, upper, at_least_one=first)
            parts, size = data.parts, data.size
            if self._committed:
                within = log.aborted_within_read(Offset(offset), upper)
                aborted = [(one.producer_id, one.first_offset) for one in within]
        if self._from_follower:
            stable = high
        elif self._committed:
            stable = upper
        else:
            stable = partition.last_stable_offset
        answer = FetchAnswer(
            row.topic, row.partition, 0, high, stable, start, parts, aborted, -1, diverging
        )
        return answer, size
