"""The share-partitions of one partition of `__share_group_state`: a state machine of the coordinator runtime.

Owns: the states of one shard, and the order of operations. Operations on one share-partition run one after the other,
each on the state that the one before it has written: decide → append with acks=all → apply → respond. An operation that
writes nothing runs in its turn, too. A record whose append timed out is applied, because it is in the log: the next
operation must not be decided without it. (A simulation lost acceptances: a new leader read a state without such a
record, and stored an older start offset behind it.)

Timers: what the log needs no longer is removed, and states that did not change for long are written again, so that the
log can be cut behind them.

Source: Kafka's ShareCoordinatorShard, ShareCoordinatorService (setupRecordPruning, setupSnapshotColdPartitions).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..coordinators import COORDINATOR_ERRORS, CoordinatorWrite, RecordFormatError, Shard, TransactionalProducer
from ..errors import ErrorCode, KafkaError
from ..events.coordinators import ShareStatesLoaded
from ..host.seam import Host, Promise
from ..ids import Offset, TopicPartition
from .records import StoredRecord, decode, encode
from .stored_shares import StoredShares
from .values import SharePartition

if TYPE_CHECKING:
    from ..wire.batches import Record

PRUNE, COLD = "prune", "cold-snapshots"
LOG_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **COORDINATOR_ERRORS,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
T = TypeVar("T")
Decision = Callable[[], tuple[T, Sequence[StoredRecord]]]
"""What an operation does when its turn has come: the result, and the records that must be in the log before it is
answered (none or one). KafkaError: the answer is this error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEnvironment:
    """What all shards of a broker share."""

    host: Host
    updates_per_snapshot: int
    prune_ms: int
    cold_ms: int
    delete_before: Callable[[TopicPartition, Offset], None]
    """Raise the log start offset of a partition that is led here."""


class ShareShard:
    """The share-partitions of one partition in one leadership generation."""

    def __init__(self, shard: Shard, environment: ShareEnvironment) -> None:
        self.shard = shard
        self.shares = StoredShares(environment.updates_per_snapshot)
        self._environment = environment
        self._host = environment.host
        self._queues: dict[SharePartition, deque[Callable[[], None]]] = {}
        """Operations of each share-partition; the first is in progress."""
        self._pruned_to = Offset(0)

    # ---- state machine of the runtime --------------------------------------------------------------

    def replay(self, record: Record, _producer: TransactionalProducer | None, /) -> None:
        """Apply one record; RecordFormatError when it is no record of share-partitions."""
        if record.key is None:
            raise RecordFormatError("a record without key")
        found = decode(record.key, record.value)
        if found is not None:
            self.shares.apply(found, Offset(record.offset))

    def replay_end_marker(self, producer: TransactionalProducer, *, commit: bool) -> None:
        """Nothing: this log has no transactions."""

    def loaded(self, took_ms: int) -> None:
        """Begin the periodic work."""
        self._schedule_pruning()
        self._schedule_cold_snapshots()
        if len(self.shares):
            self._host.trace.emit(
                ShareStatesLoaded(partition=self.shard.number, states=len(self.shares), took_ms=took_ms)
            )

    def unload(self) -> None:
        """Nothing: the runtime fails the write in progress of each queue, which ends the operations behind it."""

    # ---- operations ----------------------------------------------------------------------------------

    def submit(self, share: SharePartition, decide: Decision[T]) -> Promise[T]:
        """Run an operation when those before it on the same share-partition have ended; KafkaError in the promise."""
        promise: Promise[T] = self._host.tasks.promise()
        queue = self._queues.setdefault(share, deque())
        queue.append(lambda: self._run(share, decide, promise))
        if len(queue) == 1:
            queue[0]()
        return promise

    def _run(self, share: SharePartition, decide: Decision[T], promise: Promise[T]) -> None:
        if not self.shard.is_active:
            self._end(share, promise, None, KafkaError(ErrorCode.not_coordinator))
            return
        try:
            result, records = decide()
        except KafkaError as error:
            self._end(share, promise, None, error)
            return
        if not records:
            self._end(share, promise, result, None)
            return
        assert [row[0] for row in records] == [share], f"{records} is not one record of {share}"
        self._append(
            records,
            lambda: self._end(share, promise, result, None),
            lambda error: self._end(share, promise, None, KafkaError(error)),
        )

    def _end(self, share: SharePartition, promise: Promise[Any], result: Any, error: KafkaError | None) -> None:
        if not promise.done():
            if error is None:
                promise.set_result(result)
            else:
                promise.set_exception(error)
        queue = self._queues[share]
        queue.popleft()
        if queue:
            self._host.tasks.call_soon(queue[0])
        else:
            del self._queues[share]

    def _append(
        self, records: Sequence[StoredRecord], committed: Callable[[], None], failed: Callable[[ErrorCode], None]
    ) -> None:
        def apply(base_offset: Offset) -> None:
            for index, record in enumerate(records):
                self.shares.apply(record, Offset(base_offset + index))

        def on_committed(base_offset: Offset) -> None:
            apply(base_offset)
            committed()

        self.shard.write(
            CoordinatorWrite(
                records=[encode(*record) for record in records],
                committed=on_committed,
                failed=failed,
                errors=LOG_ERRORS,
                unacknowledged=apply,
            )
        )

    # ---- periodic work -------------------------------------------------------------------------------

    def _schedule_pruning(self) -> None:
        self.shard.timers.schedule(PRUNE, self._environment.prune_ms, self._prune)

    def _prune(self) -> None:
        """Remove the records that no state needs."""
        self._schedule_pruning()
        offset = self.shares.redundant_below
        if offset > self._pruned_to:
            try:
                self._environment.delete_before(self.shard.topic_partition, offset)
            except KafkaError as error:
                text = f"{self.shard.topic_partition}: records below {offset} stay: {error}"
                self._host.trace.log("warning", text)
            else:
                self._pruned_to = offset

    def _schedule_cold_snapshots(self) -> None:
        self.shard.timers.schedule(COLD, self._environment.cold_ms, self._snapshot_cold)

    def _snapshot_cold(self) -> None:
        """Write the states again that did not change for long, and that no operation changes now."""
        self._schedule_cold_snapshots()
        cold = self.shares.cold(self._host.clock.wall_ms(), self._environment.cold_ms)
        for share, snapshot in cold:
            if share not in self._queues:
                self._rewrite(share, snapshot.snapshot_epoch)

    def _rewrite(self, share: SharePartition, snapshot_epoch: int) -> None:
        def decide() -> tuple[None, Sequence[StoredRecord]]:
            now_ms = self._host.clock.wall_ms()
            cold = dict(self.shares.cold(now_ms, self._environment.cold_ms))
            found = cold.get(share)
            return None, [] if found is None or found.snapshot_epoch != snapshot_epoch else [(share, found)]

        async def rewrite() -> None:
            try:
                await self.submit(share, decide)
            except KafkaError as error:
                self._host.trace.log("warning", f"{share} was not written again: {error}")

        self._host.tasks.spawn(rewrite(), name=f"snapshot-{share.coordinator_key}")
