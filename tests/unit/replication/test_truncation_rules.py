"""C7: each truncation strategy on its table, and the two failures of article 004 under each strategy."""

from __future__ import annotations

import pytest
from harrow.cluster.ids import Offset
from harrow.cluster.replication import STRATEGIES
from harrow.cluster.replication.truncation_strategies import TruncationPoint
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

from .model import Replica, state

NAMES = ("high-watermark", "kip-101", "kip-279", "kip-320")
TWO = (1, 2)


def pair(rule: str) -> tuple[Replica, Replica]:
    """A (1) leads B (2); B has both records, and B's HW is below the second (article 004, 3.1)."""
    a, b = Replica(1, rule), Replica(2, rule)
    a.partition.become_leader(state(1, 0, TWO, replicas=TWO), 0)
    b.follow(a, 0, TWO)
    for value in ("m0", "m1"):
        a.produce(value)
        b.fetch(a)
    b.fetch(a)
    b.partition.high_watermark = Offset(1)  # B never received the response of its last fetch
    assert (a.leo, a.hw, b.leo, b.hw) == (2, 2, 2, 1)
    return a, b


@pytest.mark.parametrize("rule", NAMES)
def test_restart_and_election_of_b_loses_a_record_only_by_high_watermark(rule: str) -> None:
    a, b = pair(rule)
    b.restart()
    b.follow(a, 1, TWO)
    b.partition.become_leader(state(2, 2, TWO, replicas=TWO), 0)
    a.restart()
    a.follow(b, 2, TWO)
    for _ in range(4):
        a.fetch(b)
    values = [value for _, value in b.log.records]
    assert a.log.records == b.log.records
    assert values == (["m0"] if rule == "high-watermark" else ["m0", "m1"])


@pytest.mark.parametrize("rule", NAMES)
def test_power_loss_and_election_of_b_diverges_only_by_high_watermark(rule: str) -> None:
    a, b = pair(rule)
    del b.log.records[1:]  # power loss: m1 never reached B's disk
    b.restart()
    b.partition.become_leader(state(2, 1, (2,), replicas=TWO), 0)
    b.produce("other")
    a.restart()
    a.follow(b, 1, TWO)
    for _ in range(4):
        a.fetch(b)
    agree = a.log.records == b.log.records
    assert agree is (rule != "high-watermark")


def epochs_of(replica: Replica, *records: int) -> None:
    for number, epoch in enumerate(records):
        replica.log.put(epoch, str(number))


@pytest.mark.parametrize(
    ("rule", "epoch", "end", "expected"),
    [
        ("kip-101", -1, -1, TruncationPoint(offset=3, done=True)),  # unknown at the leader: truncates to the HW
        ("kip-101", 1, 12, TruncationPoint(offset=12, done=True)),
        ("kip-101", 3, 50, TruncationPoint(offset=20, done=True)),
        ("kip-279", -1, -1, TruncationPoint(offset=3, done=True)),
        ("kip-279", 1, 12, TruncationPoint(offset=10, done=True)),  # the head's worked example
        ("kip-279", 2, 15, TruncationPoint(offset=15, done=True)),
        ("kip-279", 2, 50, TruncationPoint(offset=20, done=True)),
        ("kip-279", 0, 5, TruncationPoint(offset=0, done=True)),
        ("kip-320", 1, 12, TruncationPoint(offset=10, done=True)),
    ],
)
def test_truncation_point_of_each_strategy(rule: str, epoch: int, end: int, expected: TruncationPoint) -> None:
    follower = Replica(2)
    epochs_of(follower, *[1] * 10, *[2] * 10)
    follower.partition.append_as_follower(None, 3, 0)
    assert STRATEGIES[rule].answered(follower.partition, epoch, end) == expected


def test_kip_279_truncates_its_own_later_epoch_and_requests_again() -> None:
    follower = Replica(2)
    epochs_of(follower, *[1] * 5, *[4] * 5)
    point = STRATEGIES["kip-279"].answered(follower.partition, 3, 7)
    assert point == TruncationPoint(offset=5, done=False)


HISTORY = st.lists(st.integers(1, 6), min_size=0, max_size=5)


@examples(66, 200)
@given(st.integers(0, 4), HISTORY, HISTORY, st.sampled_from(("kip-279", "kip-320")))
def test_any_two_logs_agree_after_truncation_and_fetches(
    common: int, leader_more: list[int], follower_more: list[int], rule: str
) -> None:
    """Leader epochs are unique: here even epochs are the leader's, odd epochs the follower's."""
    leader, follower = Replica(1, rule), Replica(2, rule)
    for number in range(common):
        for replica in (leader, follower):
            replica.log.put(1, f"common-{number}")
    for replica, more, parity in ((leader, leader_more, 0), (follower, follower_more, 1)):
        for epoch in sorted(more):
            replica.log.put(10 + 2 * epoch + parity, f"{replica.node}-{replica.leo}")
    leader.partition.become_leader(state(1, 100, TWO, replicas=TWO), 0)
    follower.follow(leader, 100, TWO)
    for _ in range(20):
        follower.fetch(leader)
    assert follower.log.records == leader.log.records
    assert leader.hw == leader.leo
