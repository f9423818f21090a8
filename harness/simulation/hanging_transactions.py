"""Aborts hanging transactions as an operator does it (KIP-664), on a virtual clock.

Owns: `HangingTransactions`. An unclean election may take the marker of a transaction that its coordinator has ended, so
that it has no end in this partition. A transaction that is open at the leader for longer than any client and
coordinator needs is ended by an abort marker.

Every replica describes producers, so the response does not say whether the leader has moved. The leader alone accepts
a marker: after a refusal the leader is looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from ..backends.simulated.wire import WireClient
from .events import HangingAborted

DESCRIBE_VERSION, MARKERS_VERSION = 0, 1
POLL_MS = 500
HANGING_TIMEOUTS = 2
"""An open transaction that is older than so many transaction timeouts is hanging."""
OpenTransaction = tuple[TopicPartition, int, int]
"""Partition, producer id, first offset."""


class HangingTransactions:
    """Looks for hanging transactions in some partitions, from `start` on."""

    def __init__(self, client: WireClient, partitions: Callable[[], Iterable[TopicPartition]], timeout_ms: int) -> None:
        """`timeout_ms`: of a transaction."""
        self._hanging_ms = HANGING_TIMEOUTS * timeout_ms
        self._client = client
        self._host = client.host
        self._partitions = partitions
        self._found_ms: dict[OpenTransaction, int] = {}

    def start(self) -> None:
        """Begin."""
        self._host.tasks.spawn(self._run(), name="hanging-transactions")

    async def _run(self) -> None:
        while True:
            await self._host.tasks.sleep(POLL_MS)
            for tp in self._partitions():
                try:
                    await self._look(tp)
                except (OSError, WireError):
                    await self._client.refresh(tp.topic)

    async def _look(self, tp: TopicPartition) -> None:
        leader = await self._client.leader(tp)
        topic = {"name": tp.topic, "partition_indexes": [tp.partition]}
        request = client_request(ApiKey.DESCRIBE_PRODUCERS, DESCRIBE_VERSION, topics=[topic])
        response = await self._client.ask(leader.address, request)
        row = response.topics[0].partitions[0]
        if row.error_code:
            await self._client.refresh(tp.topic)
        now_ms = self._host.clock.monotonic_ms()
        for producer in row.active_producers:
            if producer.current_txn_start_offset < 0:
                continue
            key = tp, producer.producer_id, producer.current_txn_start_offset
            if now_ms - self._found_ms.setdefault(key, now_ms) > self._hanging_ms:
                await self._abort(tp, leader.address, producer)

    async def _abort(self, tp: TopicPartition, address: tuple[str, int], producer: Any) -> None:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": tp.topic, "partition_indexes": [tp.partition]}],
            "coordinator_epoch": max(0, producer.coordinator_epoch),
        }
        request = client_request(ApiKey.WRITE_TXN_MARKERS, MARKERS_VERSION, markers=[marker])
        response = await self._client.ask(address, request)
        error: ErrorCode = response.markers[0].topics[0].partitions[0].error_code
        self._host.trace.emit(
            HangingAborted(topic=tp.topic, partition=tp.partition, producer_id=producer.producer_id, error=error.name)
        )
        if error:
            await self._client.refresh(tp.topic)
