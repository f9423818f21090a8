"""A producer of transactions on a virtual clock (KIP-98, KIP-890).

Owns: producer id, epoch and sequences. With `transaction.version` 2 partitions and groups join a transaction by the
first write to them, the epoch rises with every transaction, and a request without a response is sent again unchanged.
With version 1 the producer adds partitions and groups itself, and keeps its epoch. It sends a batch once: without a
response in `DELIVERY_MS` the transaction is aborted by EndTxn, and InitProducerId raises the epoch (KIP-360).
What may fail: `KafkaError` with the first error code that is not retriable; `begin_again` then aborts what is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode, KafkaError, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.transactions.transaction import EPOCH_BUMP_FROM
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.records import NewRecord, build_batch

from ..backends.simulated.wire import WireClient
from ..requests.coordinator import GROUP, TRANSACTION, Coordinator, first_error
from .group_member import Membership
from .producer import REQUEST_MS, RETRIABLE, produce_request

INIT_VERSION, PRODUCE_VERSION, COMMIT_VERSION, END_VERSION = 5, 12, 5, 5
PRODUCE_VERSION_1, COMMIT_VERSION_1, END_VERSION_1 = 11, 4, 4
"""The last versions of clients with `transaction.version` 1."""
ADD_PARTITIONS_VERSION, ADD_OFFSETS_VERSION = 3, 4
DELIVERY_MS = 400
"""With version 1: how long a batch may wait for its response."""
RETRIABLE_IN_PRODUCE = RETRIABLE | {ErrorCode.concurrent_transactions}


class SimulatedTransactionalProducer:
    """One transactional id."""

    def __init__(self, client: WireClient, name: str, group: str, *, timeout_ms: int, version: int) -> None:
        """`timeout_ms`: of a transaction; `version`: 1 or 2, its protocol."""
        self._timeout_ms, self._adds = timeout_ms, version < EPOCH_BUMP_FROM
        self._added: set[TopicPartition | str] = set()
        """With version 1: the partitions and groups of the open transaction."""
        self._client = client
        self._host = client.host
        self._name, self._group = name, group
        self._coordinator = Coordinator(client, TRANSACTION, name)
        self._groups = Coordinator(client, GROUP, group)
        self._identity = -1, -1
        self._sequences: dict[TopicPartition, int] = {}

    async def begin_again(self) -> None:
        """InitProducerId: aborts a transaction that this id left open, and fences earlier producers."""
        if self._added:
            with contextlib.suppress(KafkaError):
                await self.end(commit=False)
        request = client_request(
            ApiKey.INIT_PRODUCER_ID, INIT_VERSION, transactional_id=self._name, transaction_timeout=self._timeout_ms
        )
        while True:
            try:
                self._take(await self._coordinator.ask(request))
            except KafkaError:
                await self._client.pause()
            else:
                return

    def _take(self, response: Any) -> None:
        self._added.clear()
        identity = response.producer_id, response.producer_epoch
        if identity != self._identity:
            self._identity, self._sequences = identity, {}

    async def produce(self, tp: TopicPartition, records: Sequence[NewRecord]) -> None:
        """Append one batch in the open transaction."""
        if self._adds:
            await self._add_partition(tp)
        version = PRODUCE_VERSION_1 if self._adds else PRODUCE_VERSION
        sequence = self._sequences.get(tp, 0)
        data = build_batch(
            list(records),
            timestamp_ms=self._host.clock.wall_ms(),
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(tp, data, version, acks=-1, transactional_id=self._name)
        while True:
            leader = await self._client.leader(tp)
            try:
                response = await self._client.ask(leader.address, request, DELIVERY_MS if self._adds else REQUEST_MS)
            except (OSError, WireError):
                if self._adds:
                    raise KafkaError(ErrorCode.request_timed_out) from None
                error = None
            else:
                error = response.responses[0].partition_responses[0].error_code
            if error in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                self._sequences[tp] = sequence + len(records)
                return
            if error is not None and error not in RETRIABLE_IN_PRODUCE:
                raise KafkaError(error)
            await self._client.pause()
            await self._client.refresh(tp.topic)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Membership) -> None:
        """Commit the group's offsets in the open transaction (KIP-447)."""
        if self._adds:
            await self._add_group()
        version = COMMIT_VERSION_1 if self._adds else COMMIT_VERSION
        rows = [
            {"partition_index": tp.partition, "committed_offset": offset, "committed_metadata": ""}
            for tp, offset in offsets.items()
        ]
        (topic,) = {tp.topic for tp in offsets}
        request = self._request(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            group_id=self._group,
            generation_id=membership.generation,
            member_id=membership.member_id,
            topics=[{"name": topic, "partitions": rows}],
        )
        await self._groups.ask(request, error_of=_offset_commit_error)

    def _request(self, api_key: ApiKey, version: int, **fields: Any) -> ClientRequest:
        producer_id, epoch = self._identity
        return client_request(
            api_key, version, transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, **fields
        )

    async def end(self, *, commit: bool) -> None:
        """End the open transaction."""
        version = END_VERSION_1 if self._adds else END_VERSION
        response = await self._coordinator.ask(self._request(ApiKey.END_TXN, version, committed=commit))
        if self._adds:
            self._added.clear()
        else:
            self._take(response)

    async def _add_partition(self, tp: TopicPartition) -> None:
        if tp in self._added:
            return
        request = client_request(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ADD_PARTITIONS_VERSION,
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=[{"name": tp.topic, "partitions": [tp.partition]}],
        )
        await self._coordinator.ask(request, error_of=_add_partitions_error)
        self._added.add(tp)

    async def _add_group(self) -> None:
        await self._coordinator.ask(self._request(ApiKey.ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION, group_id=self._group))
        self._added.add(self._group)


def _add_partitions_error(response: Any) -> ErrorCode:
    topics = response.results_by_topic_v3_and_below
    return first_error(row.partition_error_code for topic in topics for row in topic.results_by_partition)


def _offset_commit_error(response: Any) -> ErrorCode:
    return first_error(row.error_code for topic in response.topics for row in topic.partitions)
