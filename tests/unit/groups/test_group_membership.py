"""The group's state machine: tables for single steps, hypothesis for random runs (G2)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.membership import Group
from harrow.cluster.groups.membership_values import (
    Effect,
    JoinRequest,
    JoinResult,
    Protocol,
    SendResponse,
    SyncRequest,
    SyncResult,
    WriteGroupMetadata,
)
from harrow.cluster.groups.rebalance import GroupLimits
from harrow.cluster.groups.states import HEARTBEAT_ERRORS, SYNC_ERRORS, TRANSITIONS, GroupState
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

RANGE = (Protocol("range", b"sub"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def join(
    name: str,
    member_id: str = "",
    *,
    token: object = None,
    instance: str | None = None,
    protocols: tuple[Protocol, ...] = RANGE,
    required: bool = False,
    skip: bool = False,
) -> JoinRequest:
    return JoinRequest(
        token=token or f"join-{name}",
        member_id=member_id,
        new_member_id=f"{name}-id",
        group_instance_id=instance,
        client_id=name,
        client_host="/h",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=protocols,
        member_id_required=required,
        can_skip_assignment=skip,
    )


def sync(
    name: str, generation: int, assignments: dict[str, bytes] | None = None, *, token: object = None
) -> SyncRequest:
    return SyncRequest(
        token=token or f"sync-{name}",
        member_id=f"{name}-id",
        group_instance_id=None,
        generation=generation,
        protocol_type=None,
        protocol_name=None,
        assignments=assignments or {},
    )


def responses(effects: list[Effect]) -> dict[object, Any]:
    return {effect.token: effect.result for effect in effects if isinstance(effect, SendResponse)}


def writes(effects: list[Effect]) -> list[WriteGroupMetadata]:
    return [effect for effect in effects if isinstance(effect, WriteGroupMetadata)]


def new_group(delay_ms: int = 0, max_size: int = 100) -> Group:
    return Group("g", GroupLimits(initial_rebalance_delay_ms=delay_ms, max_size=max_size))


def stable_group(*names: str) -> Group:
    """A stable group of `names`; the first leads."""
    group = new_group(delay_ms=100)
    for name in names:
        group.join(join(name), 0)
    now_ms = 0
    while group.state is GroupState.PREPARING_REBALANCE:
        now_ms += 100
        group.tick(now_ms)
    given = {f"{name}-id": name.encode() for name in names}
    (write,) = writes(group.sync(sync(names[0], group.generation, given), now_ms))
    group.metadata_written(write, ErrorCode.none, now_ms)
    for name in names[1:]:
        group.sync(sync(name, group.generation), now_ms)
    assert group.state is GroupState.STABLE
    return group


def static_group() -> Group:
    """A stable group of the static member a."""
    group = new_group()
    group.join(join("a", instance="i"), 0)
    (write,) = writes(group.sync(sync("a", 1, {"a-id": b"mine"}), 0))
    group.metadata_written(write, ErrorCode.none, 0)
    return group


def test_tables_cover_every_state() -> None:
    assert set(TRANSITIONS) == set(GroupState) == set(HEARTBEAT_ERRORS)
    served = {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    assert set(SYNC_ERRORS) == set(GroupState) - served


def test_single_member_leads_and_receives_its_own_assignment() -> None:
    group = new_group()
    result: JoinResult = responses(group.join(join("a"), 0))["join-a"]
    assert (result.generation, result.leader, result.member_id) == (1, "a-id", "a-id")
    assert [row.member_id for row in result.members] == ["a-id"]
    effects = group.sync(sync("a", 1, {"a-id": b"p0"}), 0)
    assert not responses(effects)
    (write,) = writes(effects)
    assert write.assignments == {"a-id": b"p0"}
    synced: SyncResult = responses(group.metadata_written(write, ErrorCode.none, 0))["sync-a"]
    assert (synced.error, synced.assignment) == (ErrorCode.none, b"p0")
    assert group.state is GroupState.STABLE


def test_member_without_id_receives_an_id_before_it_joins() -> None:
    group = new_group()
    refused: JoinResult = responses(group.join(join("a", required=True), 0))["join-a"]
    assert refused.error is ErrorCode.member_id_required
    assert refused.member_id == "a-id"
    assert group.state is GroupState.EMPTY
    accepted: JoinResult = responses(group.join(join("a", "a-id", required=True), 0))["join-a"]
    assert accepted.error is ErrorCode.none


def test_member_id_that_is_never_used_expires() -> None:
    group = new_group()
    group.join(join("a", required=True), 0)
    assert group.next_deadline_ms() == SESSION_MS
    group.tick(SESSION_MS)
    late: JoinResult = responses(group.join(join("a", "a-id", required=True), SESSION_MS))["join-a"]
    assert late.error is ErrorCode.unknown_member_id


def test_new_members_extend_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    group = new_group(delay_ms=3_000)
    assert not group.join(join("a"), 0)
    assert not group.join(join("b"), 1_000)
    assert not responses(group.tick(3_000))
    assert group.next_deadline_ms() == 6_000
    both = responses(group.tick(6_000))
    assert {result.generation for result in both.values()} == {1}
    assert [len(both[token].members) for token in ("join-a", "join-b")] == [2, 0]


def test_new_member_starts_a_rebalance_and_heartbeats_report_it() -> None:
    group = stable_group("a", "b")
    group.join(join("c"), 1_000)
    assert group.state is GroupState.PREPARING_REBALANCE
    beat = group.heartbeat("a-id", None, group.generation, 1_100)
    assert beat is ErrorCode.rebalance_in_progress
    group.join(join("a", "a-id"), 1_200)
    done = responses(group.join(join("b", "b-id"), 1_300))
    assert {result.generation for result in done.values()} == {2}
    assert set(done) == {"join-a", "join-b", "join-c"}


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    group = stable_group("a", "b")
    group.join(join("a", "a-id", protocols=(Protocol("range", b"new"),)), 1_000)
    group.heartbeat("b-id", None, 1, 1_000)
    done = responses(group.tick(1_000 + SESSION_MS))
    assert done["join-a"].generation == 2
    assert group.members.ids() == ["a-id"]


def test_silent_member_is_removed_after_its_session_timeout() -> None:
    group = stable_group("a", "b")
    due = group.next_deadline_ms()
    assert due is not None
    group.heartbeat("a-id", None, 1, due - 1)
    group.tick(due)
    assert group.members.ids() == ["a-id"]
    assert group.state is GroupState.PREPARING_REBALANCE


def test_leave_of_the_last_member_writes_the_empty_generation() -> None:
    group = stable_group("a")
    error, effects = group.leave("a-id", None, 1_000)
    assert error is ErrorCode.none
    assert group.state is GroupState.EMPTY
    assert [(p.generation, dict(p.assignments)) for p in writes(effects)] == [(2, {})]


def test_member_that_never_syncs_is_removed() -> None:
    group = new_group(delay_ms=10)
    group.join(join("a"), 0)
    group.join(join("b"), 0)
    group.tick(10)
    group.tick(20)
    group.sync(sync("a", 1, {"a-id": b"x"}), 20)
    group.heartbeat("b-id", None, 1, REBALANCE_MS)
    group.tick(20 + REBALANCE_MS)
    assert group.members.ids() == ["a-id"]


def test_failed_write_of_a_generation_fails_the_syncs_and_rebalances() -> None:
    group = new_group(delay_ms=10)
    group.join(join("a"), 0)
    group.tick(10)
    (write,) = writes(group.sync(sync("a", 1, {"a-id": b"x"}), 10))
    done = responses(group.metadata_written(write, ErrorCode.coordinator_not_available, 11))
    assert done["sync-a"].error is ErrorCode.coordinator_not_available
    assert group.state is GroupState.PREPARING_REBALANCE
    assert not group.metadata_written(write, ErrorCode.none, 12)


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("a-id", 1, ErrorCode.none),
        ("a-id", 7, ErrorCode.illegal_generation),
        ("x-id", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
        ("a-id", -1, ErrorCode.illegal_generation),
    ],
)
def test_commit_to_a_stable_group_checks_member_and_generation(
    member_id: str, generation: int, error: ErrorCode
) -> None:
    assert stable_group("a").check_commit(member_id, None, generation, 500) is error


def test_commit_to_an_empty_group_needs_no_member_and_is_refused_during_completion() -> None:
    group = new_group()
    assert group.check_commit("", None, -1, 0) is ErrorCode.none
    group.join(join("a"), 0)
    assert group.check_commit("a-id", None, 1, 0) is ErrorCode.rebalance_in_progress


def test_join_without_a_shared_protocol_is_refused() -> None:
    group = stable_group("a")
    odd = join("b", protocols=(Protocol("sticky", b""),))
    result: JoinResult = responses(group.join(odd, 0))["join-b"]
    assert result.error is ErrorCode.inconsistent_group_protocol


def test_shared_protocol_with_most_votes_is_selected() -> None:
    group = new_group(delay_ms=10)
    range_protocol, sticky = Protocol("range", b"r"), Protocol("sticky", b"s")
    group.join(join("a", protocols=(sticky, range_protocol)), 0)
    group.join(join("b", protocols=(sticky, range_protocol)), 0)
    group.join(join("c", protocols=(range_protocol, sticky)), 0)
    done = responses(group.tick(10)) | responses(group.tick(20))
    assert {result.protocol_name for result in done.values()} == {"sticky"}
    assert {row.metadata for row in done["join-a"].members} == {b"s"}


def test_join_of_a_full_group_is_refused() -> None:
    group = new_group(max_size=1)
    group.join(join("a"), 0)
    result: JoinResult = responses(group.join(join("b"), 0))["join-b"]
    assert result.error is ErrorCode.group_max_size_reached


def test_member_too_many_that_has_an_id_loses_it() -> None:
    group = new_group(max_size=1)
    refused: JoinResult = responses(group.join(join("a", "a-id"), 0))["join-a"]
    assert (refused.error, refused.member_id) == (ErrorCode.unknown_member_id, "a-id")
    group.join(join("b"), 0)
    refused = responses(group.join(join("c", "c-id"), 0))["join-c"]
    assert (refused.error, refused.member_id) == (ErrorCode.group_max_size_reached, "")


def test_repeated_join_after_a_lost_response_gets_it_again() -> None:
    group = new_group()
    first: JoinResult = responses(group.join(join("a"), 0))["join-a"]
    again: JoinResult = responses(group.join(join("a", "a-id", token="again"), 1))["again"]
    assert again == first


def test_static_member_rejoins_without_rebalance_and_fences_its_old_id() -> None:
    group = static_group()
    effects = group.join(join("b", instance="i", skip=True), 10)
    (stored,) = writes(effects)
    assert stored.assignments == {"b-id": b"mine"}
    result: JoinResult = responses(group.metadata_written(stored, ErrorCode.none, 11))["join-b"]
    assert (result.generation, result.skip_assignment) == (1, True)
    assert group.state is GroupState.STABLE
    assert group.heartbeat("a-id", "i", 1, 12) is ErrorCode.fenced_instance_id


def test_failed_write_of_a_static_member_restores_its_old_id() -> None:
    group = static_group()
    (stored,) = writes(group.join(join("b", instance="i"), 10))
    done = responses(group.metadata_written(stored, ErrorCode.not_coordinator, 11))
    assert done["join-b"].error is ErrorCode.unknown_member_id
    assert group.heartbeat("a-id", "i", 1, 12) is ErrorCode.none


def test_failed_write_of_a_static_member_restores_its_session() -> None:
    group = static_group()
    (stored,) = writes(group.join(join("b", instance="i"), 10))
    group.metadata_written(stored, ErrorCode.not_coordinator, 11)
    assert group.member_deadlines() == {"a-id": 11 + SESSION_MS}


@pytest.mark.parametrize("first", [ErrorCode.not_coordinator, ErrorCode.none])
@pytest.mark.parametrize("in_order", [True, False])
def test_failed_write_of_a_static_member_restores_the_id_that_the_log_has(first: ErrorCode, in_order: bool) -> None:
    group = static_group()
    replaced_twice = [writes(group.join(join(name, instance="i"), 10))[0] for name in ("b", "c")]
    results = list(zip(replaced_twice, (first, ErrorCode.not_coordinator), strict=True))
    for write, error in results if in_order else reversed(results):
        group.metadata_written(write, error, 11)
    in_the_log = "b-id" if first is ErrorCode.none else "a-id"
    assert group.current_assignments() == {in_the_log: b"mine"}
    assert group.heartbeat(in_the_log, "i", 1, 12) is ErrorCode.none
    assert group.heartbeat("c-id", "i", 1, 12) is ErrorCode.fenced_instance_id


def test_close_responds_to_every_waiting_request() -> None:
    group = stable_group("a", "b")
    group.join(join("c"), 1_000)
    done = responses(group.close(ErrorCode.not_coordinator))
    assert done["join-c"].error is ErrorCode.not_coordinator
    assert group.state is GroupState.DEAD
    assert group.next_deadline_ms() is None
    late: JoinResult = responses(group.join(join("d"), 1_001))["join-d"]
    assert late.error is ErrorCode.coordinator_not_available


NAMES = st.sampled_from(["a", "b", "c", "d"])


class GroupLife(RuleBasedStateMachine):
    """Random members and times against one group."""

    def __init__(self) -> None:
        super().__init__()
        self.group = new_group(delay_ms=50, max_size=3)
        self.now_ms = 0
        self.tokens = 0
        self.waiting: set[object] = set()
        self.leaders: dict[int, str] = {}
        self.stored: list[WriteGroupMetadata] = []
        self.logged: dict[int, dict[str, bytes]] = {}
        self.last_generation = 0

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, WriteGroupMetadata):
                self.stored.append(effect)
                continue
            assert effect.token in self.waiting, "a second response"
            self.waiting.discard(effect.token)
            result = effect.result
            if isinstance(result, JoinResult) and result.members:
                assert self.leaders.setdefault(result.generation, result.leader) == result.leader
                assert result.member_id == result.leader
            if isinstance(result, SyncResult) and result.error is ErrorCode.none:
                assert self.group.generation in self.logged

    def token(self) -> int:
        self.tokens += 1
        self.waiting.add(self.tokens)
        return self.tokens

    @rule(name=NAMES, known=st.booleans(), required=st.booleans(), metadata=st.binary(max_size=1))
    def a_join(self, name: str, known: bool, required: bool, metadata: bytes) -> None:
        request = join(
            name,
            f"{name}-id" if known else "",
            token=self.token(),
            protocols=(Protocol("range", metadata),),
            required=required,
        )
        if not known and f"{name}-id" in self.group.members:
            self.waiting.discard(request.token)  # ids are unique: a member has this id already
            return
        self.take(self.group.join(request, self.now_ms))

    @rule(name=NAMES, stale=st.booleans())
    def a_sync(self, name: str, stale: bool) -> None:
        generation = self.group.generation - int(stale)
        given = dict.fromkeys(self.group.members.ids(), b"x")
        self.take(self.group.sync(sync(name, generation, given, token=self.token()), self.now_ms))

    @rule(error=st.sampled_from([ErrorCode.none, ErrorCode.none, ErrorCode.not_coordinator]))
    def write_ends(self, error: ErrorCode) -> None:
        stored, self.stored = self.stored, []
        for write in stored:
            if error is ErrorCode.none:
                self.logged[write.generation] = dict(write.assignments)
            self.take(self.group.metadata_written(write, error, self.now_ms))

    @rule(name=NAMES)
    def a_leave(self, name: str) -> None:
        _, effects = self.group.leave(f"{name}-id", None, self.now_ms)
        self.take(effects)

    @rule(name=NAMES)
    def a_heartbeat(self, name: str) -> None:
        self.group.heartbeat(f"{name}-id", None, self.group.generation, self.now_ms)

    @rule(by_ms=st.sampled_from([1, 60, 5_000, 70_000, 400_000]))
    def time_passes(self, by_ms: int) -> None:
        end = self.now_ms + by_ms
        for _ in range(100):
            due = self.group.next_deadline_ms()
            if due is None or due > end:
                break
            self.now_ms = max(self.now_ms, due)
            self.take(self.group.tick(self.now_ms))
        else:
            raise AssertionError("ticks do not make progress")
        self.now_ms = end

    @invariant()
    def generations_go_up(self) -> None:
        assert self.group.generation >= self.last_generation
        self.last_generation = self.group.generation

    @invariant()
    def stable_members_have_a_logged_assignment(self) -> None:
        if self.group.state is GroupState.STABLE:
            assert len(self.group.members)
            assert self.group.generation in self.logged
            assert all(member.assignment is not None for member in self.group.members)

    @invariant()
    def the_leader_is_a_member(self) -> None:
        if len(self.group.members):
            assert self.group.members.leader in self.group.members
            assert self.group.state is not GroupState.EMPTY

    @invariant()
    def waiting_requests_are_those_of_the_members(self) -> None:
        held = {m.joining for m in self.group.members} | {m.syncing for m in self.group.members}
        assert self.waiting == held - {None}

    def teardown(self) -> None:
        self.take(self.group.close(ErrorCode.not_coordinator))
        assert not self.waiting


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=60, stateful_step_count=40)
