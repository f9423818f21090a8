"""A member of a classic consumer group on a virtual clock: joins, computes assignments as leader, sends heartbeats.

Owns: `GroupMember` and its current `Membership`. A membership ends when the coordinator says so in the response to a
heartbeat, or to a commit of the caller (`leave`); the caller then joins again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.groups.consumer.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey

from .coordinator_client import GROUP, CoordinatorClient, first_error
from .wire import WireClient, pause_ms

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, OFFSET_FETCH_VERSION = 7, 5, 4, 8
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS = 1_500, 2_500, 300
JOIN_MS = 6_000
PROTOCOL, PROTOCOL_TYPE = "range", "consumer"


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
        self._host = client.host
        self._coordinator = CoordinatorClient(client, GROUP, group)
        self._group = group
        self._topic, self._partitions = topic, partitions
        self._member_id = ""

    async def join(self) -> Membership:
        """Join until there is an assignment, and begin to send heartbeats."""
        while True:
            try:
                membership = await self._join_once()
            except KafkaError as error:
                if error.code is ErrorCode.unknown_member_id:
                    self._member_id = ""
                await self._host.tasks.sleep(pause_ms(self._host))
                continue
            self._host.tasks.spawn(self._send_heartbeats(membership), name="heartbeats")
            return membership

    async def _join_once(self) -> Membership:
        schema = messages.schema(ApiKey.JOIN_GROUP, JOIN_VERSION, "request")
        protocol = schema.JoinGroupRequestProtocol(name=PROTOCOL, metadata=encode_subscription([self._topic]))
        entity = schema.JoinGroupRequest(
            group_id=self._group,
            session_timeout=messages.milliseconds(SESSION_MS),
            rebalance_timeout=messages.milliseconds(REBALANCE_MS),
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
        )
        joined = await self._coordinator.ask_once(ApiKey.JOIN_GROUP, JOIN_VERSION, entity, timeout_ms=JOIN_MS)
        if joined is None:
            raise KafkaError(ErrorCode.request_timed_out)
        if joined.error_code is ErrorCode.member_id_required:
            self._member_id = joined.member_id
        if joined.error_code is not ErrorCode.none:
            raise KafkaError(joined.error_code)
        self._member_id = joined.member_id
        return await self._sync(joined)

    async def _sync(self, joined: Any) -> Membership:
        schema = messages.schema(ApiKey.SYNC_GROUP, SYNC_VERSION, "request")
        shares: dict[str, list[int]] = {}
        if joined.leader == joined.member_id:
            members = sorted(row.member_id for row in joined.members)
            shares = {member: [] for member in members}
            for number in range(self._partitions):
                shares[members[number % len(members)]].append(number)
        entity = schema.SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=tuple(
                schema.SyncGroupRequestAssignment(
                    member_id=member, assignment=encode_assignment(0, {self._topic: numbers})
                )
                for member, numbers in shares.items()
            ),
        )
        synced = await self._coordinator.ask_once(ApiKey.SYNC_GROUP, SYNC_VERSION, entity, timeout_ms=JOIN_MS)
        if synced is None or synced.error_code is not ErrorCode.none:
            raise KafkaError(ErrorCode.request_timed_out if synced is None else synced.error_code)
        return Membership(
            member_id=joined.member_id,
            generation=joined.generation_id,
            partitions=list(decode_assignment(synced.assignment)),
        )

    async def _send_heartbeats(self, membership: Membership) -> None:
        schema = messages.schema(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, "request")
        entity = schema.HeartbeatRequest(
            group_id=self._group, generation_id=membership.generation, member_id=membership.member_id
        )
        while not membership.over:
            await self._host.tasks.sleep(HEARTBEAT_MS)
            try:
                await self._coordinator.ask(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, entity)
            except KafkaError as error:
                membership.over = True
                if error.code is ErrorCode.unknown_member_id:
                    self._member_id = ""

    async def committed(self, membership: Membership) -> CommittedOffsets:
        """Return the committed offsets of the member's partitions, 0 where there is none (KIP-447)."""
        return await committed_offsets(self._coordinator, self._group, membership)


async def committed_offsets(coordinator: CoordinatorClient, group: str, membership: Membership) -> CommittedOffsets:
    """Return the committed offsets of the member's partitions, without those of open transactions (KIP-447)."""
    schema = messages.schema(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, "request")
    numbers = tuple(tp.partition for tp in membership.partitions)
    (name,) = {tp.topic for tp in membership.partitions}
    topic = schema.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
    entity = schema.OffsetFetchRequest(
        groups=(schema.OffsetFetchRequestGroup(group_id=group, topics=(topic,)),), require_stable=True
    )
    response = await coordinator.ask(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, entity, error_of=_offset_fetch_error)
    offsets = {
        TopicPartition(topic.name, row.partition_index): max(0, row.committed_offset)
        for topic in response.groups[0].topics
        for row in topic.partitions
    }
    return CommittedOffsets(offsets, coordinator.answered_by)


def _offset_fetch_error(response: Any) -> ErrorCode:
    (group,) = response.groups
    rows = (row.error_code for topic in group.topics for row in topic.partitions)
    return first_error((group.error_code, *rows))
