"""Which broker leads a partition and which are in its ISR, after every kind of change (D4, D6). Pure functions.

Unclean elections are here, too (`unclean_state`).

Owns: the rules. Each function receives the assigned replicas (AR), the current state and which brokers are live, and
returns the next state, or None when the current state stays. Every returned state has the leader epoch + 1, so a
proposal of an older leader can be recognised.

`state_after_broker_changes` is the table for brokers that start, stop and restart:

    a broker in the ISR is        the ISR                                the leader
    --------------------------    -----------------------------------    -----------------------------------
    live since before the write   keeps it                               stays if it led
    not live                      loses it, but never its last brokers   first of AR in the ISR and live
    live, registered since        loses it, unless no other is left      as above; itself if no other is left
    (none of them is live)        stays as it is                         none (-1), or unclean: first of AR live

A registration is newer than the state that names its broker exactly when its transaction is newer (`written` <
broker epoch): the broker failed and restarted in between, whether or not a controller noticed (KIP-380).

Source: Kafka's PartitionLeaderElectionAlgorithms, ZkPartitionStateMachine, ZkReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..ids import NO_NODE, BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from .state_node import LeaderAndIsr
from .topic_node import ReplicaAssignment


def first_of(replicas: Sequence[NodeId], *conditions: Collection[NodeId]) -> NodeId | None:
    """The first of `replicas` that is in each of `conditions`."""
    for node in replicas:
        if all(node in condition for condition in conditions):
            return node
    return None


def initial_state(
    replicas: Sequence[NodeId], electable: Collection[NodeId], epoch: ControllerEpoch
) -> LeaderAndIsr | None:
    """The state of a new partition: all electable replicas are in sync. None while no replica is electable."""
    isr = tuple(node for node in replicas if node in electable)
    if not isr:
        return None
    return LeaderAndIsr(leader=isr[0], leader_epoch=LeaderEpoch(0), isr=isr, controller_epoch=epoch)


def state_after_broker_changes(
    replicas: Sequence[NodeId],
    state: LeaderAndIsr,
    live: Mapping[NodeId, BrokerEpoch],
    shutting_down: Collection[NodeId],
    *,
    unclean: bool,
) -> LeaderAndIsr | None:
    """The table of the module head. `live` maps live brokers to the epochs of their registrations."""
    steady = {node for node, epoch in live.items() if epoch <= state.written}
    isr = _first_not_empty(
        tuple(node for node in state.isr if node in steady),
        tuple(node for node in state.isr if node in live),
        state.isr,
    )
    if state.leader in steady and state.leader in isr:
        return None if isr == state.isr else _next(replicas, state, state.leader, isr)
    electable = live.keys() - set(shutting_down)
    leader = first_of(replicas, isr, electable)
    if leader is None and unclean:
        leader = first_of(replicas, electable)
        isr = isr if leader is None else (leader,)
    if leader is None:
        unchanged = not state.has_leader and isr == state.isr
        return None if unchanged else _next(replicas, state, NO_NODE, isr)
    return _next(replicas, state, leader, isr)


def preferred_state(
    replicas: Sequence[NodeId], state: LeaderAndIsr, electable: Collection[NodeId]
) -> LeaderAndIsr | None:
    """Leadership goes back to the preferred leader, if it is electable and in sync."""
    preferred = replicas[0]
    if state.leader == preferred or preferred not in state.isr or preferred not in electable:
        return None
    return _next(replicas, state, preferred, state.isr)


def state_after_shutdown(
    replicas: Sequence[NodeId], state: LeaderAndIsr, node_id: NodeId, electable: Collection[NodeId]
) -> LeaderAndIsr | None:
    """Controlled shutdown of `node_id`: another in-sync replica leads, and `node_id` leaves the ISR.

    None when `node_id` is not in the ISR, or when no other replica can lead: then it stays the leader.
    """
    isr = tuple(node for node in state.isr if node != node_id)
    if state.leader != node_id:
        changed = isr and isr != state.isr
        return _next(replicas, state, state.leader, isr) if changed else None
    leader = first_of(replicas, isr, electable)
    return None if leader is None else _next(replicas, state, leader, isr)


def unclean_state(
    replicas: Sequence[NodeId],
    state: LeaderAndIsr,
    live: Mapping[NodeId, BrokerEpoch],
    shutting_down: Collection[NodeId],
) -> LeaderAndIsr | None:
    """A leader for a partition without a live leader: from the ISR or, if none is live, any live replica (KIP-460)."""
    if state.leader in live:
        return None
    return state_after_broker_changes(replicas, state, live, shutting_down, unclean=True)


def state_during_reassignment(
    dropped: Collection[NodeId], assignment: ReplicaAssignment, state: LeaderAndIsr, live: Collection[NodeId]
) -> LeaderAndIsr | None:
    """A reassignment begins, changes its target or is cancelled: `dropped` are replicas no longer.

    None when no remaining replica could lead: then the reassignment must be refused.
    """
    isr = tuple(node for node in state.isr if node not in dropped)
    leader = state.leader
    if leader in dropped:
        leader = first_of(assignment.replicas, isr, live) or NO_NODE
    if not isr or (state.leader in dropped and leader == NO_NODE):
        return None
    return _next(assignment.replicas, state, leader, isr)


def state_after_reassignment(
    assignment: ReplicaAssignment, state: LeaderAndIsr, electable: Collection[NodeId]
) -> LeaderAndIsr | None:
    """A reassignment ends: leader and ISR within its target. None until the whole target is in sync."""
    target = assignment.target
    if not set(target) <= set(state.isr):
        return None
    leader: NodeId | None = state.leader
    if leader not in target or leader not in electable:
        leader = first_of(target, electable)
    if leader is None:
        return None
    return _next(target, state, leader, tuple(node for node in state.isr if node in target))


def _first_not_empty(*choices: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return next(choice for choice in choices if choice)


def _next(replicas: Sequence[NodeId], state: LeaderAndIsr, leader: NodeId, isr: tuple[NodeId, ...]) -> LeaderAndIsr:
    assert isr, f"{state}: the next ISR is empty"
    assert leader == NO_NODE or leader in isr, f"{state}: leader {leader} is not in ISR {isr}"
    assert set(isr) <= set(replicas), f"{state}: ISR {isr} is not within the replicas {replicas}"
    epoch = LeaderEpoch(state.leader_epoch + 1)
    return replace(state, leader=leader, isr=isr, leader_epoch=epoch)
