"""Consumer groups of one shard: how they begin, change their type, and reach the log.

Owns: `ConsumerHosting`, the surroundings of the shard's consumer groups. A hosted group is classic unless `consumer` is
set; while it is set the classic state machine is empty, except during the write that converts the group.

Source: Kafka's GroupMetadataManager (getOrMaybeCreateConsumerGroup, convertToConsumerGroup, convertToClassicGroup).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..errors import ErrorCode
from ..host.seam import Host
from .consumer.consumer_group import ConsumerGroup
from .consumer.conversions import classic_group, may_downgrade, records_of_classic
from .consumer.group_state import Draft, GroupData, group_tombstones
from .consumer.record_formats import encode_all
from .consumer.tapped_owners import report_owners
from .consumer.target_assignments import ConsumerRules
from .hosted_group import HostedGroup
from .membership import Group
from .membership_values import WriteGroupMetadata
from .records import encode_group_key
from .serial_hosting import HostingShard, SerialHosting
from .stored_group import group_record
from .tapped_members import TappedMembers
from .tapped_states import consumer_state

if TYPE_CHECKING:
    from .rebalance import GroupLimits


class ConsumerHosting(SerialHosting):
    """The surroundings of the consumer groups of one shard."""

    def __init__(self, shard: HostingShard, host: Host, rules: ConsumerRules, limits: GroupLimits) -> None:
        super().__init__(shard, host, "consumer group")
        self._rules = rules
        self._limits = limits

    # ---- how a consumer group begins ---------------------------------------------------------------

    def restore(self, hosted: HostedGroup, data: GroupData) -> None:
        """The log has a consumer group."""
        hosted.consumer = ConsumerGroup(hosted.group_id, data, self._rules, self)

    def loaded(self, group: ConsumerGroup) -> None:
        """The shard is active: the tap has the owners that the log has, and every member has a whole session."""
        self._report(group, GroupData())
        group.start()

    def begin(self, hosted: HostedGroup) -> ConsumerGroup:
        """Make the group a consumer group; its first operation must call `convert`."""
        assert hosted.consumer is None, f"{hosted.group_id} is a consumer group"
        group = ConsumerGroup(hosted.group_id, GroupData(), self._rules, self)
        hosted.consumer = group
        return group

    def convert(self, hosted: HostedGroup, group: ConsumerGroup, draft: Draft) -> None:
        """Add the records that turn the classic group into `group`; nothing once that has happened."""
        classic = hosted.group
        if hosted.consumer is not group or not classic.is_used:
            return
        draft.first.append((encode_group_key(hosted.group_id), None))
        draft.add(*records_of_classic(classic, self._rules.view) if classic.members else ())

        def applied() -> None:
            effects = classic.close(ErrorCode.rebalance_in_progress)
            hosted.group = Group(hosted.group_id, self._limits)
            hosted.tapped = TappedMembers()  # the members go on in the consumer group
            self._shard.run(hosted, effects)
            group.start()

        draft.on_applied.append(applied)

    def abandon(self, hosted: HostedGroup, group: ConsumerGroup) -> None:
        """After a refused operation: a group that never became a consumer group is what it was before."""
        is_new = group.data.epoch == 0 and not group.data.members and not group.is_busy
        if hosted.consumer is group and is_new:
            hosted.consumer = None
            group.close(ErrorCode.coordinator_not_available)
            self._shard.run(hosted, ())

    def end(self, hosted: HostedGroup) -> None:
        """The consumer group was deleted, or its partition is no longer here."""
        group, hosted.consumer = hosted.consumer, None
        self.close(group)

    def remove_empty(self, hosted: HostedGroup) -> None:
        """A classic member joins an Empty consumer group: the group is classic from now on."""
        group = hosted.consumer
        assert group is not None, f"{hosted.group_id} is a classic group"
        assert not group.data.members, f"{hosted.group_id} has members"
        tombstones = encode_all(hosted.group_id, group_tombstones(group.data))
        self.end(hosted)
        self.write_tombstones(hosted.group_id, tombstones)

    # ---- surroundings of a group -------------------------------------------------------------------

    def changed(self, group: ConsumerGroup, before: GroupData) -> None:
        """Report owners of partitions to the tap, and trace a change of state or of the epoch."""
        self._report(group, before)
        self.trace_change(group.group_id, before, group.data)

    def _report(self, group: ConsumerGroup, before: GroupData) -> None:
        tap, shard = self._host.tap, self._shard.shard
        if not tap.enabled:
            return
        epoch = shard.first_leader_epoch
        report_owners(tap, group.group_id, before, group.data, self._rules.view, epoch)
        hosted = self._shard.find(group.group_id)
        if hosted is not None and hosted.consumer is group:
            state = consumer_state(group.data, group.rules.limits.session_timeout_ms)
            hosted.tapped_state.report(tap, group.group_id, state, partition=shard.number, leader_epoch=epoch)

    def downgrade(self, group: ConsumerGroup, draft: Draft, *, rebalance: bool) -> bool:
        """Turn the group into a classic group if it may become one; adds what follows to `draft`."""
        hosted = self._shard.find(group.group_id)
        if hosted is None or not may_downgrade(draft.state, self._rules.limits):
            return False
        # The generation that the members know; the rebalance raises it.
        generation = group.data.epoch if rebalance else draft.state.epoch
        classic = classic_group(group.group_id, draft.state, generation, self._rules, self._limits)
        draft.replace_records(group_tombstones(group.data))
        assignments = classic.current_assignments()
        write = WriteGroupMetadata(generation=classic.generation, assignments=assignments)
        draft.last.append(group_record(classic, write, self._host.clock.wall_ms()))
        draft.on_applied.append(partial(self._install, hosted, group, classic, rebalance))
        return True

    def _install(self, hosted: HostedGroup, group: ConsumerGroup, classic: Group, rebalance: bool) -> None:
        hosted.consumer, hosted.group = None, classic
        hosted.since_ms = self._host.clock.wall_ms()
        now_ms = self.now_ms()
        hosted.tapped.adopt(classic)
        effects = classic.start_sessions(now_ms)
        if rebalance:
            effects.extend(classic.rebalance(now_ms))
        self._shard.run(hosted, effects)
        group.close(ErrorCode.coordinator_not_available)
