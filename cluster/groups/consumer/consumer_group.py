"""One consumer group on its coordinator: the deadlines of its members, and its part of `SerialGroup`.

When a deadline passes, the member is fenced:

| deadline  | of                                    | begins                                    |
| --------- | ------------------------------------- | ----------------------------------------- |
| session   | each member                           | at each accepted request of the member     |
| rebalance | a member that must revoke partitions  | when it must; ends when its state changes  |
| join      | a classic member that must join again | at its Heartbeat or SyncGroup              |
| sync      | a classic member that joined          | at its JoinGroup                           |

Source: Kafka's GroupMetadataManager (schedule…Timeout, consumerGroupFenceMember).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Protocol

from ...coordinators import KeyValue
from ..serial_group import SerialGroup, SerialSurroundings
from .group_state import ConsumerGroupState, Draft, GroupData
from .heartbeats import remove_members
from .members import ConsumerMember, MemberState
from .record_formats import encode_all
from .subscriptions import DescribedTopics
from .target_assignments import ConsumerRules

__all__ = ["ConsumerGroup", "Deadline", "GroupSurroundings"]


class Deadline(Enum):
    """What a deadline is for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    JOIN = "join"
    SYNC = "sync"


class GroupSurroundings(SerialSurroundings, Protocol):
    """What a group needs of its shard."""

    def changed(self, group: ConsumerGroup, before: GroupData) -> None:
        """The state of a group changed: for traces and taps."""
        ...

    def expired(self, group: ConsumerGroup, clients: Mapping[str, str]) -> None:
        """Members, each with its client id, were removed because their timeouts had passed: for traces."""
        ...

    def downgrade(self, group: ConsumerGroup, draft: Draft, *, rebalance: bool) -> bool:
        """Turn the group into a classic group if it may become one; adds what follows to `draft`."""
        ...


class ConsumerGroup(SerialGroup[GroupData, Draft, Deadline]):
    """One group."""

    __slots__ = ("_rules", "_surroundings", "denied_topics", "topics_version")

    def __init__(self, group_id: str, data: GroupData, rules: ConsumerRules, surroundings: GroupSurroundings) -> None:
        super().__init__(group_id, data, surroundings)
        self._rules = rules
        self._surroundings = surroundings
        self.denied_topics: Callable[[Iterable[str]], Collection[str]] | None = None
        """Which topics the member that sent the last heartbeat may not describe: its regular expression has none of
        them; None without an authorizer."""
        self.topics_version = -1
        """Version of the cluster's topics that the group has checked; -1: none."""

    @property
    def rules(self) -> ConsumerRules:
        """The rules with this group's settings, which administrators may change at any time."""
        rules = self._rules.of_group(self.group_id)
        if self.denied_topics is None:
            return rules
        return replace(rules, view=DescribedTopics(rules.view, self.denied_topics))

    @property
    def state(self) -> ConsumerGroupState:
        """The state by Kafka's name."""
        return ConsumerGroupState.DEAD if self._closed is not None else self.data.state()

    def _new_draft(self) -> Draft:
        return Draft(self.data)

    def _encode(self, draft: Draft) -> Sequence[KeyValue]:
        return encode_all(self.group_id, draft.records)

    def _applied(self, before: GroupData) -> None:
        now = self.data
        assert before.epoch <= now.epoch or not now.members, f"{self.group_id}: epoch {now.epoch} after {before.epoch}"
        assert now.target_epoch <= now.epoch, f"{self.group_id}: target of epoch {now.target_epoch} in {now.epoch}"
        self._forget_removed(before)
        self._watch_changed(before)
        self._surroundings.changed(self, before)

    def _fence(self, draft: Draft, expired: Sequence[str]) -> None:
        expired = [name for name in expired if name in draft.state.members]
        if expired:
            clients = {name: draft.state.members[name].metadata.client_id for name in expired}
            draft.on_applied.append(partial(self._surroundings.expired, self, clients))
            remove_members(draft, expired, self.rules)
            self._surroundings.downgrade(self, draft, rebalance=True)

    # ---- deadlines -------------------------------------------------------------------------------

    def start(self) -> None:
        """The group was loaded: every member has a whole session from now."""
        for member in self.data.members.values():
            self.member_heard(member)
            self.watch_revocation(member)

    def member_heard(self, member: ConsumerMember) -> None:
        """A request of the member was accepted: its session begins again."""
        classic = member.metadata.classic
        timeout_ms = self.rules.limits.session_timeout_ms
        self.set_deadline(
            Deadline.SESSION, member.member_id, timeout_ms if classic is None else classic.session_timeout_ms
        )

    def watch_revocation(self, member: ConsumerMember) -> None:
        """Begin the rebalance timeout of a member that must revoke partitions; end that of any other."""
        must_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if must_revoke and not member.is_classic:
            timeout_ms = member.metadata.rebalance_timeout_ms
            self.set_deadline(Deadline.REBALANCE, member.member_id, timeout_ms)
        else:
            self.clear_deadline(Deadline.REBALANCE, member.member_id)

    def _watch_changed(self, before: GroupData) -> None:
        """Members that are new have a session, also where the client of the operation gets an error."""
        for member in self.data.members.values():
            if before.members.get(member.member_id) is member:
                continue
            if not self.has_deadline(Deadline.SESSION, member.member_id):
                self.member_heard(member)
            must_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS
            if must_revoke and not self.has_deadline(Deadline.REBALANCE, member.member_id):
                self.watch_revocation(member)

    def _forget_removed(self, before: GroupData) -> None:
        for member_id in before.members.keys() - self.data.members.keys():
            for kind in Deadline:
                self.clear_deadline(kind, member_id)
