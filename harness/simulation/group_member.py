"""A member of a classic consumer group on a virtual clock: joins, computes assignments as leader, sends heartbeats.

Owns: `GroupMember` and its current `Membership`. A membership ends when the coordinator says so in the response to a
heartbeat, or to a commit of the caller (`leave`); the caller then joins again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from harrow.cluster.errors import KafkaError
from harrow.cluster.groups.consumer.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from harrow.cluster.ids import TopicPartition

from ..backends.simulated.wire import WireClient
from ..requests.classic_member import ClassicMember
from ..requests.coordinator import GROUP, Coordinator, committed_offsets

SESSION_MS, REBALANCE_MS, HEARTBEAT_MS = 1_500, 2_500, 300
JOIN_MS = 6_000
PROTOCOL = "range"


@dataclass(slots=True, kw_only=True)
class Membership:
    """One generation of one member."""

    member_id: str
    generation: int
    partitions: list[TopicPartition]
    over: bool = False


class CommittedOffsets(NamedTuple):
    """What a coordinator said about the partitions of a member."""

    offsets: dict[TopicPartition, int]
    said_by: int
    """The node id of the broker that answered."""


class GroupMember:
    """One member of `group`, which reads `topic`."""

    def __init__(self, client: WireClient, group: str, topic: str, partitions: int) -> None:
        self._client = client
        self._coordinator = Coordinator(client, GROUP, group)
        self._topic, self._partitions = topic, partitions
        self._member = ClassicMember(
            self._coordinator, PROTOCOL, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS, join_ms=JOIN_MS
        )

    async def join(self) -> Membership:
        """Join until there is an assignment, and begin to send heartbeats."""
        while True:
            try:
                membership = await self._join_once()
            except KafkaError:
                await self._client.pause()
                continue
            self._client.host.tasks.spawn(self._send_heartbeats(membership), name="heartbeats")
            return membership

    async def _join_once(self) -> Membership:
        joined = await self._member.join(encode_subscription([self._topic]))
        shares: dict[str, list[int]] = {}
        if joined.leader == joined.member_id:
            members = sorted(row.member_id for row in joined.members)
            shares = {member: [] for member in members}
            for number in range(self._partitions):
                shares[members[number % len(members)]].append(number)
        assignments = {member: encode_assignment(0, {self._topic: numbers}) for member, numbers in shares.items()}
        assigned = await self._member.sync(joined.generation_id, assignments)
        return Membership(
            member_id=joined.member_id, generation=joined.generation_id, partitions=list(decode_assignment(assigned))
        )

    async def _send_heartbeats(self, membership: Membership) -> None:
        while not membership.over:
            await self._client.sleep(HEARTBEAT_MS)
            try:
                await self._member.heartbeat(membership.generation, membership.member_id)
            except KafkaError:
                membership.over = True

    async def committed(self, membership: Membership) -> CommittedOffsets:
        """Return the committed offsets of the member's partitions, 0 where there is none (KIP-447)."""
        return await committed_of(self._coordinator, membership)


async def committed_of(coordinator: Coordinator, membership: Membership) -> CommittedOffsets:
    """Return the committed offsets of the member's partitions, without those of open transactions (KIP-447)."""
    found = await committed_offsets(coordinator, membership.partitions, stable=True)
    return CommittedOffsets({tp: max(0, offset) for tp, offset in found.items()}, coordinator.answered_by)
