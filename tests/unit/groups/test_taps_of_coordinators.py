"""What coordinators write to the tap of a group when the group moves from one to the other (J6)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from consumer_group_requests import REBALANCE_MS, consumer_heartbeat, consumer_join
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, join, joined, leave
from harrow.cluster.host.seam import NoTap, TappedGroup
from harrow.cluster.ids import TopicPartition


class ListedTap(NoTap):
    """A tap that stores its rows about members and groups."""

    enabled = True

    def __init__(self) -> None:
        self.owners: list[tuple[str, int, int, int]] = []
        self.states: list[tuple[str, int, int, int]] = []
        self.timeouts_ms: set[int] = set()

    def group(self, group: str, now: TappedGroup, *, partition: int, leader_epoch: int) -> None:
        """One call."""
        assert (group, partition) == (GROUP, HOME)
        self.states.append((now.state, now.generation, now.members, leader_epoch))
        self.timeouts_ms.add(now.timeout_ms)

    def member(
        self,
        group: str,
        member: str,
        client: str,
        *,
        generation: int,
        partitions: Iterable[TopicPartition],
        leader_epoch: int = -1,
        instance: str | None = None,
    ) -> None:
        """One call."""
        del group, client, instance
        self.owners.append((member, generation, len(list(partitions)), leader_epoch))


@pytest.fixture
def tap(bed: GroupTestBed) -> ListedTap:
    made = bed.host.tap = ListedTap()
    return made


def test_a_new_coordinator_reports_the_owners_of_a_consumer_group(bed: GroupTestBed, tap: ListedTap) -> None:
    consumer_join(bed, "a")
    assert tap.owners == [("a", 2, 3, 1)]
    bed.resign(HOME)
    bed.lead(HOME)
    assert tap.owners[1:] == [("a", 2, 3, 2)]


def test_the_tap_has_each_state_of_a_classic_group(bed: GroupTestBed, tap: ListedTap) -> None:
    member, _ = joined(bed)
    second = join(bed).response.member_id
    join(bed, second)
    leave(bed, second)
    leave(bed, member)
    assert tap.states == [
        ("CompletingRebalance", 1, 1, 1),
        ("Stable", 1, 1, 1),
        ("PreparingRebalance", 1, 2, 1),
        ("PreparingRebalance", 1, 1, 1),
        ("Empty", 2, 0, 1),
    ]
    assert max(tap.timeouts_ms) == 60_000


def test_the_tap_has_each_state_of_a_consumer_group(bed: GroupTestBed, tap: ListedTap) -> None:
    consumer_join(bed, "a")
    consumer_join(bed, "b")
    assert tap.states == [("Stable", 2, 1, 1), ("Reconciling", 3, 2, 1)]
    assert max(tap.timeouts_ms) >= REBALANCE_MS
    consumer_heartbeat(bed, "a", -1)
    consumer_heartbeat(bed, "b", -1)
    assert tap.states[-1] == ("Empty", 5, 0, 1)


def test_a_new_coordinator_reports_the_state_that_its_log_has(bed: GroupTestBed, tap: ListedTap) -> None:
    joined(bed)
    join(bed, join(bed).response.member_id)  # a rebalance, which the log does not have
    assert tap.states[-1] == ("PreparingRebalance", 1, 2, 1)
    before = len(tap.states)
    bed.resign(HOME)
    bed.lead(HOME)
    assert tap.states[before:] == [("Stable", 1, 1, 2)]


def test_commits_without_a_member_have_no_state(bed: GroupTestBed, tap: ListedTap) -> None:
    assert not commit(bed, 7).response.topics[0].partitions[0].error_code
    assert not tap.states


def expired(bed: GroupTestBed) -> list[tuple[object, object, object]]:
    """The members that lost their membership by the trace: group, member, partition of `__consumer_offsets`."""
    return [
        (fields["group"], fields["member"], fields["partition"])
        for event, fields in bed.host.events
        if event == "group.member-expired"
    ]


def test_the_trace_has_a_classic_member_whose_session_timed_out_and_none_that_left(bed: GroupTestBed) -> None:
    left, _ = joined(bed)
    leave(bed, left)
    member, _ = joined(bed)
    assert not expired(bed)
    bed.host.advance(60_000)
    assert expired(bed) == [(GROUP, member, HOME)]


def test_the_trace_has_a_member_of_kip_848_whose_session_timed_out(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    bed.host.advance(44_000)
    assert not expired(bed)
    bed.host.advance(2_000)
    assert expired(bed) == [(GROUP, "a", HOME)]
