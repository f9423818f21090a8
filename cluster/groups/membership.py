"""The classic consumer group as a sans-IO state machine.

Owns: the members of one group, its generation, its leader, who waits for what. Requests and the time
go in; effects come out (`Answer` a waiting request, `Persist` the metadata). It says its own deadlines, of a
rebalance's phase and of each member; at the next of them `tick(now_ms)` has something to do.

    Empty ──join──► PreparingRebalance ──all joined──► CompletingRebalance ──leader's sync logged──► Stable
      ▲                  │      ▲                               │                                     │
      └──nobody left─────┘      └───────────── join, leave, session expired ─────────────────────────┘
                                     any state ──partition lost, group deleted──► Dead

Invariants (a property test holds them over random runs):

* a generation has one leader, and only the leader is shown the members;
* nobody is in a Stable group without an assignment, and no assignment is given out that is not logged;
* each token is answered at most once, and by the time the group is Dead at least once;
* the generation never goes back.

Where a request of a member overtakes an older one of the same member (its connection broke), the older
one is answered REBALANCE_IN_PROGRESS; Kafka forgets it.

Source: KIP-62, KIP-134 (initial delay), KIP-345 (static members), KIP-389 (size), KIP-394 (member id
required), KIP-814; Kafka's ClassicGroup and the classicGroup… methods of GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import ErrorCode
from .members import (
    NO_MEMBER,
    Answer,
    Effect,
    JoinRequest,
    JoinResult,
    Member,
    Persist,
    StaticReplacement,
    SyncRequest,
    SyncResult,
)
from .rebalance import RebalancingGroup
from .states import COMPLETING, DEAD, EMPTY, HEARTBEAT_ERRORS, PREPARING, STABLE, SYNC_ERRORS

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member that never got its id cannot heartbeat; it is given up after this (Kafka's constant)."""


