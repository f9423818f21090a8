"""The groups of one partition of `__consumer_offsets`: the state machine that the coordinator runtime hosts.

Owns: the groups of one shard, by group id. Only this module and the request handlers beside it call a group's own
state machine (`membership.Group`). After each call they call `run` (or `heartbeat_received`), which
carries out the effects (responses, records) and lets `deadlines` watch the group's deadlines.

Invariants: a group takes part in requests only while its shard is active; at the unload each group is closed, which
responds NOT_COORDINATOR to every waiting request.

Tokens of waiting requests are callables that take the result.

Source: Kafka's GroupCoordinatorShard and GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..coordinators import CoordinatorWrite, KeyValue, Shard, TransactionalProducer
from ..errors import ErrorCode
from ..events.coordinators import GroupChanged, GroupsLoaded, MemberExpired, OffsetsRemoved
from ..host.seam import Host
from ..ids import Offset, TopicPartition
from .consumer.group_state import group_tombstones
from .consumer.record_formats import encode_all
from .consumer.target_assignments import ConsumerRules
from .consumer_hosting import ConsumerHosting
from .hosted_group import HostedGroup
from .membership import Group
from .membership_values import Effect, JoinResult, SendResponse, SyncResult, WriteGroupMetadata
from .offset_expiration import OffsetRetention, is_removable
from .rebalance import GroupLimits
from .records import OffsetValue, encode_group_key, encode_offset_key
from .replayed_groups import ReplayedGroups
from .share.limits import ShareRules
from .share.record_formats import encode_share_records
from .share.share_state import share_tombstones
from .share_hosting import ShareHosting
from .states import GroupState
from .stored_group import group_record
from .streams.group_state import group_tombstones as streams_tombstones
from .streams.heartbeats import StreamsRules
from .streams.record_formats import encode_all as encode_streams
from .streams_hosting import StreamsHosting
from .tapped_states import classic_state
from .write_errors import GROUP_ERRORS, OFFSET_ERRORS

if TYPE_CHECKING:
    from ..share_coordinator.persister import Persister
    from ..wire.batches import Record
    from .deadlines import GroupDeadlines


CommittedInTransaction = tuple[str, list[tuple[TopicPartition, OffsetValue]]]
"""A group, and its offsets that a transaction made valid."""

EXPIRATION = "offset-expiration"
"""Key of the timer that looks for expired offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEnvironment:
    """What all shards of a broker share."""

    host: Host
    limits: GroupLimits
    consumer_rules: ConsumerRules
    share_rules: ShareRules
    persister: Persister | None
    """Keeps the delivery states of share groups; None: no share group is served."""
    streams_rules: StreamsRules
    retention: OffsetRetention
    deadlines: GroupDeadlines


