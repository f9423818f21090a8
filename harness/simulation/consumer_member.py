"""A member of a group of the protocol `consumer` (KIP-848) on a virtual clock: heartbeats, and nothing else.

Owns: `ConsumerMember`, which a job uses as it uses `GroupMember`. A membership ends when the coordinator assigns other
partitions or fences the member. The caller ends its transaction and joins again, which says that the partitions of
before are revoked. A member epoch that rises without another assignment is taken over into the membership.

Some members do not revoke: they keep their partitions and send heartbeats, until the coordinator fences them when the
rebalance timeout has passed. Until then they own what they process.
"""

from __future__ import annotations

from typing import Any

from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from ..backends.simulated.wire import WireClient
from ..requests.coordinator import GROUP, Coordinator
from .group_member import HEARTBEAT_MS, REBALANCE_MS, CommittedOffsets, Membership, committed_of

VERSION = 1
JOINING = 0
SLOW_PART = 0.4
"""How many of the members that must revoke partitions do not."""
FENCED = (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id)


class ConsumerMember:
    """One member of `group`, which reads `topic`."""

    def __init__(self, client: WireClient, group: str, topic: str, partitions: int) -> None:
        assert partitions > 0, "a member without partitions reads nothing"
        self._client = client
        self._host = client.host
        self._coordinator = Coordinator(client, GROUP, group)
        self._topic = topic
        self._member_id = f"member-{client.host.random.getrandbits(64):016x}"
        self._epoch = JOINING
        self._topic_id: Any = None
        self._assigned: tuple[int, ...] = ()
        """What the coordinator assigned last."""
        self._owned: tuple[int, ...] = ()
        """What the coordinator knows that this member owns."""
        self._revoking = self._is_slow = False

    async def join(self) -> Membership:
        """Join, or revoke what is no longer assigned, until there is an assignment; begin to send heartbeats."""
        while True:
            try:
                await self._heartbeat(self._assigned)
            except KafkaError as error:
                self._failed(error)
                await self._client.pause()
                continue
            if self._owned == self._assigned:
                break
        self._revoking = False
        membership = Membership(
            member_id=self._member_id,
            generation=self._epoch,
            partitions=[TopicPartition(self._topic, number) for number in self._owned],
        )
        self._host.tasks.spawn(self._send_heartbeats(membership), name="heartbeats")
        return membership

    async def committed(self, membership: Membership) -> CommittedOffsets:
        """Return the committed offsets of the member's partitions, 0 where there is none (KIP-447)."""
        return await committed_of(self._coordinator, membership)

    async def _send_heartbeats(self, membership: Membership) -> None:
        while not membership.over:
            await self._host.tasks.sleep(HEARTBEAT_MS)
            if membership.over:
                return
            try:
                await self._heartbeat(self._owned)
            except KafkaError as error:
                membership.over = True
                self._failed(error)
            else:
                membership.generation = self._epoch
                membership.over = self._assigned != self._owned and not self._keeps()

    def _keeps(self) -> bool:
        """Whether the member must revoke partitions, and does not."""
        if set(self._owned) <= set(self._assigned):
            return False
        if not self._revoking:
            self._revoking, self._is_slow = True, self._host.random.random() < SLOW_PART
        return self._is_slow

    async def _heartbeat(self, owned: tuple[int, ...]) -> None:
        """One heartbeat with all fields; KafkaError for an error that is not retriable."""
        request = client_request(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            VERSION,
            group_id=self._coordinator.key,
            member_id=self._member_id,
            member_epoch=self._epoch,
            topic_partitions=[{"topic_id": self._topic_id, "partitions": owned}] if owned else [],
            rebalance_timeout=REBALANCE_MS,
            subscribed_topic_names=[self._topic],
        )
        response = await self._coordinator.ask(request)
        self._epoch, self._owned = response.member_epoch, owned
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            self._assigned = tuple(sorted(number for row in rows for number in row.partitions))
            for row in rows:
                self._topic_id = row.topic_id

    def _failed(self, error: KafkaError) -> None:
        if error.code in FENCED:
            self._epoch, self._assigned, self._owned = JOINING, (), ()
