"""A member of a classic consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. It never leads the group.

`join` returns when the member is in a generation. JoinGroup waits for the group's other members, which may take as long
as their `max.poll.interval.ms`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.consumer.consumer_protocol import encode_subscription
from harrow.cluster.groups.records import CONSUMER_PROTOCOL
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey

from .coordinator import Coordinator, refused
from .group_view import Partitions, assigned_in, describe_group

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 3, 3
SESSION_MS = 10_000
REBALANCE_MS = 1_000
"""Lower than that of the user's members: theirs stay decisive."""
REBALANCE_WAIT_S = 600.0
HEARTBEAT_S = 0.2
LEAD_PAUSE_S = 0.2
"""After it had to lead: the group's members join meanwhile."""
COOPERATIVE = "cooperative-sticky"
REJOIN = frozenset({ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation})
FORGOTTEN = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id})


class ClassicMember:
    """One member, which joins with the group's own assignor."""

    def __init__(self, coordinator: Coordinator, protocol: str, topics: Sequence[str]) -> None:
        self._coordinator = coordinator
        self._protocol = protocol
        self._topics = tuple(topics)
        self._id = self._left_id = ""
        self.generation = -1
        self.assigned: Partitions = {}
        self.generations: list[int] = []
        """Each generation that it was in, or that it saw begin."""

    def join(self) -> None:
        """Join, or join again, and take an assignment; the member is then in a generation that another member leads."""
        while True:
            response = self._join_once()
            self.generation = int(response.generation_id)
            self._saw(self.generation)
            if response.leader == self._id:
                self.leave(self._coordinator)
                self._coordinator.pause(LEAD_PAUSE_S)
            elif self._sync():
                return

    def stay(self, seconds: float) -> None:
        """Send heartbeats for so long, and join again when the group rebalances."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._coordinator.pause(min(HEARTBEAT_S, left))
            error = self._coordinator.patiently(self._heartbeat, lambda row: row.error_code)
            if error.error_code in FORGOTTEN:
                self._forget()
            if error.error_code in FORGOTTEN | REJOIN:
                self.join()
            elif error.error_code is not ErrorCode.none:
                raise refused("Heartbeat", error.error_code)

    def leave(self, coordinator: Coordinator) -> None:
        """Leave, also while a JoinGroup waits."""
        if not self._id:
            return
        schema = messages.schema(ApiKey.LEAVE_GROUP, LEAVE_VERSION, "request")
        members = (schema.MemberIdentity(member_id=self._id, group_instance_id=None),)
        coordinator.patiently(
            lambda: coordinator.ask(
                ApiKey.LEAVE_GROUP, LEAVE_VERSION, "LeaveGroupRequest", group_id=coordinator.name, members=members
            ),
            lambda row: row.error_code,
        )
        self._left_id = self._id
        self._forget()

    def is_listed(self, coordinator: Coordinator) -> bool:
        """Whether the group still has this member, also after it has left."""
        member_id = self._id or self._left_id
        view = describe_group(coordinator) if member_id else None
        return view is not None and member_id in view.members

    def _join_once(self) -> Any:
        while True:
            response = self._coordinator.patiently(self._send_join, lambda row: row.error_code)
            error = response.error_code
            if error is ErrorCode.member_id_required:
                self._id = response.member_id
            elif error in FORGOTTEN:
                self._forget()
            elif error is ErrorCode.none:
                self._id = response.member_id
                return response
            elif error not in REJOIN:
                raise refused(f"JoinGroup of {self._coordinator.name!r}", error)

    def _send_join(self) -> Any:
        schema = messages.schema(ApiKey.JOIN_GROUP, JOIN_VERSION, "request")
        owned = self.assigned if self._protocol == COOPERATIVE else None
        metadata = encode_subscription(self._topics, owned)
        return self._coordinator.ask(
            ApiKey.JOIN_GROUP,
            JOIN_VERSION,
            "JoinGroupRequest",
            timeout_s=REBALANCE_WAIT_S,
            group_id=self._coordinator.name,
            session_timeout=messages.milliseconds(SESSION_MS),
            rebalance_timeout=messages.milliseconds(REBALANCE_MS),
            member_id=self._id,
            group_instance_id=None,
            protocol_type=CONSUMER_PROTOCOL,
            protocols=(schema.JoinGroupRequestProtocol(name=self._protocol, metadata=metadata),),
        )

    def _sync(self) -> bool:
        """Take the assignment; False when the group rebalances again."""
        response = self._coordinator.patiently(
            lambda: self._coordinator.ask(
                ApiKey.SYNC_GROUP,
                SYNC_VERSION,
                "SyncGroupRequest",
                timeout_s=REBALANCE_WAIT_S,
                group_id=self._coordinator.name,
                generation_id=self.generation,
                member_id=self._id,
                group_instance_id=None,
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name=self._protocol,
                assignments=(),
            ),
            lambda row: row.error_code,
        )
        error = response.error_code
        if error in FORGOTTEN:
            self._forget()
        if error in FORGOTTEN | REJOIN:
            return False
        if error is not ErrorCode.none:
            raise refused("SyncGroup", error)
        self.assigned = assigned_in(bytes(response.assignment))
        return True

    def _heartbeat(self) -> Any:
        return self._coordinator.ask(
            ApiKey.HEARTBEAT,
            HEARTBEAT_VERSION,
            "HeartbeatRequest",
            group_id=self._coordinator.name,
            generation_id=self.generation,
            member_id=self._id,
            group_instance_id=None,
        )

    def _forget(self) -> None:
        self._id, self.assigned = "", {}

    def _saw(self, generation: int) -> None:
        if generation not in self.generations:
            self.generations.append(generation)
