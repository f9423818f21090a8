"""A member of a consumer group of KIP-848: ConsumerGroupHeartbeat. It takes what it is assigned, and gives it up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from ..requests.coordinator import Coordinator
from .group_view import Partitions, describe_group

VERSION = 0
JOINS, LEAVES = 0, -1
REBALANCE_MS, UNCHANGED_MS = 10_000, -1
HEARTBEAT_MS = 200
FENCED = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})


class ConsumerMember:
    """One member. Its owned partitions are acknowledged with the heartbeat after the one that assigned them."""

    def __init__(self, coordinator: Coordinator, topics: Sequence[str]) -> None:
        self._coordinator = coordinator
        self._transport = coordinator.transport
        self._topics = tuple(topics)
        self._epoch = JOINS
        self._to_acknowledge: list[dict[str, Any]] | None = None
        self.member_id = ""
        self.assigned: Partitions = {}
        self.seen: list[int] = []
        """Epochs of the group that were seen."""

    async def join(self) -> None:
        """Join."""
        self._epoch, self._to_acknowledge, self.assigned = JOINS, None, {}
        await self._heartbeat(
            self._coordinator, rebalance_timeout=REBALANCE_MS, subscribed_topic_names=self._topics, topic_partitions=()
        )
        await self._look()

    async def stay(self, delay_ms: float) -> None:
        """Send heartbeats for so long."""
        end_ms = self._transport.now_ms() + delay_ms
        while (left_ms := end_ms - self._transport.now_ms()) > 0:
            await self._transport.sleep(min(HEARTBEAT_MS, left_ms))
            owned, self._to_acknowledge = self._to_acknowledge, None
            await self._heartbeat(self._coordinator, topic_partitions=owned)
            if owned is not None or self._to_acknowledge is not None or not self.assigned:
                await self._look()

    async def leave(self, coordinator: Coordinator) -> None:
        """Leave."""
        if self.member_id:
            self._epoch = LEAVES
            await self._heartbeat(coordinator)
            self.assigned = {}

    async def _heartbeat(
        self, coordinator: Coordinator, *, rebalance_timeout: int = UNCHANGED_MS, **given: Any
    ) -> None:
        """Send one heartbeat, where null is what has not changed."""
        request = client_request(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            VERSION,
            group_id=coordinator.key,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rebalance_timeout=rebalance_timeout,
            **given,
        )
        try:
            response = await coordinator.ask(request)
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            if self._epoch not in (JOINS, LEAVES):
                await self.join()
            return
        if self._epoch == LEAVES:
            return
        self.member_id = response.member_id or self.member_id
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._to_acknowledge = [
                {"topic_id": row.topic_id, "partitions": row.partitions} for row in response.assignment.topic_partitions
            ]

    async def _look(self) -> None:
        """Note the group's epoch and what this member is assigned, by the names of topics."""
        view = await describe_group(self._coordinator)
        if view is None:
            return
        self.assigned = view.members.get(self.member_id, {})
        if view.epoch not in self.seen:
            self.seen.append(view.epoch)
