"""A member of a classic consumer group that disturbs the user's members. It never leads the group.

`join` returns when the member is in a generation. JoinGroup waits for the group's other members, which may take as long
as their `max.poll.interval.ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.groups.consumer.consumer_protocol import encode_subscription

from ..requests.classic_member import FORGOTTEN, ClassicMember
from ..requests.coordinator import RETRIABLE, Coordinator
from .group_view import Partitions, assigned_in

SESSION_MS = 10_000
REBALANCE_MS = 1_000
"""Lower than that of the user's members: theirs stay decisive."""
REBALANCE_WAIT_MS = 600_000
HEARTBEAT_MS = 200
LEAD_PAUSE_MS = 200
"""After it had to lead: the group's members join meanwhile."""
COOPERATIVE = "cooperative-sticky"
REJOIN = FORGOTTEN | {ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation}
JOIN_AGAIN = REJOIN | RETRIABLE | {ErrorCode.member_id_required}


class ClassicFaultMember:
    """One member, which joins with the group's own assignor."""

    def __init__(self, coordinator: Coordinator, protocol: str, topics: Sequence[str]) -> None:
        self._coordinator = coordinator
        self._transport = coordinator.transport
        self._member = ClassicMember(
            coordinator, protocol, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS, join_ms=REBALANCE_WAIT_MS
        )
        self._states_owned = protocol == COOPERATIVE
        self._topics = tuple(topics)
        self._generation = -1
        self.member_id = ""
        self.assigned: Partitions = {}
        self.seen: list[int] = []
        """Each generation that it was in, or that it saw begin."""

    async def join(self) -> None:
        """Join, or join again, and take an assignment; the member is then in a generation that another member leads."""
        while True:
            try:
                if await self._join_once():
                    return
                await self.leave(self._coordinator)
                await self._transport.sleep(LEAD_PAUSE_MS)
            except KafkaError as error:
                if error.code not in JOIN_AGAIN:
                    raise
                self._noted(error)
                if error.code in RETRIABLE:
                    await self._transport.pause()

    async def _join_once(self) -> bool:
        """Take part in one generation; False when the member must lead it."""
        owned = self.assigned if self._states_owned else None
        joined = await self._member.join(encode_subscription(self._topics, owned))
        self.member_id, self._generation = joined.member_id, joined.generation_id
        if self._generation not in self.seen:
            self.seen.append(self._generation)
        if joined.leader == joined.member_id:
            return False
        self.assigned = assigned_in(await self._member.sync(self._generation, {}))
        return True

    async def stay(self, delay_ms: float) -> None:
        """Send heartbeats for so long, and join again when the group rebalances."""
        end_ms = self._transport.now_ms() + delay_ms
        while (left_ms := end_ms - self._transport.now_ms()) > 0:
            await self._transport.sleep(min(HEARTBEAT_MS, left_ms))
            try:
                await self._member.heartbeat(self._generation, self._member.member_id)
            except KafkaError as error:
                if error.code not in REJOIN:
                    raise
                self._noted(error)
                await self.join()

    def _noted(self, error: KafkaError) -> None:
        if error.code in FORGOTTEN:
            self.assigned = {}

    async def leave(self, coordinator: Coordinator) -> None:
        """Leave, also while a JoinGroup waits."""
        if self._member.member_id:
            self.member_id = self._member.member_id  # a JoinGroup that still waits has an id already
            await self._member.leave(coordinator)
            self.assigned = {}
