"""The classic consumer group as a sans-IO state machine.

Owns: the members of one group, its generation, its leader, and the requests that wait. The caller passes requests and
the time; the methods return effects (`SendResponse` to a waiting request, `WriteGroupMetadata`). The group reports its
deadlines, of the rebalance's phase and of each member; the caller runs `tick(now_ms)` when the next of them passes.

    Empty ──join──► PreparingRebalance ──all joined──► CompletingRebalance ──leader's sync logged──► Stable
      ▲                  │      ▲                               │                                     │
      └──no member ──────┘      └───────────── join, leave, session expired ─────────────────────────┘
                                     any state ──partition lost, group deleted──► Dead

Invariants (a property test checks them over random runs):

* a generation has one leader, and only the leader receives the list of members;
* every member of a Stable group has an assignment, and no assignment is sent before it is committed to the log;
* each token gets at most one response, and exactly one before the group is Dead;
* the generation never decreases.

When a member sends a request while an older request of the same member still waits (its connection broke), the older
request gets REBALANCE_IN_PROGRESS; Kafka drops it without a response.

Source: KIP-62, KIP-134 (initial delay), KIP-345 (static members), KIP-389 (size), KIP-394 (member id
required), KIP-814; Kafka's ClassicGroup and the classicGroup… methods of GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import ErrorCode
from .membership_values import (
    NO_MEMBER,
    Effect,
    JoinRequest,
    JoinResult,
    Member,
    SendResponse,
    StaticReplacement,
    SyncRequest,
    SyncResult,
    WriteGroupMetadata,
)
from .rebalance import RebalancingGroup
from .states import COMPLETING, DEAD, EMPTY, HEARTBEAT_ERRORS, PREPARING, STABLE, SYNC_ERRORS

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member cannot send heartbeats before its first response; it is removed after this (Kafka's constant)."""


