"""Rebalances and sessions as delayed operations (E5)."""

from __future__ import annotations

import random

import pytest
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, heartbeat, join, joined, sync
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey


def delayed(bed: GroupTestBed) -> tuple[int, ...]:
    """Rebalances and sessions that wait in their purgatories."""
    return tuple(purgatory.delayed for purgatory in bed.coordinator.purgatories())


def test_rebalance_and_session_timeout_have_one_delayed_operation_each() -> None:
    """E5: a join that waits keeps its member alive; the join done, its session runs."""
    bed = GroupTestBed(group_initial_rebalance_delay_ms=3_000)
    bed.lead(HOME)
    member_id = join(bed).response.member_id
    assert delayed(bed) == (0, 1), "an id was given out"
    sent = join(bed, member_id)
    assert not sent.has_response
    assert delayed(bed) == (1, 1), "the initial delay; a newcomer, too, has a deadline (KIP-394)"
    bed.host.advance(3_000)
    assert sent.response.error_code is ErrorCode.none
    assert delayed(bed) == (1, 1), "the sync that is to come, and the session"
    assert sync(bed, member_id, sent.response.generation_id).response.error_code is ErrorCode.none
    bed.host.advance(60_000)  # the sync deadline passes without effect, and the session times out
    assert delayed(bed) == (0, 0)
    assert heartbeat(bed, member_id, sent.response.generation_id) is ErrorCode.unknown_member_id


def test_heartbeat_replaces_the_delayed_operation_of_the_session(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    for _ in range(3):
        bed.host.advance(9_999)
        assert heartbeat(bed, member_id, generation) is ErrorCode.none
        assert delayed(bed)[1] == 1
    bed.host.advance(9_999)
    assert commit(bed, 5, member_id, generation).has_response, "a commit proves it alive, too"
    bed.host.advance(9_999)
    assert heartbeat(bed, member_id, generation) is ErrorCode.none
    bed.host.advance(10_001)
    assert heartbeat(bed, member_id, generation) is ErrorCode.unknown_member_id
    assert delayed(bed) == (0, 0)


@pytest.mark.parametrize("end", ["leave", "resign"])
def test_removed_member_has_no_delayed_operation(bed: GroupTestBed, end: str) -> None:
    member_id, _ = joined(bed)
    assert delayed(bed)[1] == 1
    if end == "leave":
        bed.send(ApiKey.LEAVE_GROUP, 1, group_id=GROUP, member_id=member_id)
    else:
        bed.resign(HOME)
    assert delayed(bed) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_random_requests_keep_one_delayed_operation_for_each_deadline(seed: int) -> None:
    """Each deadline of a group has exactly one operation, and no removed member has one."""
    rng = random.Random(seed)
    bed = GroupTestBed(group_initial_rebalance_delay_ms=rng.choice([0, 3_000]))
    bed.lead(HOME)
    known: list[str] = [""]
    most = 0

    def step() -> None:
        member_id = rng.choice(known)
        match rng.randrange(6):
            case 0 | 1:
                sent = join(bed, rng.choice(["", member_id]))
                if sent.has_response and sent.response.member_id:
                    known.append(sent.response.member_id)
            case 2:
                sync(bed, member_id, rng.randrange(1, 4))
            case 3:
                heartbeat(bed, member_id, rng.randrange(1, 4))
            case 4:
                bed.host.advance(rng.choice([1, 500, 4_000]))
            case _:
                bed.send(ApiKey.LEAVE_GROUP, 1, group_id=GROUP, member_id=member_id)

    for _ in range(80):
        step()
        (shard,) = bed.coordinator.service.shards()
        groups = [hosted.group for hosted in shard]
        phases = sum(group.phase_deadline_ms() is not None for group in groups)
        sessions = sum(len(group.member_deadlines()) for group in groups)
        assert delayed(bed) == (phases, sessions)
        most = max(most, sessions)
    assert most > 1
    bed.resign(HOME)
    assert delayed(bed) == (0, 0)
