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
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.records import NewRecord, build_batch

from .coordinator_client import GROUP, TRANSACTION, CoordinatorClient, first_error
from .group_member import Membership
from .producer import PRODUCE_TIMEOUT_MS, REQUEST_MS, RETRIABLE
from .wire import WireClient, pause_ms

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
        self._coordinator = CoordinatorClient(client, TRANSACTION, name)
        self._groups = CoordinatorClient(client, GROUP, group)
        self._identity = -1, -1
        self._sequences: dict[TopicPartition, int] = {}

    async def begin_again(self) -> None:
        """InitProducerId: aborts a transaction that this id left open, and fences earlier producers."""
        if self._added:
            with contextlib.suppress(KafkaError):
                await self.end(commit=False)
        schema = messages.schema(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, "request")
        entity = schema.InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout=messages.milliseconds(self._timeout_ms)
        )
        while True:
            try:
                self._take(await self._coordinator.ask(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, entity))
            except KafkaError:
                await self._host.tasks.sleep(pause_ms(self._host))
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
        schema = messages.schema(ApiKey.PRODUCE, version, "request")
        sequence = self._sequences.get(tp, 0)
        data = build_batch(
            list(records),
            timestamp_ms=self._host.clock.wall_ms(),
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        row = schema.PartitionProduceData(index=tp.partition, records=data)
        entity = schema.ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout=messages.milliseconds(PRODUCE_TIMEOUT_MS),
            topic_data=(schema.TopicProduceData(name=tp.topic, partition_data=(row,)),),
        )
        while True:
            leader = await self._client.leader(tp)
            try:
                response = await self._client.ask(
                    leader.address, ApiKey.PRODUCE, version, entity, DELIVERY_MS if self._adds else REQUEST_MS
                )
            except (OSError, TimeoutError, WireError):
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
            await self._host.tasks.sleep(pause_ms(self._host))
            await self._client.refresh(tp.topic)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Membership) -> None:
        """Commit the group's offsets in the open transaction (KIP-447)."""
        if self._adds:
            await self._add_group()
        version = COMMIT_VERSION_1 if self._adds else COMMIT_VERSION
        schema = messages.schema(ApiKey.TXN_OFFSET_COMMIT, version, "request")
        rows = tuple(
            schema.TxnOffsetCommitRequestPartition(
                partition_index=tp.partition, committed_offset=offset, committed_metadata=""
            )
            for tp, offset in offsets.items()
        )
        (topic,) = {tp.topic for tp in offsets}
        entity = schema.TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            generation_id=membership.generation,
            member_id=membership.member_id,
            topics=(schema.TxnOffsetCommitRequestTopic(name=topic, partitions=rows),),
        )
        await self._groups.ask(ApiKey.TXN_OFFSET_COMMIT, version, entity, error_of=_offset_commit_error)

    async def end(self, *, commit: bool) -> None:
        """End the open transaction."""
        version = END_VERSION_1 if self._adds else END_VERSION
        schema = messages.schema(ApiKey.END_TXN, version, "request")
        entity = schema.EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=commit,
        )
        response = await self._coordinator.ask(ApiKey.END_TXN, version, entity)
        if self._adds:
            self._added.clear()
        else:
            self._take(response)

    async def _add_partition(self, tp: TopicPartition) -> None:
        if tp in self._added:
            return
        schema = messages.schema(ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, "request")
        topic = schema.AddPartitionsToTxnTopic(name=tp.topic, partitions=(tp.partition,))
        entity = schema.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=(topic,),
        )
        await self._coordinator.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, entity, error_of=_add_partitions_error
        )
        self._added.add(tp)

    async def _add_group(self) -> None:
        schema = messages.schema(ApiKey.ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION, "request")
        entity = schema.AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            group_id=self._group,
        )
        await self._coordinator.ask(ApiKey.ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION, entity)
        self._added.add(self._group)


def _add_partitions_error(response: Any) -> ErrorCode:
    topics = response.results_by_topic_v3_and_below
    return first_error(row.partition_error_code for topic in topics for row in topic.results_by_partition)


def _offset_commit_error(response: Any) -> ErrorCode:
    return first_error(row.error_code for topic in response.topics for row in topic.partitions)
