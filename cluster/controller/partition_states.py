"""Who leads a partition and who is in its ISR, after anything that can happen (D4, D6). Pure functions.

Owns: the rules. Each takes the assigned replicas (AR), the present state and the brokers' standing, and
returns the state that should be, or None when the present one stands. Every returned state has the leader
epoch + 1, so that what an older leader proposes can be told from what came after it.

`settle` is the whole table for brokers that come, go and bounce:

    a broker in the ISR is        the ISR                              the leader
    --------------------------    ---------------------------------    -----------------------------------
    alive as when it was written  keeps it                             stays if it led
    gone                          loses it, but never its last ones    first of AR in the ISR and alive
    back under a newer epoch      loses it, unless no other is left    as gone; itself if no other is left
    (all are gone)                is kept as it was                    none (-1), or unclean: first of AR alive

A registration is newer than the state that names its broker exactly when its transaction is (`written` <
broker epoch): the broker failed and started since, whether or not any controller watched (KIP-380).

Source: Kafka's PartitionLeaderElectionAlgorithms, ZkPartitionStateMachine, ZkReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..ids import NO_NODE, BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from .state import Assignment, PartitionState


def first_of(replicas: Sequence[NodeId], *conditions: Collection[NodeId]) -> NodeId | None:
    """The first of `replicas` that is in each of `conditions`."""
    for node in replicas:
        if all(node in condition for condition in conditions):
            return node
    return None


def initial(
    replicas: Sequence[NodeId], electable: Collection[NodeId], epoch: ControllerEpoch
) -> PartitionState | None:
    """A new partition: all that are alive are in sync; None while none is."""
    isr = tuple(node for node in replicas if node in electable)
    if not isr:
        return None
    return PartitionState(
        leader=isr[0], leader_epoch=LeaderEpoch(0), isr=isr, controller_epoch=epoch
    )


def settle(
    replicas: Sequence[NodeId],
    state: PartitionState,
    live: Mapping[NodeId, BrokerEpoch],
    shutting_down: Collection[NodeId],
    *,
    unclean: bool,
) -> PartitionState | None:
    """The table above. `live` maps brokers to the epochs of their registrations."""
    steady = {node for node, epoch in live.items() if epoch <= state.written}
    isr = _first_not_empty(
        tuple(node for node in state.isr if node in steady),
        tuple(node for node in state.isr if node in live),
        state.isr,
    )
    if state.leader in steady and state.leader in isr:
        return None if isr == state.isr else _next(state, state.leader, isr)
    electable = live.keys() - set(shutting_down)
    leader = first_of(replicas, isr, electable)
    if leader is None and unclean:
        leader = first_of(replicas, electable)
        isr = isr if leader is None else (leader,)
    if leader is None:
        return None if state.leader == NO_NODE and isr == state.isr else _next(state, NO_NODE, isr)
    return _next(state, leader, isr)


def preferred(
    replicas: Sequence[NodeId], state: PartitionState, electable: Collection[NodeId]
) -> PartitionState | None:
    """Leadership back to the first assigned replica, where it is alive and in sync."""
    first = replicas[0]
    if state.leader == first or first not in state.isr or first not in electable:
        return None
    return _next(state, first, state.isr)


def leave(
    replicas: Sequence[NodeId],
    state: PartitionState,
    node_id: NodeId,
    electable: Collection[NodeId],
) -> PartitionState | None:
    """Controlled shutdown of `node_id`: its leadership to another in-sync replica, and it out of the ISR.

    None when it has no part in it, or when no other can take over (it stays the leader then).
    """
    isr = tuple(node for node in state.isr if node != node_id)
    if state.leader != node_id:
        return _next(state, state.leader, isr) if isr and isr != state.isr else None
    leader = first_of(replicas, isr, electable)
    return None if leader is None else _next(state, leader, isr)


def unclean(
    replicas: Sequence[NodeId],
    state: PartitionState,
    live: Mapping[NodeId, BrokerEpoch],
    shutting_down: Collection[NodeId],
) -> PartitionState | None:
    """A leader for a partition that has none alive, from the ISR or, failing that, from anywhere (KIP-460)."""
    if state.leader in live:
        return None
    return settle(replicas, state, live, shutting_down, unclean=True)


def moving(
    dropped: Collection[NodeId],
    assignment: Assignment,
    state: PartitionState,
    live: Collection[NodeId],
) -> PartitionState | None:
    """A reassignment begins, turns or is cancelled: `dropped` are no replicas any more.

    None when nobody of those that stay could lead: it must not be done.
    """
    isr = tuple(node for node in state.isr if node not in dropped)
    leader = state.leader
    if leader in dropped:
        leader = first_of(assignment.replicas, isr, live) or NO_NODE
    return (
        None
        if not isr or (state.leader in dropped and leader == NO_NODE)
        else _next(state, leader, isr)
    )


def moved(
    assignment: Assignment, state: PartitionState, electable: Collection[NodeId]
) -> PartitionState | None:
    """A reassignment ends: leader and ISR within its target. None until all of the target is in sync."""
    target = assignment.target
    if not set(target) <= set(state.isr):
        return None
    leader: NodeId | None = state.leader
    if leader not in target or leader not in electable:
        leader = first_of(target, electable)
    if leader is None:
        return None
    return _next(state, leader, tuple(node for node in state.isr if node in target))


def _first_not_empty(*choices: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return next(choice for choice in choices if choice)


def _next(state: PartitionState, leader: NodeId, isr: tuple[NodeId, ...]) -> PartitionState:
    epoch = LeaderEpoch(state.leader_epoch + 1)
    return replace(state, leader=leader, isr=isr, leader_epoch=epoch)
