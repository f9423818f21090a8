"""A member of a share group (KIP-932) that acquires records and never acknowledges them.

It waits for a group with members, subscribes to their topics, and fetches as long as it lives. Then its connections
end, as those of a process that is killed: a broker gives back what it held at once, or when the locks end. Last it
leaves the group, so that its partitions are assigned to the user's members.
"""

from __future__ import annotations

import base64
import os
from typing import Any

from harrow.cluster.errors import ClusterError, ErrorCode, KafkaError
from harrow.cluster.wire.client_requests import client_request

from ..requests.blocking import PATIENCE_MS, BlockingTransport
from ..requests.coordinator import GROUP, Coordinator
from ..requests.lasting import LastingTransport
from ..requests.share_member import ShareMember
from .background import CLIENT_ID, BackgroundClient

SHARE_GROUP_DESCRIBE, DESCRIBE_VERSION = 77, 1
AWAIT_GROUP_MS, POLL_MS = 10_000, 100
DESCRIBE_PATIENCE_MS = 2_000


class StuckShareMember(BackgroundClient):
    """Holds records of the group; `fired` is how many it has acquired."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        super().__init__("stuck-share-consumer", bootstrap_servers)
        self._group = group
        self._lasting = LastingTransport(bootstrap_servers, CLIENT_ID, self.stopped)
        self._member: ShareMember | None = None

    async def act(self) -> None:
        """Acquire records until the client is stopped."""
        topics = await self._topics()
        self.facts |= {"group": self._group, "topics": topics}
        member_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        coordinator = Coordinator(self._lasting, GROUP, self._group, patience_ms=PATIENCE_MS)
        self._member = ShareMember(coordinator, topics, member_id)
        held: dict[str, int] = {}
        try:
            while True:
                await self._member.heartbeat()
                for record in await self._member.fetch():
                    place = f"{record.tp.topic}-{record.tp.partition}"
                    held[place] = held.get(place, 0) + 1
                    self.fired += 1
                self.facts["held"] = dict(sorted(held.items()))
                await self._lasting.sleep(POLL_MS)
        finally:
            self._lasting.close()

    async def leave(self, transport: BlockingTransport) -> None:
        """Leave the group: the records are not acknowledged."""
        if self._member is None:
            return
        coordinator = Coordinator(transport, GROUP, self._group, patience_ms=PATIENCE_MS)
        await self._member.leave_group(coordinator)
        self.facts["left"] = True

    async def _topics(self) -> list[str]:
        """Return what the members of the group subscribe to, once there are members."""
        coordinator = Coordinator(self.transport, GROUP, self._group, patience_ms=DESCRIBE_PATIENCE_MS)
        request = client_request(SHARE_GROUP_DESCRIBE, DESCRIBE_VERSION, group_ids=[self._group])
        for _ in range(round(AWAIT_GROUP_MS / POLL_MS)):
            try:
                response = await coordinator.ask(request, error_of=_group_error)
            except KafkaError as error:
                if error.code is not ErrorCode.group_id_not_found:
                    raise
            else:
                topics = {name for member in response.groups[0].members for name in member.subscribed_topic_names}
                if topics:
                    return sorted(topics)
            await self.transport.sleep(POLL_MS)
        raise ClusterError(
            f"the cluster has no share group {self._group!r} with members; a consumer group is none "
            "(stuck_consumer is for these)"
        )


def _group_error(response: Any) -> ErrorCode:
    code: ErrorCode = response.groups[0].error_code
    return code
