"""A member of a consumer group of KIP-848: ConsumerGroupHeartbeat. It takes what it is assigned, and gives it up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey

from .coordinator import Coordinator, refused
from .group_view import Partitions, describe_group

VERSION = 0
JOINS, LEAVES = 0, -1
REBALANCE_MS = 10_000
HEARTBEAT_S = 0.2
FENCED = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})


class ConsumerMember:
    """One member. Its owned partitions are acknowledged with the heartbeat after the one that assigned them."""

    def __init__(self, coordinator: Coordinator, topics: Sequence[str]) -> None:
        self._coordinator = coordinator
        self._topics = tuple(topics)
        self._id = self._left_id = ""
        self._epoch = JOINS
        self._to_acknowledge: Any = None
        self.assigned: Partitions = {}
        self.epochs: list[int] = []
        """Epochs of the group that were seen."""

    def join(self) -> None:
        """Join."""
        self._epoch, self._to_acknowledge, self.assigned = JOINS, None, {}
        self._heartbeat(
            self._coordinator,
            rebalance_timeout=messages.milliseconds(REBALANCE_MS),
            subscribed_topic_names=self._topics,
            topic_partitions=(),
        )
        self._look()

    def stay(self, seconds: float) -> None:
        """Send heartbeats for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._coordinator.pause(min(HEARTBEAT_S, left))
            owned, self._to_acknowledge = self._to_acknowledge, None
            changed = owned is not None
            self._heartbeat(
                self._coordinator,
                rebalance_timeout=messages.milliseconds(-1),
                subscribed_topic_names=None,
                topic_partitions=owned,
            )
            if changed or self._to_acknowledge is not None or not self.assigned:
                self._look()

    def leave(self, coordinator: Coordinator) -> None:
        """Leave."""
        if not self._id:
            return
        self._epoch = LEAVES
        self._heartbeat(
            coordinator, rebalance_timeout=messages.milliseconds(-1), subscribed_topic_names=None, topic_partitions=None
        )
        self._id, self._left_id, self.assigned = "", self._id, {}

    def is_listed(self, coordinator: Coordinator) -> bool:
        """Whether the group still has this member, also after it has left."""
        member_id = self._id or self._left_id
        view = describe_group(coordinator) if member_id else None
        return view is not None and member_id in view.members

    def _heartbeat(self, coordinator: Coordinator, **given: Any) -> None:
        response = coordinator.patiently(
            lambda: coordinator.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                VERSION,
                "ConsumerGroupHeartbeatRequest",
                group_id=coordinator.name,
                member_id=self._id,
                member_epoch=self._epoch,
                instance_id=None,
                rack_id=None,
                server_assignor=None,
                **given,
            ),
            lambda row: row.error_code,
        )
        error = response.error_code
        if error in FENCED:
            if self._epoch not in (JOINS, LEAVES):
                self.join()
            return
        if error is not ErrorCode.none:
            raise refused(f"ConsumerGroupHeartbeat of {coordinator.name!r} ({response.error_message})", error)
        if self._epoch == LEAVES:
            return
        self._id = response.member_id or self._id
        self._epoch = response.member_epoch
        if response.assignment is not None:
            schema = messages.schema(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, "request")
            self._to_acknowledge = tuple(
                schema.TopicPartitions(topic_id=row.topic_id, partitions=tuple(row.partitions))
                for row in response.assignment.topic_partitions
            )

    def _look(self) -> None:
        """Note the group's epoch and what this member is assigned, by the names of topics."""
        view = describe_group(self._coordinator)
        if view is None:
            return
        self.assigned = view.members.get(self._id, {})
        if view.epoch not in self.epochs:
            self.epochs.append(view.epoch)
