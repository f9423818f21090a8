"""One share group on its coordinator: the sessions of its members, and its part of `SerialGroup`.

Owns: the deadline of each member, which begins at each accepted heartbeat, and since when partitions are initializing.
A member whose deadline passes is fenced.

Source: Kafka's GroupMetadataManager (scheduleShareGroupSessionTimeout, shareGroupFenceMember).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Protocol

from ...coordinators import KeyValue
from ..serial_group import SerialGroup, SerialSurroundings
from .heartbeats import remove_members
from .limits import ShareRules
from .members import StatePartitions
from .record_formats import encode_share_records
from .share_records import StatePartitionsRecord
from .share_state import ShareDraft, ShareGroupData, ShareGroupState

SharePlan = Callable[[ShareDraft], Callable[[], None]]
"""Plans on a draft, and returns what follows once the records are in the log; KafkaError refuses the operation."""


class ShareDeadline(Enum):
    """What a deadline is for."""

    SESSION = "session"


class ShareSurroundings(SerialSurroundings, Protocol):
    """What a group needs of its shard."""

    def changed(self, group: ShareGroup, before: ShareGroupData) -> None:
        """The state of a group changed: for traces."""
        ...

    def expired(self, group: ShareGroup, clients: Mapping[str, str]) -> None:
        """Members, each with its client id, were removed because their timeouts had passed: for traces."""
        ...


class ShareGroup(SerialGroup[ShareGroupData, ShareDraft, ShareDeadline]):
    """One group."""

    __slots__ = ("_initializing_since_ms", "_surroundings", "rules", "topics_version")

    def __init__(self, group_id: str, data: ShareGroupData, rules: ShareRules, surroundings: ShareSurroundings) -> None:
        super().__init__(group_id, data, surroundings)
        self.rules = rules
        self.topics_version = -1
        """Version of the cluster's topics that the group has checked; -1: none."""
        self._surroundings = surroundings
        self._initializing_since_ms = surroundings.now_ms()

    @property
    def state(self) -> ShareGroupState:
        """The state by Kafka's name."""
        return ShareGroupState.DEAD if self._closed is not None else self.data.state()

    @property
    def retries_initialization(self) -> bool:
        """True when partitions have been initializing for so long that the persister is asked again."""
        return self._around.now_ms() - self._initializing_since_ms >= self.rules.initialize_retry_ms

    def start(self) -> None:
        """The group was loaded: every member has a whole session from now."""
        for member_id in self.data.members:
            self.member_heard(member_id)

    def member_heard(self, member_id: str) -> None:
        """A heartbeat of the member was accepted: its session begins again."""
        if member_id in self.data.members:
            self.set_deadline(ShareDeadline.SESSION, member_id, self.rules.session_timeout_ms(self.group_id))

    def change_partitions(self, change: Callable[[StatePartitions], StatePartitions]) -> SharePlan:
        """A plan that stores which share-partitions have a delivery state, if `change` changes that."""

        def plan(draft: ShareDraft) -> Callable[[], None]:
            before = draft.state.state_partitions()
            after = change(before)
            if after != before:
                draft.add(StatePartitionsRecord(after))
            return lambda: None

        return plan

    def _new_draft(self) -> ShareDraft:
        return ShareDraft(self.data)

    def _encode(self, draft: ShareDraft) -> Sequence[KeyValue]:
        return encode_share_records(self.group_id, draft.records)

    def _applied(self, before: ShareGroupData) -> None:
        if before.shares is not self.data.shares:
            self._initializing_since_ms = self._around.now_ms()
        for member_id in [name for name in before.members if name not in self.data.members]:
            self.clear_deadline(ShareDeadline.SESSION, member_id)
        for member_id in self.data.members:
            if not self.has_deadline(ShareDeadline.SESSION, member_id):
                self.member_heard(member_id)
        self._surroundings.changed(self, before)

    def _fence(self, draft: ShareDraft, expired: Sequence[str]) -> None:
        members = draft.state.members
        clients = {name: members[name].metadata.client_id for name in expired if name in members}
        if clients:
            draft.on_applied.append(partial(self._surroundings.expired, self, clients))
            remove_members(draft, list(clients), self.rules.view)
