"""Reassignment and unclean elections as pure rules (C9, D4, KIP-455, KIP-460)."""

from __future__ import annotations

from harrow.cluster.controller.partition_states import (
    state_after_reassignment,
    state_during_reassignment,
    unclean_state,
)
from harrow.cluster.controller.state_node import LeaderAndIsr
from harrow.cluster.controller.topic_node import ReplicaAssignment, topic_json
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from hypothesis import given
from hypothesis import strategies as st

NODES = st.lists(st.integers(1, 6).map(NodeId), min_size=1, max_size=4, unique=True)


def ids(*nodes: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(node) for node in nodes)


def state(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(5),
        isr=ids(*isr),
        controller_epoch=ControllerEpoch(1),
        version=7,
        written=100,
    )


def test_assignment_goes_toward_a_target_and_back() -> None:
    first = ReplicaAssignment(replicas=ids(1, 2, 3))
    there = first.toward(ids(4, 1))
    assert there == ReplicaAssignment(replicas=ids(4, 1, 2, 3), adding=ids(4), removing=ids(2, 3))
    assert (there.target, there.origin) == (ids(4, 1), ids(1, 2, 3))
    assert there.toward(there.origin) == first
    turned = there.toward(ids(5, 2))  # 4 is wanted no more
    assert turned == ReplicaAssignment(replicas=ids(5, 2, 1, 3), adding=ids(5), removing=ids(1, 3))


@given(NODES, NODES, NODES)
def test_any_assignment_reaches_its_target_and_its_origin(
    first: list[NodeId], second: list[NodeId], third: list[NodeId]
) -> None:
    origin = ReplicaAssignment(replicas=tuple(first))
    way = origin.toward(second).toward(third)
    assert way.target == tuple(third)
    assert set(way.origin) == set(first)
    assert set(way.replicas) == set(first) | set(third)
    assert not set(way.adding) & set(way.removing)
    assert not way.toward(way.origin).is_reassigned


def test_reassignment_ends_only_when_the_whole_target_is_in_sync() -> None:
    way = ReplicaAssignment(replicas=ids(1, 2)).toward(ids(3, 4))
    everybody = ids(1, 2, 3, 4)
    assert state_after_reassignment(way, state(1, 1, 2, 3), everybody) is None
    ended = state_after_reassignment(way, state(1, 1, 2, 3, 4), everybody)
    assert ended is not None
    assert (ended.leader, ended.isr, ended.leader_epoch) == (3, ids(3, 4), 6)
    assert state_after_reassignment(way, state(1, 1, 2, 3, 4), ids(1, 2)) is None  # no electable target
    stays = state_after_reassignment(
        ReplicaAssignment(replicas=ids(1, 2)).toward(ids(2, 1, 3)), state(1, 1, 2, 3), everybody
    )
    assert stays is not None
    assert stays.leader == 1


def test_dropped_replicas_leave_the_isr_unless_none_would_remain() -> None:
    way = ReplicaAssignment(replicas=ids(1, 2)).toward(ids(3))
    back = way.toward(way.origin)
    found = state_during_reassignment({NodeId(3)}, back, state(1, 1, 3), ids(1, 2, 3))
    assert found is not None
    assert (found.leader, found.isr) == (1, ids(1))
    led = state_during_reassignment({NodeId(3)}, back, state(3, 3, 2), ids(1, 2, 3))
    assert led is not None
    assert (led.leader, led.isr) == (2, ids(2))
    assert state_during_reassignment({NodeId(3)}, back, state(3, 3), ids(1, 2, 3)) is None
    assert state_during_reassignment({NodeId(3)}, back, state(3, 3, 2), ids(1, 3)) is None


def test_unclean_election_happens_only_without_a_live_leader() -> None:
    live = {NodeId(2): BrokerEpoch(1), NodeId(3): BrokerEpoch(1)}
    assert unclean_state(ids(1, 2, 3), state(2, 2), live, ()) is None
    found = unclean_state(ids(1, 2, 3), state(-1, 1), live, ())
    assert found is not None
    assert (found.leader, found.isr) == (2, ids(2))


def test_topic_node_lists_only_partitions_that_are_reassigned() -> None:
    text = topic_json(
        None, {0: ReplicaAssignment(replicas=ids(1)), 1: ReplicaAssignment(replicas=ids(1)).toward(ids(2))}
    )
    assert text == (
        '{"version":3,"topic_id":null,"partitions":{"0":[1],"1":[2,1]},'
        '"adding_replicas":{"1":[2]},"removing_replicas":{"1":[1]}}'
    )
