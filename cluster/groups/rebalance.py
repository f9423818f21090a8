"""How a group rebalances: from the first join of a generation to everybody's assignment.

Owns: `RebalancingGroup`, the inner half of the state machine `membership.Group`: what happens once a request
was found good. Its state, its deadlines, its effects. The invariants are in `membership`'s head.

Source: Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin, propagateAssignment).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import ErrorCode
from .members import (
    NO_MEMBER,
    Answer,
    Effect,
    JoinedMember,
    JoinResult,
    Member,
    Persist,
    SyncResult,
)
from .roster import Roster
from .states import COMPLETING, EMPTY, PREPARING, STABLE, TRANSITIONS, GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The broker's settings that bound a group."""

    initial_rebalance_delay_ms: int
    max_size: int


class RebalancingGroup:
    """State of one classic group and the steps of its rebalance."""

    __slots__ = (
        "_effects",
        "_initial_remaining_ms",
        "_join_deadline_ms",
        "_limits",
        "_new_member_added",
        "_pending_joins",
        "_pending_syncs",
        "_sync_deadline_ms",
        "generation",
        "group_id",
        "members",
        "protocol_name",
        "state",
    )

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.protocol_name: str | None = None
        self.members = Roster()
        self._limits = limits
        self._pending_joins: dict[str, int] = {}  # member id given out, not yet joined -> deadline
        self._pending_syncs: set[str] = set()
        self._join_deadline_ms: int | None = None
        self._initial_remaining_ms: int | None = None  # set during the initial delay only
        self._new_member_added = False
        self._sync_deadline_ms: int | None = None
        self._effects: list[Effect] = []

    # ---- the rebalance ---------------------------------------------------------------------------

    def _prepare_or_complete(self, now_ms: int) -> None:
        if self.state is PREPARING:
            self._complete_join_if_all(now_ms)
        else:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state is COMPLETING:
            self._fail_syncs(ErrorCode.rebalance_in_progress, now_ms)
        self._pending_syncs.clear()
        self._sync_deadline_ms = None
        initial = self.state is EMPTY
        self._transition(PREPARING)
        if initial:
            delay = self._limits.initial_rebalance_delay_ms
            self._initial_remaining_ms = max(self.members.rebalance_timeout_ms() - delay, 0)
            self._new_member_added = False
            self._join_deadline_ms = now_ms + delay
            if delay == 0:
                self._join_due(now_ms)
            return
        self._join_deadline_ms = now_ms + self.members.rebalance_timeout_ms()
        self._complete_join_if_all(now_ms)

    def _complete_join_if_all(self, now_ms: int) -> None:
        waiting_initially = self._initial_remaining_ms is not None
        if self.state is not PREPARING or waiting_initially or self._pending_joins:
            return
        if self.members.joined_count() == len(self.members):
            self._complete_join(now_ms)

    def _join_due(self, now_ms: int) -> None:
        remaining = self._initial_remaining_ms
        if remaining and self._new_member_added:
            # KIP-134: each newcomer prolongs the wait, up to the rebalance timeout in all.
            delay = min(self._limits.initial_rebalance_delay_ms, remaining)
            self._new_member_added = False
            self._initial_remaining_ms = max(remaining - delay, 0)
            self._join_deadline_ms = now_ms + delay
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        self._join_deadline_ms = self._initial_remaining_ms = None
        for member in self.members:
            if member.joining is None and member.group_instance_id is None:
                self._forget(member)
        if self.members and not self.members.elect_leader():
            # Only silent static members are left: wait until they come or their sessions end.
            self._join_deadline_ms = now_ms + self.members.rebalance_timeout_ms()
            return
        self._begin_generation(now_ms)

    def _begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self._pending_syncs.clear()
        if not self.members:
            self.protocol_name = None
            self.members.leader = None
            self._transition(EMPTY)
            self._effects.append(Persist(generation=self.generation))
            return
        self.protocol_name = self.members.select_protocol()
        self._transition(COMPLETING)
        for member in self.members:
            member.is_new = False
            member.assignment = None
            self._pending_syncs.add(member.member_id)
            self._answer_join_of(member, self._join_result(member))
            self._heard(member, now_ms)
        self._sync_deadline_ms = now_ms + self.members.rebalance_timeout_ms()

    def _sync_due(self, now_ms: int) -> None:
        """Who joined this generation and never synced is out (KAFKA-9752)."""
        self._sync_deadline_ms = None
        silent = [self.members[name] for name in self._pending_syncs if name in self.members]
        self._pending_syncs.clear()
        for member in silent:
            self._forget(member)
        if silent and self.state in (COMPLETING, STABLE):
            self._prepare_rebalance(now_ms)

    def _become_stable(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        self._transition(STABLE)
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_sync(member, self._sync_result(member))
            self._heard(member, now_ms)

    def _fail_syncs(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members:
            member.assignment = None
            if member.syncing is not None:
                self._answer_sync(member, SyncResult(error=error))
                self._heard(member, now_ms)

    # ---- small steps -----------------------------------------------------------------------------

    def _transition(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.state = state

    def _heard(self, member: Member, now_ms: int) -> None:
        """A whole session from now, unless a waiting request keeps it alive anyway."""
        if member.is_new:
            return
        waits = member.joining is not None or member.syncing is not None
        member.session_deadline_ms = None if waits else now_ms + member.session_timeout_ms

    def _remove_pending(self, member_id: str, now_ms: int) -> None:
        del self._pending_joins[member_id]
        self._complete_join_if_all(now_ms)

    def _remove_and_rebalance(self, member: Member, now_ms: int) -> None:
        self._forget(member)
        if self.state is not EMPTY:
            self._prepare_or_complete(now_ms)

    def _forget(self, member: Member) -> None:
        gone = ErrorCode.unknown_member_id
        self._answer_join_of(member, JoinResult(error=gone, member_id=NO_MEMBER))
        self._answer_sync(member, SyncResult(error=gone))
        self.members.remove(member)
        self._pending_syncs.discard(member.member_id)

    def _join_result(self, member: Member) -> JoinResult:
        shown: Iterable[Member] = self.members if member.member_id == self.members.leader else ()
        rows = tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in shown
        )
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.members.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader or NO_MEMBER,
            members=rows,
        )

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(
            protocol_type=self.members.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment or b"",
        )

    def _answer_join(self, token: object, result: JoinResult) -> None:
        self._effects.append(Answer(token=token, result=result))

    def _answer_join_of(self, member: Member, result: JoinResult) -> None:
        if member.joining is not None:
            self._answer_join(member.joining, result)
            member.joining = None

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        if member.syncing is not None:
            self._effects.append(Answer(token=member.syncing, result=result))
            member.syncing = None

    def _take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