class Group(RebalancingGroup):
    """One classic group. All times are milliseconds of one monotonic clock."""

    __slots__ = ()

    # ---- what is asked ---------------------------------------------------------------------------

    def join(self, request: JoinRequest, now_ms: int) -> list[Effect]:
        """JoinGroup. The answer may come at once or when the rebalance completes."""
        error = self._refuse_join(request)
        if error is not ErrorCode.none:
            self._answer_join(request.token, JoinResult(error=error, member_id=request.member_id))
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
        """SyncGroup. The leader's carries the assignment; everybody waits until it is logged."""
        error = self._refuse_sync(request)
        if error is not ErrorCode.none:
            self._effects.append(Answer(token=request.token, result=SyncResult(error=error)))
            return self._take()
        member = self.members[request.member_id]
        self._pending_syncs.discard(member.member_id)
        if self.state is STABLE:
            self._effects.append(Answer(token=request.token, result=self._sync_result(member)))
            self._heard(member, now_ms)
            return self._take()
        self._answer_sync(member, SyncResult(error=ErrorCode.rebalance_in_progress))
        member.syncing = request.token
        member.session_deadline_ms = None
        if member.member_id == self.members.leader:
            given = {name: request.assignments.get(name, b"") for name in self.members.ids()}
            self._effects.append(Persist(generation=self.generation, assignments=given))
        return self._take()

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Heartbeat: the member lives. REBALANCE_IN_PROGRESS tells it to join again."""
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available
        error = self.members.check(member_id, group_instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self.generation:
            return ErrorCode.illegal_generation
        if self.state is not EMPTY:
            self._heard(self.members[member_id], now_ms)
        return HEARTBEAT_ERRORS[self.state]

    def leave(
        self, member_id: str, group_instance_id: str | None, now_ms: int
    ) -> tuple[ErrorCode, list[Effect]]:
        """LeaveGroup of one member; an empty id with an instance id removes whoever holds the instance."""
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available, []
        if member_id == NO_MEMBER:
            holder = self.members.holder(group_instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id, []
            member_id = holder.member_id
        elif member_id in self._pending_joins:
            self._remove_pending(member_id, now_ms)
            return ErrorCode.none, self._take()
        error = self.members.check(member_id, group_instance_id)
        if error is ErrorCode.none:
            self._remove_and_rebalance(self.members[member_id], now_ms)
        return error, self._take()

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """May this member commit offsets now? Counts as a sign of life."""
        if self.state is DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self.state is EMPTY:
            return (
                ErrorCode.none
            )  # an admin client, or a consumer that assigns its partitions itself
        if generation < 0 and member_id == NO_MEMBER and group_instance_id is None:
            return ErrorCode.unknown_member_id
        error = self.members.check(member_id, group_instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self.generation:
            return ErrorCode.illegal_generation
        if self.state is COMPLETING:
            return ErrorCode.rebalance_in_progress
        self._heard(self.members[member_id], now_ms)
        return ErrorCode.none

    # ---- what happens ----------------------------------------------------------------------------

    def persisted(self, persist: Persist, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The log's answer to a `Persist`; late ones (another generation, no longer waiting) are dropped."""
        if persist.static is not None:
            self._static_persisted(persist.static, error, persist.generation, now_ms)
        elif self.state is COMPLETING and persist.generation == self.generation:
            if error is not ErrorCode.none:
                self._fail_syncs(error, now_ms)
                self._prepare_rebalance(now_ms)
            else:
                self._become_stable(persist.assignments, now_ms)
        return self._take()

    def tick(self, now_ms: int) -> list[Effect]:
        """Do whatever is due at `now_ms`; harmless when nothing is."""
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
        """When `tick` next has something to do; None while nothing is due ever."""
        due = (self.phase_deadline_ms(), *self.member_deadlines().values())
        return min((at for at in due if at is not None), default=None)

    def phase_deadline_ms(self) -> int | None:
        """When the rebalance goes on without those that have not joined, or not synced; None where none waits."""
        due = (self._join_deadline_ms, self._sync_deadline_ms)
        return min((at for at in due if at is not None), default=None)

    def member_deadlines(self) -> dict[str, int]:
        """When who is given up unless heard of: members, and ids given out to clients that have not joined."""
        deadlines = dict(self._pending_joins)
        for member in self.members:
            if member.session_deadline_ms is not None:
                deadlines[member.member_id] = member.session_deadline_ms
        return deadlines

    def member_deadline_ms(self, member_id: str) -> int | None:
        """The same of one; None for who waits for an answer, or is unknown."""
        member = self.members.get(member_id)
        if member is None:
            return self._pending_joins.get(member_id)
        return member.session_deadline_ms

    def close(self, error: ErrorCode) -> list[Effect]:
        """The group is deleted or its partition lost: everybody who waits gets `error`; the group is Dead."""
        for member in self.members:
            self._answer_join_of(member, JoinResult(error=error, member_id=member.member_id))
            self._answer_sync(member, SyncResult(error=error))
            member.session_deadline_ms = None
        self._pending_joins.clear()
        self._pending_syncs.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self._initial_remaining_ms = None
        self._transition(DEAD)
        return self._take()

    def restore(
        self,
        *,
        generation: int,
        protocol_type: str,
        protocol_name: str | None,
        leader: str | None,
        members: Iterable[Member],
    ) -> None:
        """Take over what the log says of this group; sessions begin with `start_sessions`."""
        assert self.state is EMPTY, f"{self.group_id}: restored over a live group"
        self.members.restore(members, leader, protocol_type)
        self.generation = generation
        self.protocol_name = protocol_name
        self.state = STABLE if self.members else EMPTY

    def start_sessions(self, now_ms: int) -> list[Effect]:
        """The group was loaded: its members have a whole session from now to be heard of."""
        for member in self.members:
            self._heard(member, now_ms)
        if self.members and len(self.members) > self._limits.max_size:
            self._prepare_rebalance(now_ms)
        return self._take()

    def current_assignments(self) -> dict[str, bytes]:
        """What each member has now."""
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
        return (
            ErrorCode.unknown_member_id
            if error is ErrorCode.none and self.state is EMPTY
            else error
        )

    def _accepts(self, member_id: str) -> bool:
        """Room for one more (KIP-389)? Who has joined this rebalance already always has."""
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
            self._answer_join(
                request.token, JoinResult(error=error, member_id=request.new_member_id)
            )
        else:
            self._add(request, request.new_member_id, now_ms)

    def _join_known(self, request: JoinRequest, now_ms: int) -> None:
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        # A repeated join with the same subscription has lost its answer; a stable leader that joins
        # again asks for a new assignment.
        lost_answer = self.state is COMPLETING or (
            self.state is STABLE and member.member_id != self.members.leader
        )
        if unchanged and lost_answer:
            self._answer_join(request.token, self._join_result(member))
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
        self._answer_join_of(member, JoinResult(error=stale, member_id=member.member_id))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.joining = request.token

    # ---- static members --------------------------------------------------------------------------

    def _replace_static(self, request: JoinRequest, old: Member, now_ms: int) -> None:
        """The instance came back (KIP-345): the old member id is fenced, the group stays if it can."""
        fenced = ErrorCode.fenced_instance_id
        self._answer_join_of(old, JoinResult(error=fenced, member_id=old.member_id))
        self._answer_sync(old, SyncResult(error=fenced))
        before = replace(old)
        old_leader = self.members.leader or NO_MEMBER
        self._pending_syncs.discard(old.member_id)
        self.members.rename(old, request.new_member_id)
        self._update(old, request)
        self._heard(old, now_ms)
        if self.state is STABLE and self.members.select_protocol() == self.protocol_name:
            change = StaticReplacement(
                request=request, old=before, new_member_id=old.member_id, old_leader=old_leader
            )
            assignments = self.current_assignments()
            self._effects.append(
                Persist(generation=self.generation, assignments=assignments, static=change)
            )
            return
        # In CompletingRebalance the leader may already be assigning to the old id: start over.
        self._prepare_or_complete(now_ms)

    def _static_persisted(
        self, change: StaticReplacement, error: ErrorCode, generation: int, now_ms: int
    ) -> None:
        member = self.members.get(change.new_member_id)
        if member is None or member.joining is not change.request.token:
            return  # answered by a rebalance, a leave or the group's end
        if self.state is not STABLE or generation != self.generation:
            return  # its join waits for the rebalance that has begun
        if error is not ErrorCode.none:
            self.members.rename(member, change.old.member_id)
            member.protocols = change.old.protocols
            member.session_timeout_ms = change.old.session_timeout_ms
            member.rebalance_timeout_ms = change.old.rebalance_timeout_ms
            self._answer_join_of(
                member, JoinResult(error=ErrorCode.unknown_member_id, member_id=NO_MEMBER)
            )
            return
        result = self._join_result(member)
        if not change.request.can_skip_assignment:
            # Shown the old leader's id it does not take itself for the leader: a stable group would
            # not spread what it assigned.
            result = replace(result, leader=change.old_leader, members=())
        elif member.member_id == self.members.leader:
            result = replace(result, skip_assignment=True)
        self._answer_join_of(member, result)
        self._heard(member, now_ms)

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
