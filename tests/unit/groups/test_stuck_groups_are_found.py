"""Coordinators with a bug, whose groups are stuck by their taps; correct ones, whose groups are not (L4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from consumer_group_requests import ModelConsumer
from group_fakes import GroupTestBed
from group_requests import heartbeat, join, joined
from harrow.cluster.groups.consumer import heartbeats
from harrow.cluster.groups.consumer.consumer_group import ConsumerGroup
from harrow.cluster.groups.consumer.members import MemberState
from harrow.cluster.groups.consumer.reconciliation import reconcile
from harrow.cluster.groups.group_members import GroupMembers
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.checks.stuck_groups import stuck_groups
from harrow.harness.histories.group_states import GroupsAtTheEnd, read_group_rows

Scenario = Callable[[GroupTestBed], Iterator[None]]
"""Yields after each step."""
LONG_MS, BEAT_MS = 120_000, 3_000


@pytest.fixture
def judge(bed: GroupTestBed, tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    broker = tmp_path / "cluster" / "broker-1"
    broker.mkdir(parents=True)
    tap = bed.host.tap = FileTap(str(broker), bed.host.clock)

    def judged() -> list[str]:
        listed = bed.send(ApiKey.LIST_GROUPS, 4).response.groups
        states = {row.group_id: row.group_state for row in listed}
        end = GroupsAtTheEnd(asked_ns=bed.host.clock.monotonic_ns(), states=states)
        findings = stuck_groups(read_group_rows(tmp_path), end, ())
        assert not findings.doubts
        return [anomaly.name for anomaly in findings.anomalies]

    yield judged
    tap.close()


def a_member_that_does_not_join_again(bed: GroupTestBed) -> Iterator[None]:
    """It sends heartbeats, so its session lasts; the new member waits for it."""
    member, generation = joined(bed)
    second = join(bed).response.member_id
    waiting = join(bed, second)
    for _ in range(LONG_MS // BEAT_MS):
        bed.host.advance(BEAT_MS)
        yield
        heartbeat(bed, member, generation)
        if waiting.has_response:
            generation = waiting.response.generation_id
            waiting = join(bed, second)


def a_member_that_gets_partitions_of_another_one(bed: GroupTestBed) -> Iterator[None]:
    """Both send heartbeats as a client does."""
    first, second = ModelConsumer(bed, "a"), ModelConsumer(bed, "b")
    first.beat()
    for _ in range(LONG_MS // BEAT_MS):
        bed.host.advance(BEAT_MS)
        yield
        first.beat()
        second.beat()


def a_member_that_does_not_revoke(bed: GroupTestBed) -> Iterator[None]:
    """It sends heartbeats with all its partitions, until it is fenced."""
    first, second = ModelConsumer(bed, "a"), ModelConsumer(bed, "b")
    first.beat()
    held, epoch = dict(first.owned), first.epoch
    for _ in range(LONG_MS // BEAT_MS):
        bed.host.advance(BEAT_MS)
        yield
        first.owned, first.epoch = dict(held), epoch
        first.beat()
        second.beat()


def no_timeout_ms(members: GroupMembers) -> int:
    """The coordinator forgets the rebalance timeout."""
    assert members
    return 100 * LONG_MS


def never_released(member: Any, *arguments: Any) -> Any:
    """A member that waits for partitions of another one waits for ever."""
    waits = member.current.state is MemberState.UNRELEASED_PARTITIONS
    return member.current if waits else reconcile(member, *arguments)


def no_deadline(_: ConsumerGroup, member: Any) -> None:
    """The coordinator forgets the rebalance timeout."""
    assert member.member_id


PLANTED: tuple[tuple[Scenario, object, str, Any], ...] = (
    (a_member_that_does_not_join_again, GroupMembers, "rebalance_timeout_ms", no_timeout_ms),
    (a_member_that_gets_partitions_of_another_one, heartbeats, "reconcile", never_released),
    (a_member_that_does_not_revoke, ConsumerGroup, "watch_revocation", no_deadline),
)
NAMES = [scenario.__name__ for scenario, *_ in PLANTED]


@pytest.mark.parametrize(("scenario", "where", "name", "bug"), PLANTED, ids=NAMES)
def test_a_coordinator_that_waits_for_ever_is_found(
    bed: GroupTestBed,
    judge: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    where: object,
    name: str,
    bug: Any,
) -> None:
    monkeypatch.setattr(where, name, bug)
    for _ in scenario(bed):
        pass
    assert judge() == ["stuck-group"]


@pytest.mark.parametrize("scenario", [scenario for scenario, *_ in PLANTED], ids=NAMES)
def test_members_that_are_slow_within_their_timeouts_make_no_group_stuck(
    bed: GroupTestBed, judge: Callable[[], list[str]], scenario: Scenario
) -> None:
    for _ in scenario(bed):
        assert judge() == []
