"""The rebalance of a group: from the first join of a generation until every member has its assignment.

Owns: `RebalancingGroup`, the inner half of the state machine `membership.Group`: the group's state, its deadlines and
its effects, and what follows a request that was accepted. The invariants are in the head of `membership`.

Source: Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin, propagateAssignment).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import ErrorCode
from .group_members import GroupMembers
from .membership_values import (
    NO_MEMBER,
    Effect,
    JoinedMember,
    JoinResult,
    Member,
    SendResponse,
    SyncResult,
    WriteGroupMetadata,
)
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
        self.members = GroupMembers()
        self._limits = limits
        self._pending_joins: dict[
            str, int
        ] = {}  # member id that was given to a client which has not joined yet -> deadline
        self._pending_syncs: set[str] = set()
        self._join_deadline_ms: int | None = None
        self._initial_remaining_ms: int | None = None  # set only during the initial delay
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
            # KIP-134: each new member extends the delay, up to the rebalance timeout in total.
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
            # Only static members that have not joined are left: wait until they join or their sessions time out.
            self._join_deadline_ms = now_ms + self.members.rebalance_timeout_ms()
            return
        self._begin_generation(now_ms)

    def _begin_generation(self, now_ms: int) -> None:
        assert self.state is PREPARING, f"{self.group_id}: a generation begins in {self.state}"
        assert self._join_deadline_ms is None, f"{self.group_id}: a generation begins, and its join still waits"
        self.generation += 1
        self._pending_syncs.clear()
        if not self.members:
            self.protocol_name = None
            self.members.leader = None
            self._transition(EMPTY)
            self._effects.append(WriteGroupMetadata(generation=self.generation))
            return
        self.protocol_name = self.members.select_protocol()
        leader = self.members.leader
        assert leader in self.members, f"{self.group_id}: generation {self.generation} with leader {leader}"
        self._transition(COMPLETING)
        for member in self.members:
            member.is_new = False
            self._pending_syncs.add(member.member_id)
            self._respond_to_member_join(member, self._join_result(member))
            self._restart_session(member, now_ms)
        self._sync_deadline_ms = now_ms + self.members.rebalance_timeout_ms()

    def _sync_due(self, now_ms: int) -> None:
        """Remove each member that joined this generation and did not send SyncGroup in time (KAFKA-9752)."""
        self._sync_deadline_ms = None
        silent = [self.members[name] for name in self._pending_syncs if name in self.members]
        self._pending_syncs.clear()
        for member in silent:
            self._forget(member)
        if silent and self.state in (COMPLETING, STABLE):
            self._prepare_rebalance(now_ms)

    def _become_stable(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        assert self.members, f"{self.group_id}: Stable without members"
        assert self.members.leader in self.members, f"{self.group_id}: Stable without a leader"
        self._transition(STABLE)
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            self._respond_to_sync(member, self._sync_result(member))
            self._restart_session(member, now_ms)

    def _fail_syncs(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members:
            member.assignment = None
            if member.syncing is not None:
                self._respond_to_sync(member, SyncResult(error=error))
                self._restart_session(member, now_ms)

    # ---- small steps -----------------------------------------------------------------------------

    def _transition(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.state = state

    def _restart_session(self, member: Member, now_ms: int) -> None:
        """The member has a whole session timeout from now; none while a waiting request keeps it alive."""
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
        error = ErrorCode.unknown_member_id
        self._respond_to_member_join(member, JoinResult(error=error, member_id=NO_MEMBER))
        self._respond_to_sync(member, SyncResult(error=error))
        self.members.remove(member)
        self._pending_syncs.discard(member.member_id)

    def _join_result(self, member: Member) -> JoinResult:
        shown: Iterable[Member] = self.members if member.member_id == self.members.leader else ()
        rows = tuple(JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name)) for m in shown)
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

    def _respond_to_join(self, token: object, result: JoinResult) -> None:
        self._effects.append(SendResponse(token=token, result=result))

    def _respond_to_member_join(self, member: Member, result: JoinResult) -> None:
        if member.joining is not None:
            self._respond_to_join(member.joining, result)
            member.joining = None

    def _respond_to_sync(self, member: Member, result: SyncResult) -> None:
        if member.syncing is not None:
            self._effects.append(SendResponse(token=member.syncing, result=result))
            member.syncing = None

    def _take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
