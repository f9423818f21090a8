"""A group on its coordinator: its state machine, classic or of KIP-848, 932 or 1071, and its committed offsets.

Owns: `HostedGroup`. Source: Kafka's GroupMetadata.
"""

from __future__ import annotations

from .consumer.consumer_group import ConsumerGroup
from .consumer.group_state import ConsumerGroupState
from .membership import Group
from .offsets import GroupOffsets
from .share.share_group import ShareGroup
from .share.share_state import ShareGroupState
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
        "share",
        "since_ms",
        "streams",
        "tapped",
        "tapped_state",
        "traced_state",
        "watched",
    )

    def __init__(self, group: Group, since_ms: int | None) -> None:
        self.group = group
        """The classic state machine; it has no member while `consumer`, `share` or `streams` is set."""
        self.consumer: ConsumerGroup | None = None
        """Set while the group is a consumer group (KIP-848)."""
        self.share: ShareGroup | None = None
        """Set while the group is a share group (KIP-932)."""
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
    def is_classic(self) -> bool:
        """True for a group that is of no other type."""
        return self.consumer is None and self.share is None and self.streams is None

    @property
    def is_idle(self) -> bool:
        """True when nothing would be missed: it never had a member, has no offset and no deadline."""
        group = self.group
        untouched = self.is_classic and group.state is GroupState.EMPTY and group.generation == 0
        waits = self.offsets.in_flight or group.next_deadline_ms() is not None
        return untouched and not waits and not len(self.offsets)

    @property
    def is_empty(self) -> bool:
        """True for a group without members, and for none that was deleted."""
        if self.share is not None:
            return self.share.state is ShareGroupState.EMPTY and not self.share.is_busy
        if self.consumer is not None:
            return self.consumer.state is ConsumerGroupState.EMPTY and not self.consumer.is_busy
        if self.streams is not None:
            return self.streams.state is StreamsGroupState.EMPTY and not self.streams.is_busy
        return self.group.state is GroupState.EMPTY
