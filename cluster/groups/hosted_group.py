"""A group on its coordinator: the group's state machine, classic, of KIP-848 or KIP-1071, and its committed offsets.

Owns: `HostedGroup`. Source: Kafka's GroupMetadata.
"""

from __future__ import annotations

from .consumer.consumer_group import ConsumerGroup
from .consumer.group_state import ConsumerGroupState
from .membership import Group
from .offsets import GroupOffsets
from .states import GroupState
from .streams.group_state import StreamsGroupState
from .streams.streams_group import StreamsGroup
from .tapped_members import TappedMembers
from .tapped_states import TappedState


class HostedGroup:
    """One group of a shard."""

    __slots__ = (
        "consumer",
        "group",
        "offsets",
        "since_ms",
        "streams",
        "tapped",
        "tapped_state",
        "traced_state",
        "watched",
    )

    def __init__(self, group: Group, since_ms: int | None) -> None:
        self.group = group
        """The classic state machine; it has no member while `consumer` or `streams` is set."""
        self.consumer: ConsumerGroup | None = None
        """Set while the group is a consumer group (KIP-848)."""
        self.streams: StreamsGroup | None = None
        """Set while the group is a streams group (KIP-1071)."""
        self.offsets = GroupOffsets()
        self.since_ms = since_ms
        """Wall time of the last change of state; None where the stored record is too old to say (value v0, v1)."""
        self.traced_state: GroupState = group.state
        self.tapped = TappedMembers()
        self.tapped_state = TappedState()
        self.watched: dict[str, int] = {}
        """Member -> deadline of the delayed operation that watches its session now (`deadlines`)."""

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.group.group_id

    @property
    def is_idle(self) -> bool:
        """True when nothing would be missed: it never had a member, has no offset and no deadline."""
        group = self.group
        classic = self.consumer is None and self.streams is None
        untouched = classic and group.state is GroupState.EMPTY and group.generation == 0
        waits = self.offsets.in_flight or group.next_deadline_ms() is not None
        return untouched and not waits and not len(self.offsets)

    @property
    def is_empty(self) -> bool:
        """True for a group without members, and for none that was deleted."""
        if self.consumer is not None:
            return self.consumer.state is ConsumerGroupState.EMPTY and not self.consumer.is_busy
        if self.streams is not None:
            return self.streams.state is StreamsGroupState.EMPTY and not self.streams.is_busy
        return self.group.state is GroupState.EMPTY
