"""The requests of a member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. No input or output.

Owns: the member id, which the coordinator gives and which is forgotten when the coordinator does not know it. The owner
of a member decides when it joins, what it subscribes to, and what it assigns as the leader.
What may fail: `KafkaError` with each error code that means another step than to send the same request again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.groups.records import CONSUMER_PROTOCOL
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request

from .coordinator import Coordinator, own_error

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 4, 3
FORGOTTEN = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id})


class ClassicMember:
    """One dynamic member of the group of `coordinator`, with one `protocol`: the name of an assignor."""

    def __init__(
        self, coordinator: Coordinator, protocol: str, *, session_ms: int, rebalance_ms: int, join_ms: float
    ) -> None:
        """`join_ms`: how long a response to JoinGroup or SyncGroup may take."""
        self._coordinator = coordinator
        self._protocol = protocol
        self._session_ms, self._rebalance_ms, self._join_ms = session_ms, rebalance_ms, join_ms
        self.member_id = ""

    def _request(self, api_key: ApiKey, version: int, **fields: Any) -> ClientRequest:
        return client_request(api_key, version, group_id=self._coordinator.key, **fields)

    async def join(self, subscription: bytes) -> Any:
        """JoinGroup; return the response. After MEMBER_ID_REQUIRED the member has its id, and joins again."""
        request = self._request(
            ApiKey.JOIN_GROUP,
            JOIN_VERSION,
            session_timeout=self._session_ms,
            rebalance_timeout=self._rebalance_ms,
            member_id=self.member_id,
            protocol_type=CONSUMER_PROTOCOL,
            protocols=[{"name": self._protocol, "metadata": subscription}],
        )
        try:
            response = await self._coordinator.ask(request, error_of=_join_error, timeout_ms=self._join_ms)
        except KafkaError as error:
            raise self._noted(error) from None
        self.member_id = response.member_id
        if response.error_code is ErrorCode.member_id_required:
            raise KafkaError(ErrorCode.member_id_required)
        return response

    async def sync(self, generation: int, assignments: Mapping[str, bytes]) -> bytes:
        """SyncGroup, with the `assignments` of a leader by member id; return the member's own assignment.

        It is sent once: where no response comes, the member joins again.
        """
        request = self._request(
            ApiKey.SYNC_GROUP,
            SYNC_VERSION,
            generation_id=generation,
            member_id=self.member_id,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=self._protocol,
            assignments=[{"member_id": member, "assignment": given} for member, given in assignments.items()],
        )
        response = await self._coordinator.ask_once(request, timeout_ms=self._join_ms)
        if response is None:
            raise KafkaError(ErrorCode.request_timed_out)
        if (error := own_error(response)) is not ErrorCode.none:
            raise self._noted(KafkaError(error))
        return bytes(response.assignment)

    async def heartbeat(self, generation: int, member_id: str) -> None:
        """Heartbeat of a generation that the member was in under this id."""
        request = self._request(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, generation_id=generation, member_id=member_id)
        try:
            await self._coordinator.ask(request)
        except KafkaError as error:
            raise self._noted(error) from None

    async def leave(self, coordinator: Coordinator) -> None:
        """LeaveGroup over another `coordinator` of the group; a member that it does not know has left."""
        request = self._request(ApiKey.LEAVE_GROUP, LEAVE_VERSION, members=[{"member_id": self.member_id}])
        with contextlib.suppress(KafkaError):
            await coordinator.ask(request)
        self.member_id = ""

    def _noted(self, error: KafkaError) -> KafkaError:
        if error.code in FORGOTTEN:
            self.member_id = ""
        return error


def _join_error(response: Any) -> ErrorCode:
    """The error of a JoinGroup, without the one that gives the member its id."""
    code = own_error(response)
    return ErrorCode.none if code is ErrorCode.member_id_required else code
