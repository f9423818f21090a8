"""Streams groups of one shard: how they begin, end, and reach the log.

Owns: `StreamsHosting`, the surroundings of the shard's streams groups. A hosted group is a streams group while
`streams` is set; its classic state machine is empty then.

Source: Kafka's GroupMetadataManager (getOrCreateStreamsGroup, maybeDeleteEmptyStreamsGroup).
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..host.seam import Host
from .hosted_group import HostedGroup
from .membership import Group
from .rebalance import GroupLimits
from .records import encode_group_key
from .serial_hosting import HostingShard, SerialHosting
from .streams.group_state import Draft, StreamsData, group_tombstones
from .streams.heartbeats import StreamsRules
from .streams.record_formats import encode_all
from .streams.streams_group import StreamsGroup
from .streams.tapped_tasks import report_tasks, tapped_state


class StreamsHosting(SerialHosting):
    """The surroundings of the streams groups of one shard."""

    def __init__(self, shard: HostingShard, host: Host, rules: StreamsRules, limits: GroupLimits) -> None:
        super().__init__(shard, host, "streams group")
        self._rules = rules
        self._limits = limits

    # ---- how a group begins and ends ---------------------------------------------------------------

    def restore(self, hosted: HostedGroup, data: StreamsData) -> None:
        """The log has a streams group."""
        hosted.streams = StreamsGroup(hosted.group_id, data, self._rules, self)

    def loaded(self, group: StreamsGroup) -> None:
        """The shard is active: every member has a whole session."""
        self._report(group, StreamsData())
        group.start()

    def begin(self, hosted: HostedGroup) -> StreamsGroup:
        """Make the group, which has no member, a streams group; its first operation must call `convert`."""
        assert hosted.streams is None, f"{hosted.group_id} is a streams group"
        hosted.streams = StreamsGroup(hosted.group_id, StreamsData(), self._rules, self)
        return hosted.streams

    def convert(self, hosted: HostedGroup, group: StreamsGroup, draft: Draft) -> None:
        """Add the tombstone of the Empty classic group; nothing once that has happened."""
        classic = hosted.group
        if hosted.streams is not group or not classic.is_used:
            return
        draft.first.append((encode_group_key(hosted.group_id), None))

        def applied() -> None:
            effects = classic.close(ErrorCode.inconsistent_group_protocol)
            hosted.group = Group(hosted.group_id, self._limits)
            self._shard.run(hosted, effects)

        draft.on_applied.append(applied)

    def abandon(self, hosted: HostedGroup, group: StreamsGroup) -> None:
        """After a refused operation: a group that never became a streams group is what it was before."""
        is_new = group.data.epoch == 0 and not group.data.members and not group.is_busy
        if hosted.streams is group and is_new:
            hosted.streams = None
            group.close(ErrorCode.coordinator_not_available)

    def end(self, hosted: HostedGroup) -> None:
        """The group was deleted, or its partition is no longer here."""
        group, hosted.streams = hosted.streams, None
        self.close(group)

    def remove_empty(self, hosted: HostedGroup) -> None:
        """A classic member joins an Empty streams group: the group is classic from now on."""
        group = hosted.streams
        assert group is not None, f"{hosted.group_id} is no streams group"
        assert not group.data.members, f"{hosted.group_id} has members"
        tombstones = encode_all(hosted.group_id, group_tombstones(group.data))
        self.end(hosted)
        self.write_tombstones(hosted.group_id, tombstones)

    # ---- surroundings of a group -------------------------------------------------------------------

    def changed(self, group: StreamsGroup, before: StreamsData) -> None:
        """Report tasks to the tap, and trace a change of state or of the epoch."""
        self._report(group, before)
        self.trace_change(group.group_id, before, group.data)

    def _report(self, group: StreamsGroup, before: StreamsData) -> None:
        tap, shard = self._host.tap, self._shard.shard
        if not tap.enabled:
            return
        epoch = shard.first_leader_epoch
        report_tasks(tap, group.group_id, before, group.data, epoch)
        hosted = self._shard.find(group.group_id)
        if hosted is not None and hosted.streams is group:
            state = tapped_state(group.data, self._rules.session_timeout_ms(group.group_id))
            hosted.tapped_state.report(tap, group.group_id, state, partition=shard.number, leader_epoch=epoch)
