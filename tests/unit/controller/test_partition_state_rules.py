"""D4 and D6 as tables: brokers go, come and bounce; who leads, who is in sync."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from harrow.cluster.controller.partition_states import (
    initial_state,
    preferred_state,
    state_after_broker_changes,
    state_after_shutdown,
)
from harrow.cluster.controller.state_node import LeaderAndIsr, parse_state
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from harrow.cluster.registry import Stat
from hypothesis import given
from hypothesis import strategies as st

WRITTEN = 100
EPOCH = LeaderEpoch(5)


def ids(*nodes: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(node) for node in nodes)


def state(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader=NodeId(leader),
        leader_epoch=EPOCH,
        isr=ids(*isr),
        controller_epoch=ControllerEpoch(1),
        version=7,
        written=WRITTEN,
    )


def live(old: Collection[int], new: Collection[int] = ()) -> dict[NodeId, BrokerEpoch]:
    found = {NodeId(node): BrokerEpoch(WRITTEN - 1) for node in old}
    return found | {NodeId(node): BrokerEpoch(WRITTEN + 1) for node in new}


# leader, ISR | live since before, registered since | unclean -> leader, ISR; None: nothing changes
SETTLED = {
    "all is well": ((1, (1, 2, 3)), ((1, 2, 3), ()), False, None),
    "the leader died": ((1, (1, 2, 3)), ((2, 3), ()), False, (2, (2, 3))),
    "AR order, not ISR order": ((1, (3, 1, 2)), ((2, 3), ()), False, (2, (3, 2))),
    "first in AR is not in sync": ((1, (1, 3)), ((2, 3), ()), False, (3, (3,))),
    "a follower in sync died": ((1, (1, 2, 3)), ((1, 3), ()), False, (1, (1, 3))),
    "a follower out of sync died": ((1, (1, 2)), ((1, 2), ()), False, None),
    "leader and follower died": ((1, (1, 2, 3)), ((3,), ()), False, (3, (3,))),
    "the last in sync died": ((1, (1,)), ((2, 3), ()), False, (-1, (1,))),
    "all in sync died at once": ((1, (1, 2)), ((3,), ()), False, (-1, (1, 2))),
    "unclean": ((1, (1,)), ((2, 3), ()), True, (2, (2,))),
    "unclean, nobody alive": ((1, (1,)), ((), ()), True, (-1, (1,))),
    "offline stays offline": ((-1, (1,)), ((2, 3), ()), False, None),
    "offline, unclean now allowed": ((-1, (1,)), ((2, 3), ()), True, (2, (2,))),
    "the last in sync is back": ((-1, (1,)), ((2, 3), (1,)), False, (1, (1,))),
    "one of the last is back": ((-1, (1, 2)), ((3,), (2,)), False, (2, (2,))),
    "a replica out of sync is back": ((1, (1, 2)), ((1, 2), (3,)), False, None),
    "the leader bounced": ((1, (1, 2, 3)), ((2, 3), (1,)), False, (2, (2, 3))),
    "a follower bounced": ((1, (1, 2, 3)), ((1, 3), (2,)), False, (1, (1, 3))),
    "the only one in sync bounced": ((1, (1,)), ((2, 3), (1,)), False, (1, (1,))),
    "all in sync bounced": ((2, (2, 1)), ((3,), (1, 2)), False, (1, (2, 1))),
    "the whole cluster restarted": ((2, (1, 2, 3)), ((), (1, 2, 3)), False, (1, (1, 2, 3))),
    "one of a stopped cluster is back": ((2, (1, 2, 3)), ((), (3,)), False, (3, (3,))),
    "bounced beats unclean": ((1, (1,)), ((2,), (1,)), True, (1, (1,))),
}


@pytest.mark.parametrize("name", SETTLED)
def test_broker_changes_follow_the_table(name: str) -> None:
    (leader, isr), (old, new), unclean, expected = SETTLED[name]
    before = state(leader, *isr)
    after = state_after_broker_changes(ids(1, 2, 3), before, live(old, new), (), unclean=unclean)
    if expected is None:
        assert after is None
    else:
        assert after is not None
        assert (after.leader, after.isr) == expected
        assert after.leader_epoch == EPOCH + 1
        assert after.version == before.version  # what the write is conditional on


def test_broker_in_controlled_shutdown_is_not_elected() -> None:
    after = state_after_broker_changes(ids(1, 2, 3), state(1, 1, 2, 3), live((2, 3)), ids(2), unclean=False)
    assert after is not None
    assert (after.leader, after.isr) == (3, (2, 3))


nodes = st.sets(st.integers(1, 4))


@given(st.permutations(range(1, 5)), nodes, nodes, nodes, st.data(), st.booleans())
def test_broker_changes_keep_a_replica_with_the_acknowledged_records(
    replicas: list[int], isr: set[int], old: set[int], new: set[int], data: st.DataObject, unclean: bool
) -> None:
    isr = isr or {1}
    leader = data.draw(st.sampled_from([-1, *sorted(isr)]))
    before = state(leader, *sorted(isr))
    brokers = live(old, new - old)
    after = state_after_broker_changes(ids(*replicas), before, brokers, (), unclean=unclean) or before
    assert after.isr
    if not unclean:
        assert set(after.isr) <= isr
    assert after.leader in (-1, *after.isr)
    assert after.leader == -1 or after.leader in brokers
    assert (after.leader == -1) == (not brokers.keys() & isr and (not unclean or not brokers))
    # once written, the state stays
    written = LeaderAndIsr(
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        controller_epoch=after.controller_epoch,
        version=8,
        written=WRITTEN + 2,
    )
    assert state_after_broker_changes(ids(*replicas), written, brokers, (), unclean=unclean) is None


@pytest.mark.parametrize(("alive", "expected"), [((1, 2, 3), (1, (1, 2, 3))), ((3, 2), (2, (2, 3))), ((4,), None)])
def test_new_partition_starts_with_its_electable_replicas(
    alive: tuple[int, ...], expected: tuple[int, tuple[int, ...]] | None
) -> None:
    found = initial_state(ids(1, 2, 3), ids(*alive), ControllerEpoch(1))
    assert (found and (found.leader, found.isr, found.leader_epoch)) == (expected and (*expected, 0))


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "expected"),
    [(2, (1, 2), (1, 2, 3), 1), (1, (1, 2), (1, 2, 3), None), (2, (2, 3), (1, 2, 3), None), (2, (1, 2), (2, 3), None)],
)
def test_preferred_leader_is_elected_if_in_sync(
    leader: int, isr: tuple[int, ...], alive: tuple[int, ...], expected: int | None
) -> None:
    found = preferred_state(ids(1, 2, 3), state(leader, *isr), ids(*alive))
    assert (found and found.leader) == expected


@pytest.mark.parametrize(
    ("leader", "isr", "electable", "expected"),
    [
        (1, (1, 2, 3), (2, 3), (2, (2, 3))),
        (1, (1, 3), (2, 3), (3, (3,))),
        (1, (1,), (2, 3), None),
        (1, (1, 2), (3,), None),
        (2, (1, 2, 3), (2, 3), (2, (2, 3))),
        (2, (2, 3), (2, 3), None),
        (-1, (1,), (2, 3), None),
    ],
)
def test_broker_in_shutdown_leaves_the_isr(
    leader: int, isr: tuple[int, ...], electable: tuple[int, ...], expected: tuple[int, tuple[int, ...]] | None
) -> None:
    found = state_after_shutdown(ids(1, 2, 3), state(leader, *isr), NodeId(1), ids(*electable))
    assert (found and (found.leader, found.isr)) == expected


def test_state_node_has_the_json_of_kafka() -> None:
    before = state(1, 1, 2)
    text = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}'
    assert before.to_json() == text
    assert parse_state(text, Stat(7, 1, WRITTEN, 0, 0)) == before
