"""Loading a shard: replay the log of its partition into its state machine (G3).

Owns: one load. The load waits until the HW has reached the start of the leader's epoch: everything that earlier leaders
acknowledged lies below, and nothing is appended above while the shard loads. Then it reads up to the HW in slices and
lets other tasks run between two slices.

Why it waits: the HW of a new leader may lag behind what its predecessor had acknowledged. A load that stopped there
would serve older state; a load that read to the log's end would serve records that may still be lost. Either way
state that a client has seen (a committed offset, for example) could go back (G4).

A load whose shard was unloaded, or whose replica lost its leadership, stops. Records that cannot be understood are
reported and skipped; a batch that cannot be decoded ends the load with KafkaError(corrupt_message).

Source: Kafka's CoordinatorLoaderImpl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import KafkaError
from ..ids import Offset
from ..purgatory import DelayedOperation, Purgatory
from ..wire.batches import Record, decode_records, headers
from ..wire.records import CONTROL_KEY
from .state_machine import RecordFormatError, TransactionalProducer

if TYPE_CHECKING:
    from ..host.seam import Buffer, Host
    from .replicas import LedPartition
    from .shard import Shard
    from .state_machine import StateMachine

SLICE_BYTES = 1_048_576
HIGH_WATERMARK_WAIT_MS = 1_000
"""How long one wait for the HW lasts before the load checks whether its shard is still current."""
COMMIT_MARKER = 1
"""Type of the control record that commits a transaction; 0 aborts it."""


class ShardLoader:
    """One load of one shard."""

    def __init__(
        self, host: Host, produces: Purgatory, shard: Shard, partition: LedPartition, machine: StateMachine
    ) -> None:
        self._host = host
        self._produces = produces
        self._shard = shard
        self._partition = partition
        self._machine = machine
        self._replayed_to = Offset(-1)

    async def load(self) -> bool:
        """Replay every record up to the HW; False when the shard is no longer current.

        StorageError, OSError and KafkaError as reading the log raises them.
        """
        partition = self._partition
        while partition.high_watermark < partition.epoch_start:
            await self._await_high_watermark()
            if not self._shard.is_current:
                return False
        offset, upper = partition.log.log_start_offset, partition.high_watermark
        assert upper >= partition.epoch_start, f"{partition.topic_partition}: loads up to {upper}"
        while offset < upper:
            data = partition.log.read(offset, SLICE_BYTES, upper, at_least_one=True)
            reached = self._replay_batches(b"".join(data.parts))
            assert reached <= upper, f"{partition.topic_partition}: {reached} is above the HW"
            if reached <= offset:
                break
            offset = reached
            await self._host.tasks.sleep(0)
            if not self._shard.is_current:
                return False
        return True

    async def _await_high_watermark(self) -> None:
        promise = self._host.tasks.promise()
        deadline_ms = self._host.clock.monotonic_ms() + HIGH_WATERMARK_WAIT_MS
        operation = DelayedLoad(deadline_ms, self._shard, self._partition, promise)
        self._produces.try_complete_else_watch(operation, (self._partition.topic_partition,))
        await promise

    def _replay_batches(self, data: Buffer) -> Offset:
        """Replay every batch in `data`; returns the offset after the last record."""
        view = memoryview(data)
        end = Offset(-1)
        for position, size, header in headers(view):
            end = Offset(header.base_offset + header.last_offset_delta + 1)
            records = decode_records(view[position : position + size])
            producer = None
            if header.is_transactional:
                producer = TransactionalProducer(header.producer_id, header.producer_epoch)
            for record in records:
                assert record.offset > self._replayed_to, (
                    f"{self._partition.topic_partition}: offset {record.offset} after {self._replayed_to}"
                )
                self._replayed_to = Offset(record.offset)
                self._replay(record, producer, is_control=header.is_control)
        return end

    def _replay(self, record: Record, producer: TransactionalProducer | None, *, is_control: bool) -> None:
        try:
            if not is_control:
                self._machine.replay(record, producer)
            elif producer is not None:
                commit = _marker_type(record) == COMMIT_MARKER
                self._machine.replay_end_marker(producer, commit=commit)
        except (RecordFormatError, KafkaError) as error:
            topic, partition = self._partition.topic_partition
            self._host.trace.log("warning", f"{topic}-{partition}: record {record.offset} skipped: {error}")


def _marker_type(record: Record) -> int:
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise RecordFormatError("a control record without a type")
    return int(CONTROL_KEY.unpack_from(record.key)[1])


class DelayedLoad(DelayedOperation):
    """Waits until the HW of a new leader reaches the start of its epoch, or its leadership ends."""

    __slots__ = ("_partition", "_shard", "promise")

    def __init__(self, deadline_ms: int, shard: Shard, partition: LedPartition, promise: Any) -> None:
        super().__init__(deadline_ms)
        self._shard = shard
        self._partition = partition
        self.promise = promise

    def try_complete(self) -> bool:
        """Complete once the load can go on or must end."""
        partition = self._partition
        reached = partition.high_watermark >= partition.epoch_start
        if reached or not self._shard.is_current:
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        """Wake the load."""
        if not self.promise.done():
            self.promise.set_result(None)

    def on_expiration(self) -> None:
        """Nothing: the load checks its shard and waits again."""
