"""Becoming coordinator: rebuild the groups of one offsets partition from its log (G3).

Owns: one load. It waits until the HW has reached the start of the leader's epoch: everything that
earlier leaders acknowledged lies below, and what lies above would be ours, for nothing is appended
while a shard loads. Then it reads up to the HW in slices, letting others run in between.

Why wait: a new leader's HW may lag behind what its predecessor had acknowledged. A load that stopped
there would serve an older commit; one that read to the log's end would serve what may still be lost.
Either way a committed offset could go back (G4).

A load whose shard was replaced or dropped meanwhile stops and leaves no trace. Records that cannot be
understood are reported and skipped. Source: Kafka's CoordinatorLoaderImpl, doLoadGroupsAndOffsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import KafkaError
from ..ids import Offset, TopicPartition
from ..purgatory import DelayedOperation, Purgatory
from ..wire.batches import Record, decode_records, headers
from .members import Member, Protocol
from .membership import Group
from .rebalance import GroupLimits
from .records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    RecordFormatError,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from .shards import HeldGroup, Shard

if TYPE_CHECKING:
    from ..host.seam import Buffer, Host
    from ..replication import Partition

SLICE_BYTES = 1_048_576
HIGH_WATERMARK_WAIT_MS = 1_000
"""How long one wait for the HW lasts before the load looks whether it is still wanted."""


class LoadedRecords:
    """What a log of keys and values comes to: the newest value of each key, tombstones applied."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupValue] = {}
        self.offsets: dict[str, dict[TopicPartition, tuple[OffsetValue, Offset]]] = {}

    def apply(self, record: Record) -> None:
        """Take the next record; RecordFormatError when it is none of ours."""
        if record.key is None:
            raise RecordFormatError("a record without key")
        key = decode_key(record.key)
        if isinstance(key, OffsetKey):
            committed = self.offsets.setdefault(key.group, {})
            if record.value is None:
                committed.pop(key.topic_partition, None)
            else:
                value = decode_offset_value(record.value)
                committed[key.topic_partition] = (value, Offset(record.offset))
        elif isinstance(key, GroupKey):
            if record.value is None:
                self.groups.pop(key.group, None)
            else:
                self.groups[key.group] = decode_group_value(record.value)

    def build(self, limits: GroupLimits, wall_ms: int) -> dict[str, HeldGroup]:
        """The groups, with their offsets; sessions are not started."""
        held: dict[str, HeldGroup] = {}
        for group_id in self.groups.keys() | {name for name, rows in self.offsets.items() if rows}:
            group = Group(group_id, limits)
            value = self.groups.get(group_id)
            since_ms = wall_ms
            if value is not None:
                _restore(group, value)
                since_ms = value.since_ms
            one = held[group_id] = HeldGroup(group, since_ms)
            for tp, (committed, log_offset) in self.offsets.get(group_id, {}).items():
                one.offsets.put(tp, committed, log_offset)
        return held


def _restore(group: Group, value: GroupValue) -> None:
    protocol = value.protocol or ""
    group.restore(
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol_name=value.protocol,
        leader=value.leader,
        members=[
            Member(
                member_id=row.member_id,
                group_instance_id=row.group_instance_id,
                client_id=row.client_id,
                client_host=row.client_host,
                rebalance_timeout_ms=row.rebalance_timeout_ms,
                session_timeout_ms=row.session_timeout_ms,
                protocols=(Protocol(protocol, row.subscription),),
                assignment=row.assignment,
            )
            for row in value.members
        ],
    )


async def load(
    host: Host, produces: Purgatory, shard: Shard, partition: Partition, limits: GroupLimits
) -> dict[str, HeldGroup] | None:
    """Read the groups of `shard`; None when it is no longer wanted. StorageError as the log raises it.

    `produces` is the purgatory of delayed produces: its keys wake whenever a partition's HW moves.
    """
    while partition.high_watermark < partition.epoch_start:
        await _high_watermark_event(host, produces, shard, partition)
        if not _wanted(shard, partition):
            return None
    found = LoadedRecords()
    log = partition.log
    offset, upper = log.log_start_offset, partition.high_watermark
    while offset < upper:
        data = log.read(offset, SLICE_BYTES, upper, at_least_one=True)
        reached = _apply_batches(host, shard, b"".join(data.parts), found)
        if reached <= offset:
            break
        offset = reached
        await host.tasks.sleep(0)
        if not _wanted(shard, partition):
            return None
    return found.build(limits, host.clock.wall_ms())


class _HighWatermarkReached(DelayedOperation):
    """Waits for the HW of a new leader to reach its epoch's start, or for the end of its leadership."""

    __slots__ = ("_partition", "_shard", "promise")

    def __init__(self, deadline_ms: int, shard: Shard, partition: Partition, promise: Any) -> None:
        super().__init__(deadline_ms)
        self._shard = shard
        self._partition = partition
        self.promise = promise

    def try_complete(self) -> bool:
        """Complete once there is something to do for the load."""
        partition = self._partition
        reached = partition.high_watermark >= partition.epoch_start
        if reached or not _wanted(self._shard, partition):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        """Wake the load."""
        if not self.promise.done():
            self.promise.set_result(None)

    def on_expiration(self) -> None:
        """Nothing more than a look: the load waits again."""


async def _high_watermark_event(
    host: Host, produces: Purgatory, shard: Shard, partition: Partition
) -> None:
    promise = host.tasks.promise()
    deadline_ms = host.clock.monotonic_ms() + HIGH_WATERMARK_WAIT_MS
    operation = _HighWatermarkReached(deadline_ms, shard, partition, promise)
    produces.try_complete_else_watch(operation, (partition.topic_partition,))
    await promise


def _wanted(shard: Shard, partition: Partition) -> bool:
    return shard.live and partition.is_leader and partition.generation == shard.generation


def _apply_batches(host: Host, shard: Shard, part: Buffer, found: LoadedRecords) -> Offset:
    """Apply every batch of `part`; the offset behind the last one."""
    view = memoryview(part)
    end = Offset(-1)
    for position, size, header in headers(view):
        end = Offset(header.base_offset + header.last_offset_delta + 1)
        if header.is_control:
            continue
        for record in decode_records(view[position : position + size]):
            try:
                found.apply(record)
            except (RecordFormatError, KafkaError) as error:
                host.trace.log(
                    "warning",
                    f"__consumer_offsets-{shard.partition}: record {record.offset} skipped: {error}",
                )
    return end
