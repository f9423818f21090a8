"""The state that the replayed records of a partition of `__consumer_offsets` add up to: the newest value of each key.

Owns: `ReplayedGroups`, filled during a load and turned into groups at its end. Invariant (G4): a value is replaced
only by a record with a higher offset, so a committed offset never goes back during a replay.

Offsets of a transaction count once the marker of its producer is replayed; without a marker they stay pending (F6). A
tombstone removes the pending offset of its partition, too.

Source: Kafka's GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

from ..coordinators import RecordFormatError
from ..ids import Offset, TopicPartition
from ..wire.batches import Record
from .consumer.group_records import ConsumerRecord, GroupEpochRecord
from .consumer.group_state import GroupData
from .consumer.record_formats import decode_record
from .hosted_group import HostedGroup
from .membership import Group
from .rebalance import GroupLimits
from .records import (
    ConsumerKey,
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    ShareKey,
    StreamsKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from .share.record_formats import decode_share_record
from .share.share_records import ShareEpochRecord, ShareRecord
from .share.share_state import ShareGroupData
from .stored_group import restore_group
from .streams.group_records import GroupEpochRecord as StreamsEpochRecord
from .streams.group_records import StreamsRecord
from .streams.group_state import StreamsData
from .streams.record_formats import decode_record as decode_streams


class ReplayedGroups:
    """Groups and committed offsets as the log has them; tombstones are applied."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupValue] = {}
        self._offsets: dict[str, dict[TopicPartition, tuple[OffsetValue, Offset]]] = {}
        self._consumer: dict[str, GroupData] = {}
        self._share: dict[str, ShareGroupData] = {}
        self._streams: dict[str, StreamsData] = {}
        self._pending: dict[int, dict[OffsetKey, tuple[OffsetValue, Offset]]] = {}

    def apply(self, record: Record, producer_id: int | None = None) -> None:
        """Apply the next record, of a transaction where a producer is given; RecordFormatError: no record of groups."""
        if record.key is None:
            raise RecordFormatError("a record without key")
        key = decode_key(record.key)
        if isinstance(key, OffsetKey) and producer_id is not None and record.value is not None:
            value = decode_offset_value(record.value)
            self._pending.setdefault(producer_id, {})[key] = (value, Offset(record.offset))
        elif isinstance(key, OffsetKey):
            self._apply_offset(key, record)
        elif isinstance(key, GroupKey):
            self._apply_classic(key.group, record)
        elif isinstance(key, ConsumerKey):
            self._apply_consumer(key, decode_record(key.kind, key.name, record.value))
        elif isinstance(key, ShareKey):
            self._apply_share(key, decode_share_record(key.kind, key.name, record.value))
        elif isinstance(key, StreamsKey):
            self._apply_streams(key, decode_streams(key.kind, key.name, record.value))

    def _apply_classic(self, group_id: str, record: Record) -> None:
        if record.value is None:
            self._groups.pop(group_id, None)
            return
        self._groups[group_id] = decode_group_value(record.value)
        # The later type counts: the tombstones of an Empty consumer group may be missing.
        if group_id in self._consumer and not self._consumer[group_id].members:
            del self._consumer[group_id]
        if group_id in self._streams and not self._streams[group_id].members:
            del self._streams[group_id]

    def _apply_consumer(self, key: ConsumerKey, record: ConsumerRecord) -> None:
        data = self._consumer.get(key.group)
        if data is None and record.value is None:
            return  # compaction removed what the tombstone is for
        data = self._consumer.setdefault(key.group, GroupData())
        data.apply(record)
        if isinstance(record, GroupEpochRecord) and record.value is None:
            del self._consumer[key.group]
        elif isinstance(record, GroupEpochRecord):
            self._groups.pop(key.group, None)

    def _apply_share(self, key: ShareKey, record: ShareRecord) -> None:
        data = self._share.get(key.group)
        if data is None and record.value is None:
            return  # compaction removed what the tombstone is for
        data = self._share.setdefault(key.group, ShareGroupData())
        data.apply(record)
        if isinstance(record, ShareEpochRecord) and record.value is None:
            del self._share[key.group]

    def share_groups(self) -> dict[str, ShareGroupData]:
        """The share groups of KIP-932; `build` has made a hosted group for each."""
        return self._share

    def _apply_streams(self, key: StreamsKey, record: StreamsRecord) -> None:
        data = self._streams.get(key.group)
        if data is None and record.value is None:
            return  # compaction removed what the tombstone is for
        data = self._streams.setdefault(key.group, StreamsData())
        data.apply(record)
        if isinstance(record, StreamsEpochRecord):
            self._groups.pop(key.group, None)
            if record.value is None:
                del self._streams[key.group]

    def streams_groups(self) -> dict[str, StreamsData]:
        """The streams groups of KIP-1071; `build` has made a hosted group for each."""
        return self._streams

    def consumer_groups(self) -> dict[str, GroupData]:
        """The consumer groups of KIP-848; `build` has made a hosted group for each."""
        return self._consumer

    def _apply_offset(self, key: OffsetKey, record: Record) -> None:
        committed = self._offsets.setdefault(key.group, {})
        if record.value is None:
            committed.pop(key.topic_partition, None)
            for rows in self._pending.values():
                rows.pop(key, None)
            return
        value = decode_offset_value(record.value)
        before = committed.get(key.topic_partition)
        assert before is None or before[1] < record.offset, f"{key}: offset {record.offset} replayed after {before}"
        committed[key.topic_partition] = (value, Offset(record.offset))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The marker of a producer: its pending offsets become valid, or are dropped."""
        rows = self._pending.pop(producer_id, {})
        for key, (value, offset) in rows.items() if commit else ():
            committed = self._offsets.setdefault(key.group, {})
            before = committed.get(key.topic_partition)
            if before is None or before[1] < offset:
                committed[key.topic_partition] = (value, offset)

    def build(self, limits: GroupLimits, wall_ms: int) -> dict[str, HostedGroup]:
        """The groups with their offsets, by group id; the sessions of their members are not started."""
        with_offsets = [group_id for group_id, rows in self._offsets.items() if rows]
        pending = [key.group for rows in self._pending.values() for key in rows]
        hosted: dict[str, HostedGroup] = {}
        special = [*self._consumer, *self._share, *self._streams]
        for group_id in dict.fromkeys([*self._groups, *special, *with_offsets, *pending]):
            group = Group(group_id, limits)
            value = self._groups.get(group_id)
            since_ms: int | None = wall_ms
            if value is not None:
                restore_group(group, value)
                since_ms = None if value.since_ms < 0 else value.since_ms
            built = hosted[group_id] = HostedGroup(group, since_ms)
            for tp, (committed, log_offset) in self._offsets.get(group_id, {}).items():
                built.offsets.put(tp, committed, log_offset)
        for producer_id, rows in self._pending.items():
            for key, (offset, log_offset) in rows.items():
                hosted[key.group].offsets.put_pending(producer_id, key.topic_partition, offset, log_offset)
        return hosted
