"""One streams group on its coordinator: the deadlines of its members, and its part of `SerialGroup`.

Owns: what is known of the group besides its records (`known`), and the deadlines.

| deadline  | of                              | begins                                       | when it passes         |
| --------- | ------------------------------- | -------------------------------------------- | ---------------------- |
| session   | each member                     | at each accepted heartbeat of the member     | the member is fenced   |
| rebalance | a member that must revoke tasks | when it must; ends when its state changes    | the member is fenced   |
| initial   | the group                       | at the first join of a group without members | a target is computed   |

Source: Kafka's GroupMetadataManager (schedule…Timeout, streamsGroupFenceMember, computeDelayedTargetAssignment).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Protocol

from ...coordinators import KeyValue
from ..serial_group import SerialGroup, SerialSurroundings
from .group_state import Draft, StreamsData, StreamsGroupState
from .heartbeats import StreamsRules, Volatile, delayed_target
from .members import MemberState, StreamsMember
from .record_formats import encode_all


class Deadline(Enum):
    """What a deadline is for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    INITIAL = "initial"


THE_GROUP = ""
"""Instead of a member id, for a deadline of the whole group."""


class GroupSurroundings(SerialSurroundings, Protocol):
    """What a group needs of its shard."""

    def changed(self, group: StreamsGroup, before: StreamsData) -> None:
        """The state of a group changed: for traces and taps."""
        ...

    def expired(self, group: StreamsGroup, clients: Mapping[str, str]) -> None:
        """Members, each with its client id, were removed because their timeouts had passed: for traces."""
        ...


class StreamsGroup(SerialGroup[StreamsData, Draft, Deadline]):
    """One group."""

    __slots__ = ("_surroundings", "known", "rules")

    def __init__(self, group_id: str, data: StreamsData, rules: StreamsRules, surroundings: GroupSurroundings) -> None:
        super().__init__(group_id, data, surroundings)
        self.known = Volatile()
        self.rules = rules
        self._surroundings = surroundings

    @property
    def state(self) -> StreamsGroupState:
        """The state by Kafka's name."""
        return StreamsGroupState.DEAD if self._closed is not None else self.data.state()

    def _new_draft(self) -> Draft:
        return Draft(self.data)

    def _encode(self, draft: Draft) -> Sequence[KeyValue]:
        return encode_all(self.group_id, draft.records)

    def _applied(self, before: StreamsData) -> None:
        if not self.data.members:
            self.known.shutdown_by = None
        if self.known.offsets:
            self.known.offsets = {name: row for name, row in self.known.offsets.items() if name in self.data.members}
        self._watch(before)
        self._surroundings.changed(self, before)

    def _fence(self, draft: Draft, expired: Sequence[str]) -> None:
        members = draft.state.members
        clients = {name: members[name].metadata.client_id for name in expired if name in members}
        if clients:
            draft.on_applied.append(partial(self._surroundings.expired, self, clients))
        for name in clients:
            draft.remove_member(name)
        if THE_GROUP in expired:
            # the delay ends now, also where this write fails: the next heartbeat computes the target then
            self.clear_deadline(Deadline.INITIAL, THE_GROUP)
            delayed_target(draft, self.known, self.rules, self.group_id)

    # ---- deadlines -------------------------------------------------------------------------------

    def start(self) -> None:
        """The group was loaded: every member has a whole session from now."""
        for member in self.data.members.values():
            self.member_heard(member)
            self._watch_revocation(member)

    def member_heard(self, member: StreamsMember) -> None:
        """A heartbeat of the member was accepted: its session begins again."""
        self.set_deadline(Deadline.SESSION, member.member_id, self.rules.session_timeout_ms(self.group_id))

    def delays(self, *, was_empty: bool) -> bool:
        """Begin the delay of the first rebalance where the group had no member; True while the delay lasts."""
        delay_ms = self.rules.initial_delay_ms(self.group_id)
        if was_empty and delay_ms > 0 and not self.has_deadline(Deadline.INITIAL, THE_GROUP):
            self.set_deadline(Deadline.INITIAL, THE_GROUP, delay_ms)
        return self.has_deadline(Deadline.INITIAL, THE_GROUP)

    def _watch_revocation(self, member: StreamsMember) -> None:
        """Begin the rebalance timeout of a member that must revoke tasks; end that of any other."""
        if member.current.state is MemberState.UNREVOKED_TASKS:
            self.set_deadline(Deadline.REBALANCE, member.member_id, member.metadata.rebalance_timeout_ms)
        else:
            self.clear_deadline(Deadline.REBALANCE, member.member_id)

    def _watch(self, before: StreamsData) -> None:
        for member_id in before.members.keys() - self.data.members.keys():
            self.clear_deadline(Deadline.SESSION, member_id)
            self.clear_deadline(Deadline.REBALANCE, member_id)
        for member in self.data.members.values():
            old = before.members.get(member.member_id)
            if old is member:
                continue
            if not self.has_deadline(Deadline.SESSION, member.member_id):
                self.member_heard(member)
            if old is None or old.current != member.current:
                self._watch_revocation(member)