class Group(RebalancingGroup):
    """One classic group. All times are milliseconds of one monotonic clock."""

    __slots__ = ()

    # ---- requests ---------------------------------------------------------------------------

    def join(self, request: JoinRequest, now_ms: int) -> list[Effect]:
        """JoinGroup. The response is sent at once or when the rebalance completes."""
        error = self._refuse_join(request)
        if error is not ErrorCode.none:
            self._respond_to_join(request.token, JoinResult(error=error, member_id=_named(request, error)))
            if error is ErrorCode.group_max_size_reached and request.member_id in self.members:
                self._forget(self.members[request.member_id])
                self._complete_join_if_all(now_ms)
        elif request.member_id == NO_MEMBER:
            self._join_new(request, now_ms)
        elif request.member_id in self._pending_joins:
            self._add(request, request.member_id, now_ms)
        else:
            self._join_known(request, now_ms)
        return self._take()

    def sync(self, request: SyncRequest, now_ms: int) -> list[Effect]:
        """SyncGroup. The leader's request carries the assignment; every member waits until it is committed."""
        error = self._refuse_sync(request)
        if error is not ErrorCode.none:
            self._effects.append(SendResponse(token=request.token, result=SyncResult(error=error)))
            return self._take()
        member = self.members[request.member_id]
        self._pending_syncs.discard(member.member_id)
        if self.state is STABLE:
            self._effects.append(SendResponse(token=request.token, result=self._sync_result(member)))
            self._restart_session(member, now_ms)
            return self._take()
        self._respond_to_sync(member, SyncResult(error=ErrorCode.rebalance_in_progress))
        member.syncing = request.token
        member.session_deadline_ms = None
        if member.member_id == self.members.leader:
            given = {name: request.assignments.get(name, b"") for name in self.members.ids()}
            self._effects.append(WriteGroupMetadata(generation=self.generation, assignments=given))
        return self._take()

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Heartbeat: restarts the member's session. REBALANCE_IN_PROGRESS makes the member join again."""
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available
        error = self.members.check(member_id, group_instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self.generation:
            return ErrorCode.illegal_generation
        if self.state is not EMPTY:
            self._restart_session(self.members[member_id], now_ms)
        return HEARTBEAT_ERRORS[self.state]

    def leave(self, member_id: str, group_instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Effect]]:
        """LeaveGroup of one member; an empty id with an instance id removes the member that has the instance id."""
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available, []
        if member_id == NO_MEMBER:
            holder = self.members.holder(group_instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id, []
            member_id = holder.member_id
        elif member_id in self._pending_joins:
            self._remove_pending(member_id, now_ms)
            if self.state in (COMPLETING, STABLE):  # as in Kafka, although no member left
                self._prepare_rebalance(now_ms)
            return ErrorCode.none, self._take()
        error = self.members.check(member_id, group_instance_id)
        if error is ErrorCode.none:
            self._remove_and_rebalance(self.members[member_id], now_ms)
        return error, self._take()

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """NONE when this member may commit offsets now; the commit restarts its session."""
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self.state is EMPTY:
            return ErrorCode.none  # an admin client, or a consumer that assigns its partitions itself
        if generation < 0 and member_id == NO_MEMBER and group_instance_id is None:
            return ErrorCode.unknown_member_id
        error = self.members.check(member_id, group_instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self.generation:
            return ErrorCode.illegal_generation
        if self.state is COMPLETING:
            return ErrorCode.rebalance_in_progress
        self._restart_session(self.members[member_id], now_ms)
        return ErrorCode.none

    # ---- events ------------------------------------------------------------------------------

    def metadata_written(self, write: WriteGroupMetadata, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The result of a `WriteGroupMetadata`; a late result (of another generation, for example) changes nothing."""
        if write.static is not None:
            self._static_member_written(write.static, error, write.generation, now_ms)
        elif self.state is COMPLETING and write.generation == self.generation:
            if error is not ErrorCode.none:
                self._fail_syncs(error, now_ms)
                self._prepare_rebalance(now_ms)
            else:
                self._become_stable(write.assignments, now_ms)
        return self._take()

    def tick(self, now_ms: int) -> list[Effect]:
        """Act on every deadline that has passed at `now_ms`; does nothing when none has."""
        for member_id in [name for name, due in self._pending_joins.items() if due <= now_ms]:
            self._remove_pending(member_id, now_ms)
        for member in self.members:
            due = member.session_deadline_ms
            if due is not None and due <= now_ms and member.member_id in self.members:
                self._remove_and_rebalance(member, now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_due(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_due(now_ms)
        return self._take()

    def next_deadline_ms(self) -> int | None:
        """The next deadline; None while the group has none."""
        due = (self.phase_deadline_ms(), *self.member_deadlines().values())
        return min((at for at in due if at is not None), default=None)

    def phase_deadline_ms(self) -> int | None:
        """When the rebalance continues without the members that have not joined or synced; None outside a phase."""
        due = (self._join_deadline_ms, self._sync_deadline_ms)
        return min((at for at in due if at is not None), default=None)

    def member_deadlines(self) -> dict[str, int]:
        """Member id -> when its session times out; also ids that were given to clients which have not joined yet."""
        deadlines = dict(self._pending_joins)
        for member in self.members:
            if member.session_deadline_ms is not None:
                deadlines[member.member_id] = member.session_deadline_ms
        return deadlines

    def member_deadline_ms(self, member_id: str) -> int | None:
        """When the session of one member times out; None while a request of the member waits, or it is unknown."""
        member = self.members.get(member_id)
        if member is None:
            return self._pending_joins.get(member_id)
        return member.session_deadline_ms

    def close(self, error: ErrorCode) -> list[Effect]:
        """The group is deleted or its partition lost: each waiting request gets `error`, and the group is Dead."""
        for member in self.members:
            self._respond_to_member_join(member, JoinResult(error=error, member_id=member.member_id))
            self._respond_to_sync(member, SyncResult(error=error))
            member.session_deadline_ms = None
        self._pending_joins.clear()
        self._pending_syncs.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self._initial_remaining_ms = None
        self._transition(DEAD)
        return self._take()

    def rebalance(self, now_ms: int) -> list[Effect]:
        """Every member must join again: the group was a consumer group before (KIP-848)."""
        self._prepare_rebalance(now_ms)
        return self._take()

    @property
    def is_used(self) -> bool:
        """True when the log may have a record of this group, or a client has a member id of it."""
        return self.state is not EMPTY or self.generation > 0 or bool(self._pending_joins)

    def restore(
        self,
        *,
        generation: int,
        protocol_type: str,
        protocol_name: str | None,
        leader: str | None,
        members: Iterable[Member],
    ) -> None:
        """Set what the log stores of this group; `start_sessions` starts the session timeouts."""
        assert self.state is EMPTY, f"{self.group_id}: restored over a live group"
        self.members.restore(members, leader, protocol_type)
        self.generation = generation
        self.protocol_name = protocol_name
        self.state = STABLE if self.members else EMPTY

    def start_sessions(self, now_ms: int) -> list[Effect]:
        """The group was loaded: each member has a whole session timeout from now."""
        for member in self.members:
            self._restart_session(member, now_ms)
        if self.members and len(self.members) > self._limits.max_size:
            self._prepare_rebalance(now_ms)
        return self._take()

    def current_assignments(self) -> dict[str, bytes]:
        """Member id -> its present assignment."""
        return {member.member_id: member.assignment or b"" for member in self.members}

    # ---- joining ---------------------------------------------------------------------------------

    def _refuse_join(self, request: JoinRequest) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available
        if not self._accepts(request.member_id):
            return ErrorCode.group_max_size_reached
        if not self.members.supports(request.protocol_type, request.protocols):
            return ErrorCode.inconsistent_group_protocol
        if request.member_id == NO_MEMBER or request.member_id in self._pending_joins:
            return ErrorCode.none
        error = self.members.check(request.member_id, request.group_instance_id)
        return ErrorCode.unknown_member_id if error is ErrorCode.none and self.state is EMPTY else error

    def _accepts(self, member_id: str) -> bool:
        """True when `group.max.size` admits the member (KIP-389); a member that waits in this rebalance is admitted."""
        if self.state is PREPARING:
            member = self.members.get(member_id)
            waiting = member is not None and member.joining is not None
            return waiting or self.members.joined_count() < self._limits.max_size
        if self.state in (COMPLETING, STABLE):
            return member_id in self.members or len(self.members) < self._limits.max_size
        return True

    def _join_new(self, request: JoinRequest, now_ms: int) -> None:
        holder = self.members.holder(request.group_instance_id)
        if holder is not None:
            self._replace_static(request, holder, now_ms)
        elif request.member_id_required and request.group_instance_id is None:
            self._pending_joins[request.new_member_id] = now_ms + request.session_timeout_ms
            error = ErrorCode.member_id_required
            self._respond_to_join(request.token, JoinResult(error=error, member_id=request.new_member_id))
        else:
            self._add(request, request.new_member_id, now_ms)

    def _join_known(self, request: JoinRequest, now_ms: int) -> None:
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        # A member that repeats its join with the same subscription has lost the response. A leader that
        # joins a stable group again requests a new assignment.
        lost_response = self.state is COMPLETING or (self.state is STABLE and member.member_id != self.members.leader)
        if unchanged and lost_response:
            self._respond_to_join(request.token, self._join_result(member))
        else:
            self._update(member, request)
            if not member.is_new:
                member.session_deadline_ms = None
            self._prepare_or_complete(now_ms)

    def _add(self, request: JoinRequest, member_id: str, now_ms: int) -> None:
        if self.state is PREPARING and self._initial_remaining_ms is not None:
            self._new_member_added = True
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            is_new=True,
            joining=request.token,
            session_deadline_ms=now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        self.members.add(member, request.protocol_type)
        self._pending_joins.pop(member_id, None)
        self._prepare_or_complete(now_ms)

    def _update(self, member: Member, request: JoinRequest) -> None:
        stale = ErrorCode.rebalance_in_progress
        self._respond_to_member_join(member, JoinResult(error=stale, member_id=member.member_id))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.joining = request.token

    # ---- static members --------------------------------------------------------------------------

    def _replace_static(self, request: JoinRequest, old: Member, now_ms: int) -> None:
        """The static member joined again (KIP-345): fence its old member id, and keep the generation if possible."""
        fenced = ErrorCode.fenced_instance_id
        self._respond_to_member_join(old, JoinResult(error=fenced, member_id=old.member_id))
        self._respond_to_sync(old, SyncResult(error=fenced))
        before = replace(old)
        old_leader = self.members.leader or NO_MEMBER
        self._pending_syncs.discard(old.member_id)
        self.members.rename(old, request.new_member_id)
        self._update(old, request)
        self._restart_session(old, now_ms)
        if self.state is STABLE and self.members.select_protocol() == self.protocol_name:
            self.members.replacement_begun(old.member_id, before)
            change = StaticReplacement(request=request, new_member_id=old.member_id, old_leader=old_leader)
            assignments = self.current_assignments()
            self._effects.append(WriteGroupMetadata(generation=self.generation, assignments=assignments, static=change))
            return
        # In CompletingRebalance the leader may already have assigned partitions to the old id: rebalance again.
        self._prepare_or_complete(now_ms)

    def _static_member_written(self, change: StaticReplacement, error: ErrorCode, generation: int, now_ms: int) -> None:
        stored = error is ErrorCode.none
        before = self.members.replacement_ended(change.new_member_id, stored=stored)
        member = self.members.get(change.new_member_id)
        if before is None or member is None:
            return  # replaced again, gone, or in another group: it was converted to a consumer group and back
        if self.state is not STABLE or generation != self.generation:
            return  # its join waits for the rebalance that began meanwhile
        if not stored:
            self._restore_static(member, before, now_ms)
        elif member.joining is change.request.token:
            self._static_member_stored(member, change, now_ms)

    def _restore_static(self, member: Member, before: Member, now_ms: int) -> None:
        """The new id was not stored: the member has the old one again, for at most a session timeout."""
        self.members.rename(member, before.member_id)
        member.protocols = before.protocols
        member.session_timeout_ms = before.session_timeout_ms
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        unknown = JoinResult(error=ErrorCode.unknown_member_id, member_id=NO_MEMBER)
        self._respond_to_member_join(member, unknown)
        self._restart_session(member, now_ms)

    def _static_member_stored(self, member: Member, change: StaticReplacement, now_ms: int) -> None:
        result = self._join_result(member)
        if not change.request.can_skip_assignment:
            # With the old leader's id in the response the member does not act as leader: a stable group would
            # not distribute its assignment.
            result = replace(result, leader=change.old_leader, members=())
        elif member.member_id == self.members.leader:
            result = replace(result, skip_assignment=True)
        self._respond_to_member_join(member, result)
        self._restart_session(member, now_ms)

    def _refuse_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available
        error = self.members.check(request.member_id, request.group_instance_id)
        if error is not ErrorCode.none:
            return error
        if request.generation != self.generation:
            return ErrorCode.illegal_generation
        if request.protocol_type not in (None, self.members.protocol_type):
            return ErrorCode.inconsistent_group_protocol
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.inconsistent_group_protocol
        return SYNC_ERRORS.get(self.state, ErrorCode.none)


def _named(request: JoinRequest, error: ErrorCode) -> str:
    """The member id beside an error of JoinGroup: that of the request, except for a member too many."""
    return NO_MEMBER if error is ErrorCode.group_max_size_reached else request.member_id
