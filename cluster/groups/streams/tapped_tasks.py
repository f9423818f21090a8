"""Reports to the tap which members of a streams group have which partitions as active tasks, and its state (J6, L4).

Owns: no state; each change of the group is compared with the state before. A member owns the partitions of the source
and repartition topics of its active tasks, assigned or to be revoked but not acknowledged yet.
"""

from __future__ import annotations

from ...host.seam import Tap, TappedGroup
from ...ids import TopicPartition
from .group_state import StreamsData
from .members import StreamsMember
from .topology import Topology


def tapped_state(data: StreamsData, session_timeout_ms: int) -> TappedGroup:
    """The group as the tap has it."""
    timeouts = [session_timeout_ms] if data.members else []
    timeouts += [member.metadata.rebalance_timeout_ms for member in data.members.values()]
    return TappedGroup(data.state().value, data.epoch, len(data.members), max(timeouts, default=0))


def report_tasks(tap: Tap, group_id: str, before: StreamsData, after: StreamsData, leader_epoch: int) -> None:
    """Report every member whose partitions changed; those that lost partitions first."""
    gained: list[StreamsMember] = []
    topology = after.topology or before.topology
    for member_id in dict.fromkeys((*before.members, *after.members)):
        old, new = before.members.get(member_id), after.members.get(member_id)
        held, had = _owned(new, topology), _owned(old, topology)
        if new is not None and held - had:
            gained.append(new)
        elif held != had:
            member = new or old
            assert member is not None, "a member that changed"
            generation = after.epoch if new is None else max(member.epoch, 0)
            _report(tap, group_id, member, held, generation, leader_epoch)
    for member in gained:
        _report(tap, group_id, member, _owned(member, topology), max(member.epoch, 0), leader_epoch)


def _owned(member: StreamsMember | None, topology: Topology | None) -> set[TopicPartition]:
    if member is None or topology is None:
        return set()
    inputs = {row.subtopology_id: tuple(row.inputs()) for row in topology.subtopologies}
    current = member.current
    return {
        TopicPartition(topic, task.partition)
        for task in (*current.assigned.active, *current.revoking.active)
        for topic in inputs.get(task.subtopology, ())
    }


def _report(
    tap: Tap, group_id: str, member: StreamsMember, held: set[TopicPartition], generation: int, leader_epoch: int
) -> None:
    tap.member(
        group_id,
        member.member_id,
        member.metadata.client_id,
        generation=generation,
        partitions=sorted(held),
        leader_epoch=leader_epoch,
        instance=member.metadata.instance_id,
    )
