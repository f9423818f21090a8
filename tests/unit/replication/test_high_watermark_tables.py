"""C1 to C4 as tables, on partitions without brokers."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import BrokerEpoch, NodeId, Offset
from harrow.cluster.replication.delayed_produce import replicated_append_result

from .model import LAG_MS, Replica, state

ANY = BrokerEpoch(1)


def fetched(leader: Replica, node: int, offset: int, now: int, epoch: int = 1) -> bool:
    return leader.partition.follower_fetched(NodeId(node), Offset(offset), Offset(0), now, BrokerEpoch(epoch))


def leading(count: int, isr: tuple[int, ...] = (1, 2, 3), now: int = 0, **config: object) -> Replica:
    leader = Replica(1, config=config)
    for number in range(count):
        leader.log.put(0, str(number))
    leader.lead(1, isr, now=now)
    return leader


def test_two_fetch_rounds_make_a_record_visible_as_in_article_004() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.partition.become_leader(state(1, 0, (1, 2), replicas=(1, 2)), 0)
    follower.partition.become_follower(state(1, 0, (1, 2), replicas=(1, 2)))
    seen = [(leader.leo, leader.hw, follower.leo, follower.hw)]
    leader.produce("m0")
    seen.append((leader.leo, leader.hw, follower.leo, follower.hw))
    follower.fetch(leader)  # remote LEO 0
    seen.append((leader.leo, leader.hw, follower.leo, follower.hw))
    follower.fetch(leader)  # remote LEO 1
    seen.append((leader.leo, leader.hw, follower.leo, follower.hw))
    assert seen == [(0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 1)]


@pytest.mark.parametrize(
    ("isr", "fetches", "now", "expected"),
    [
        ((1, 2, 3), {2: 5, 3: 4}, 10, 4),  # the slowest of the ISR
        ((1, 2), {2: 5, 3: 4}, 10, 5),  # 3 is outside the ISR and never caught up
        ((1,), {2: 3, 3: 4}, 10, 10),  # the leader alone
        ((1, 2, 3), {2: 10}, 10, 0),  # 3 has not fetched in this epoch yet
    ],
)
def test_high_watermark_is_the_smallest_log_end_of_the_isr(
    isr: tuple[int, ...], fetches: dict[int, int], now: int, expected: int
) -> None:
    leader = Replica(1)
    leader.lead(1, isr)
    for number in range(10):
        leader.log.put(1, str(number))
    for node, offset in fetches.items():
        fetched(leader, node, offset, now)
    leader.partition.advance_high_watermark(now)
    assert leader.hw == expected


def test_caught_up_follower_outside_the_isr_delays_the_high_watermark() -> None:
    leader = leading(10, isr=(1,))
    fetched(leader, 2, 10, now=1)  # at the log end: caught up
    leader.produce("x", now=2)
    assert leader.hw == 10  # waits for 2, which is about to join the ISR
    leader.partition.advance_high_watermark(1 + LAG_MS)
    assert leader.hw == 10
    leader.partition.advance_high_watermark(2 + LAG_MS)
    assert leader.hw == 11  # 2 has not fetched for too long


def test_high_watermark_never_falls() -> None:
    leader = leading(10)
    fetched(leader, 2, 10, 1)
    fetched(leader, 3, 10, 1)
    assert leader.hw == 10
    fetched(leader, 3, 4, 2)
    leader.partition.advance_high_watermark(2)
    assert leader.hw == 10


def test_new_leader_epoch_resets_remote_log_ends() -> None:
    leader = leading(10)
    fetched(leader, 2, 10, 1)
    leader.lead(2, (1, 2, 3))
    fetched(leader, 3, 10, 2)
    assert leader.hw == 0  # 2's fetch was in the old epoch
    fetched(leader, 2, 10, 3)
    assert leader.hw == 10


def test_restarted_follower_counts_from_its_new_registration_only() -> None:
    leader = leading(10, isr=(1, 3))
    fetched(leader, 2, 10, 1, epoch=5)
    fetched(leader, 2, 3, 2, epoch=6)
    with pytest.raises(KafkaError) as stale:
        fetched(leader, 2, 10, 3, epoch=5)  # a late request of the earlier incarnation
    assert stale.value.code is ErrorCode.stale_broker_epoch
    fetched(leader, 3, 10, 3)
    assert leader.partition.propose_expansion(NodeId(2)) is None


def test_high_watermark_uses_the_maximal_isr_while_a_proposal_is_open() -> None:
    leader = leading(10, isr=(1, 2, 3))
    fetched(leader, 2, 10, 1)
    fetched(leader, 2, 10, 2 + LAG_MS)
    leader.partition.advance_high_watermark(2 + LAG_MS)
    shrink = leader.partition.propose_shrink(2 + LAG_MS)
    assert shrink is not None
    assert shrink.isr == (1, 2)
    leader.partition.advance_high_watermark(3 + LAG_MS)
    assert leader.hw == 0  # 3 is in the ISR until the registry accepts the proposal
    assert leader.partition.isr_accepted(shrink, 1, 3 + LAG_MS)
    assert leader.hw == 10
    expand_needs = leader.partition.propose_expansion(NodeId(3))
    assert expand_needs is None  # 3 has not fetched
    fetched(leader, 3, 10, 4 + LAG_MS)
    expand = leader.partition.propose_expansion(NodeId(3))
    assert expand is not None
    leader.produce("x", now=500)
    fetched(leader, 2, 11, 501)
    assert leader.hw == 10  # 3 counts before the registry accepts the proposal
    assert leader.partition.propose_shrink(10_000) is None  # one change at a time
    assert not leader.partition.isr_withdrawn(shrink, 10_000)  # another one
    assert leader.partition.isr_withdrawn(expand, 10_000)
    assert leader.hw == 11
    assert leader.partition.isr == (1, 2)


def test_newer_leader_and_isr_voids_an_open_proposal() -> None:
    leader = leading(10, isr=(1, 2, 3))
    shrink = leader.partition.propose_shrink(10 * LAG_MS)
    assert shrink is not None
    leader.lead(2, (1, 2), version=7)
    assert not leader.partition.isr_accepted(shrink, 1, 0)
    assert leader.partition.isr == (1, 2)
    assert leader.partition.version == 7


def test_leader_and_isr_with_the_same_epoch_changes_only_a_newer_isr() -> None:
    leader = leading(10, isr=(1, 2, 3))
    fetched(leader, 2, 10, 1)
    shrink = leader.partition.propose_shrink(10 * LAG_MS)
    assert shrink is not None
    leader.lead(1, (1, 2, 3), version=0)  # the state that the leader already has
    assert leader.partition.proposal is shrink
    leader.lead(1, (1, 2), version=1)  # its own write, received from the controller
    assert leader.partition.proposal is None
    assert leader.partition.isr == (1, 2)
    with pytest.raises(KafkaError):
        leader.lead(0, (1,), version=9)


@pytest.mark.parametrize(
    ("offset", "epoch_start", "high", "joins"),
    [(9, 0, 10, False), (10, 0, 10, True), (10, 12, 10, False), (12, 12, 10, True)],
)
def test_follower_joins_the_isr_at_the_high_watermark_and_the_epoch_start(
    offset: int, epoch_start: int, high: int, joins: bool
) -> None:
    leader = Replica(1)
    for number in range(epoch_start):
        leader.log.put(0, str(number))
    leader.partition.high_watermark = Offset(high if epoch_start else 0)
    leader.lead(1, (1, 2))
    while leader.leo < 12:
        leader.log.put(1, "x")
    leader.partition.high_watermark = Offset(high)
    fetched(leader, 3, offset, 0)
    assert (leader.partition.propose_expansion(NodeId(3)) is not None) is joins


def test_follower_that_is_always_one_fetch_behind_stays_in_sync() -> None:
    leader = leading(1, isr=(1, 2))
    for round_ in range(1, 20):
        fetched(leader, 2, round_ - 1, now=round_ * LAG_MS // 2)  # the log end at the last fetch
        leader.log.put(1, "x")
    assert leader.partition.propose_shrink(20 * LAG_MS // 2) is None
    assert leader.partition.propose_shrink(40 * LAG_MS) is not None


def test_latest_offset_is_not_available_before_the_epoch_start_is_committed() -> None:
    leader = leading(10)
    with pytest.raises(KafkaError) as refused:
        leader.partition.check_latest()
    assert refused.value.code is ErrorCode.offset_not_available
    fetched(leader, 2, 10, 1)
    fetched(leader, 3, 10, 1)
    leader.partition.check_latest()
    assert leader.partition.high_watermark == 10


def test_start_limits_the_checkpointed_high_watermark_to_the_log_end() -> None:
    replica = Replica(1)
    for number in range(5):
        replica.log.put(0, str(number))
    replica.partition.high_watermark = Offset(9)
    replica.restart()
    assert replica.hw == 5


def test_min_insync_replicas_is_checked_before_and_after_the_append() -> None:
    leader = leading(1, isr=(1,), **{"min.insync.replicas": 2})
    with pytest.raises(KafkaError) as refused:
        leader.produce("x", acks=-1)
    assert refused.value.code is ErrorCode.not_enough_replicas
    leader.produce("x", acks=1)
    partition = leader.partition
    assert replicated_append_result(partition, 2, partition.leadership_generation) is (
        ErrorCode.not_enough_replicas_after_append
    )
    assert replicated_append_result(partition, 2, partition.leadership_generation - 1) is (
        ErrorCode.not_leader_or_follower
    )
    assert replicated_append_result(partition, 3, partition.leadership_generation) is None


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.none),
        (0, ErrorCode.fenced_leader_epoch),
        (1, ErrorCode.none),
        (2, ErrorCode.unknown_leader_epoch),
    ],
)
def test_check_leader_fences_other_leader_epochs(epoch: int, error: ErrorCode) -> None:
    assert leading(1).partition.check_leader(epoch) is error