class GroupShard:
    """The groups of one partition in one leadership generation."""

    def __init__(self, shard: Shard, environment: GroupEnvironment) -> None:
        self.shard = shard
        self._host = environment.host
        self._limits = environment.limits
        self._deadlines = environment.deadlines
        self._retention = environment.retention
        self.consumer_hosting = ConsumerHosting(self, environment.host, environment.consumer_rules, environment.limits)
        """The consumer groups of KIP-848 among the groups."""
        self.share_hosting = ShareHosting(self, environment.host, environment.share_rules, environment.persister)
        """The share groups of KIP-932 among the groups."""
        self.streams_hosting = StreamsHosting(self, environment.host, environment.streams_rules, environment.limits)
        """The streams groups of KIP-1071 among them."""
        self._replayed = ReplayedGroups()
        self._groups: dict[str, HostedGroup] = {}

    def __iter__(self) -> Iterator[HostedGroup]:
        return iter(list(self._groups.values()))

    # ---- state machine of the runtime --------------------------------------------------------------

    def replay(self, record: Record, producer: TransactionalProducer | None, /) -> None:
        """Apply one record; RecordFormatError when it is no record of groups."""
        self._replayed.apply(record, None if producer is None else producer.producer_id)

    def replay_end_marker(self, producer: TransactionalProducer, *, commit: bool) -> None:
        """A transaction ended: its offsets become valid, or are dropped."""
        self._replayed.end_transaction(producer.producer_id, commit=commit)

    def loaded(self, took_ms: int) -> None:
        """Build the groups, and give every member a whole session from now."""
        now_ms = self._host.clock.monotonic_ms()
        self._groups = self._replayed.build(self._limits, self._host.clock.wall_ms())
        for group_id, data in self._replayed.consumer_groups().items():
            self.consumer_hosting.restore(self._groups[group_id], data)
        for group_id, shared in self._replayed.share_groups().items():
            self.share_hosting.restore(self._groups[group_id], shared)
        for group_id, streams in self._replayed.streams_groups().items():
            self.streams_hosting.restore(self._groups[group_id], streams)
        self._replayed = ReplayedGroups()
        for hosted in self:
            self.run(hosted, hosted.group.start_sessions(now_ms))
            if hosted.consumer is not None:
                self.consumer_hosting.loaded(hosted.consumer)
            if hosted.share is not None:
                hosted.share.start()
            if hosted.streams is not None:
                self.streams_hosting.loaded(hosted.streams)
        self._schedule_expiration()
        if self._groups:
            self._host.trace.emit(GroupsLoaded(partition=self.shard.number, groups=len(self._groups), took_ms=took_ms))

    def unload(self) -> None:
        """Close every group."""
        for hosted in self:
            self._end(hosted, ErrorCode.not_coordinator)

    def _end(self, hosted: HostedGroup, error: ErrorCode) -> None:
        """Close the group, of whatever type it is."""
        self.consumer_hosting.end(hosted)
        self.share_hosting.end(hosted)
        self.streams_hosting.end(hosted)
        self.run(hosted, hosted.group.close(error))

    # ---- groups ------------------------------------------------------------------------------------

    def find(self, group_id: str) -> HostedGroup | None:
        """The group, if there is one."""
        return self._groups.get(group_id)

    def create(self, group_id: str) -> HostedGroup:
        """Create an Empty group."""
        assert group_id not in self._groups, f"group {group_id} exists"
        hosted = HostedGroup(Group(group_id, self._limits), self._host.clock.wall_ms())
        self._groups[group_id] = hosted
        return hosted

    def discard_if_idle(self, hosted: HostedGroup) -> None:
        """Remove a group that was created for a refused request."""
        if hosted.is_idle and self._groups.get(hosted.group_id) is hosted:
            del self._groups[hosted.group_id]

    def remove(self, hosted: HostedGroup) -> None:
        """Remove a group that is deleted."""
        assert hosted.group.state is GroupState.EMPTY, (
            f"group {hosted.group_id} is deleted while it is {hosted.group.state.value}"
        )
        self._end(hosted, ErrorCode.group_id_not_found)
        if self._groups.get(hosted.group_id) is hosted:
            del self._groups[hosted.group_id]

    def end_transaction(self, producer_id: int, *, commit: bool) -> list[CommittedInTransaction]:
        """The marker of a transaction is committed; returns the offsets that became valid, by group.

        As in Kafka, a group that only the offsets of an aborted transaction made stays until the next look for expired
        offsets.
        """
        ended: list[CommittedInTransaction] = []
        for hosted in self:
            offsets = hosted.offsets.end_transaction(producer_id, commit=commit)
            if offsets:
                ended.append((hosted.group_id, offsets))
        return ended

    # ---- expiration of offsets ---------------------------------------------------------------------

    def _schedule_expiration(self) -> None:
        self.shard.timers.schedule(EXPIRATION, self._retention.check_interval_ms, self._expire_offsets)

    def _expire_offsets(self) -> None:
        """Write tombstones for expired offsets and removable groups, and schedule the next check."""
        self._schedule_expiration()
        wall_ms = self._host.clock.wall_ms()
        for hosted in self:
            expired = self._retention.expired_offsets(hosted, wall_ms)
            removable = is_removable(hosted, len(expired))
            if hosted.is_idle:
                self.discard_if_idle(hosted)
            elif expired or removable:
                self._write_tombstones(hosted, expired, and_group=removable)

    def delete_offsets(self, partitions: Collection[TopicPartition]) -> None:
        """Write tombstones for the offsets of partitions that were deleted: a topic of that name begins at 0.

        Source: Kafka's `OffsetMetadataManager.onPartitionsDeleted`.
        """
        for hosted in self:
            gone = [tp for tp in partitions if hosted.offsets.has_record(tp)]
            if gone:
                self._write_tombstones(hosted, gone, and_group=False)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Forget the share-partitions of topics that were deleted."""
        for hosted in self:
            if hosted.share is not None:
                self.share_hosting.topics_deleted(hosted.share, names)

    def _write_tombstones(self, hosted: HostedGroup, gone: Sequence[TopicPartition], *, and_group: bool) -> None:
        group_id, kind = hosted.group_id, (hosted.group.generation, hosted.consumer, hosted.streams)

        def on_result(error: ErrorCode, base_offset: Offset) -> None:
            if error is not ErrorCode.none:
                text = f"group {group_id}: {len(gone)} offsets were not removed: {error.name}"
                self._host.trace.log("warning", text)
                return
            for delta, tp in enumerate(gone):
                hosted.offsets.remove(tp, Offset(base_offset + delta))
            same_group = (hosted.group.generation, hosted.consumer, hosted.streams) == kind
            unchanged = same_group and is_removable(hosted, 0)
            if and_group and unchanged and self.find(group_id) is hosted:
                self.remove(hosted)
            self._host.trace.emit(OffsetsRemoved(group=group_id, partition=self.shard.number, offsets=len(gone)))

        tombstones: list[KeyValue] = [(encode_offset_key(group_id, tp), None) for tp in gone]
        if and_group:
            tombstones.extend(metadata_tombstones(hosted))
        self.write(tombstones, on_result)

    # ---- running a group's state machine -------------------------------------------------------------

    def run(self, hosted: HostedGroup, effects: Iterable[Effect]) -> None:
        """Carry out the effects that the machine returned, then watch its present deadlines.

        The tap has the owners of partitions before a member receives its assignment.
        """
        if hosted.group.state is not hosted.traced_state:
            self._trace_state(hosted)
        if self._host.tap.enabled:
            self._report(hosted)
        for effect in effects:
            if isinstance(effect, SendResponse):
                _reply(effect.token, effect.result)
            else:
                self._write_metadata(hosted, effect)
        self._deadlines.watch(self.shard.number, hosted, partial(self._tick, hosted))

    def _report(self, hosted: HostedGroup) -> None:
        tap, epoch, group = self._host.tap, self.shard.first_leader_epoch, hosted.group
        hosted.tapped.report(tap, group, epoch)
        # a shard that is not active has given the group, with its members, to another broker
        if hosted.is_classic and self.shard.is_active:
            hosted.tapped_state.report(
                tap, group.group_id, classic_state(group), partition=self.shard.number, leader_epoch=epoch
            )

    def heartbeat_received(self, hosted: HostedGroup, member_id: str) -> None:
        """After a heartbeat of one member: watch that member's new deadline."""
        due = partial(self._tick, hosted)
        self._deadlines.heartbeat_received(self.shard.number, hosted, member_id, due)

    def _tick(self, hosted: HostedGroup) -> None:
        if self.shard.is_active and hosted.consumer is None:
            members = {member.member_id: member.client_id for member in hosted.group.members}
            effects = hosted.group.tick(self._host.clock.monotonic_ms())
            for member in hosted.group.members:
                members.pop(member.member_id, None)
            for member_id, client_id in members.items():
                self.trace_expired(hosted.group_id, member_id, client_id)
            self.run(hosted, effects)

    def trace_expired(self, group_id: str, member_id: str, client_id: str) -> None:
        """A member lost its membership because its session or the rebalance had timed out: it did not leave."""
        self._host.trace.emit(
            MemberExpired(group=group_id, partition=self.shard.number, member=member_id, client=client_id)
        )

    def _trace_state(self, hosted: HostedGroup) -> None:
        group = hosted.group
        hosted.traced_state = group.state
        hosted.since_ms = self._host.clock.wall_ms()
        self._host.trace.emit(
            GroupChanged(
                group=group.group_id,
                partition=self.shard.number,
                state=group.state.value,
                generation=group.generation,
                members=len(group.members),
            )
        )

    # ---- writes --------------------------------------------------------------------------------------

    def write(
        self,
        records: Sequence[KeyValue],
        on_result: Callable[[ErrorCode, Offset], None],
        errors: Mapping[ErrorCode, ErrorCode] = OFFSET_ERRORS,
    ) -> None:
        """Append records; `on_result(error for the client, offset of the first record)` follows once."""
        self.shard.write(
            CoordinatorWrite(
                records=records,
                committed=partial(on_result, ErrorCode.none),
                failed=lambda error: on_result(error, Offset(-1)),
                errors=errors,
            )
        )

    def _write_metadata(self, hosted: HostedGroup, effect: WriteGroupMetadata) -> None:
        def on_result(error: ErrorCode, _base_offset: Offset) -> None:
            if error is not ErrorCode.none:
                name = f"group {hosted.group_id} generation {effect.generation}"
                self._host.trace.log("warning", f"{name} was not stored: {error.name}")
            now_ms = self._host.clock.monotonic_ms()
            self.run(hosted, hosted.group.metadata_written(effect, error, now_ms))

        record = group_record(hosted.group, effect, hosted.since_ms)
        self.write([record], on_result, GROUP_ERRORS)


def metadata_tombstones(hosted: HostedGroup) -> Sequence[KeyValue]:
    """Tombstones of everything that the log has of the group besides its offsets."""
    if hosted.consumer is not None:
        return encode_all(hosted.group_id, group_tombstones(hosted.consumer.data))
    if hosted.share is not None:
        return encode_share_records(hosted.group_id, share_tombstones(hosted.share.data))
    if hosted.streams is not None:
        return encode_streams(hosted.group_id, streams_tombstones(hosted.streams.data))
    return [(encode_group_key(hosted.group_id), None)]


def _reply(token: object, result: JoinResult | SyncResult) -> None:
    assert callable(token), f"token {token!r} is not callable"
    token(result)
