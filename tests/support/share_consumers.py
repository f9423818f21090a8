"""A share consumer for tests: a member of a share group over blocking connections (KIP-932)."""

from __future__ import annotations

import base64
import os
import threading
from types import TracebackType
from typing import Self

from harrow.cluster.ids import TopicPartition
from harrow.harness.requests.blocking import completed
from harrow.harness.requests.coordinator import GROUP, Coordinator
from harrow.harness.requests.lasting import LastingTransport
from harrow.harness.requests.share_member import ACCEPT, Acknowledged, Delivered, ShareMember


class ShareConsumer:
    """One member of `group` that reads `topic`; leaving the block leaves the group."""

    def __init__(self, servers: str, group: str, topic: str, client_id: str = "worker") -> None:
        self._transport = LastingTransport(servers, client_id, threading.Event())
        coordinator = Coordinator(self._transport, GROUP, group, patience_ms=30_000)
        name = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        self._member = ShareMember(coordinator, [topic], name, most_records=500)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        completed(self._member.leave())
        self._transport.close()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator assigned last."""
        return self._member.assigned

    def die(self) -> None:
        """End as a killed process does: every connection closes, and nothing else is sent."""
        self._transport.close()

    def poll(self) -> list[Delivered]:
        """Send a heartbeat, and acquire records."""
        completed(self._member.heartbeat())
        return completed(self._member.fetch())

    def acknowledge(self, records: list[Delivered], type_: int = ACCEPT) -> list[Acknowledged]:
        """Acknowledge records, and return the results."""
        for record in records:
            self._member.acknowledge(record, type_)
        return completed(self._member.commit())
