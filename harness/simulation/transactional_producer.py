"""A producer of transactions on a virtual clock (KIP-98, KIP-890: `transaction.version` 2).

Owns: producer id, epoch and sequences. Partitions and groups join a transaction by the first write to them, and the
epoch rises with every transaction. A request without a response is sent again unchanged.
What may fail: `KafkaError` with the first error code that is not retriable; `begin_again` then aborts what is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode, KafkaError, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.records import NewRecord, build_batch

from .coordinator_client import GROUP, TRANSACTION, CoordinatorClient, first_error
from .group_member import Membership
from .producer import PRODUCE_TIMEOUT_MS, REQUEST_MS, RETRIABLE
from .wire import WireClient, pause_ms

INIT_VERSION, PRODUCE_VERSION, COMMIT_VERSION, END_VERSION = 5, 12, 5, 5
TIMEOUT_MS = 4_000
"""Of a transaction: that of a killed client ends within it."""
RETRIABLE_IN_PRODUCE = RETRIABLE | {ErrorCode.concurrent_transactions}


class SimulatedTransactionalProducer:
    """One transactional id."""

    def __init__(self, client: WireClient, name: str, group: str) -> None:
        self._client = client
        self._host = client.host
        self._name, self._group = name, group
        self._coordinator = CoordinatorClient(client, TRANSACTION, name)
        self._groups = CoordinatorClient(client, GROUP, group)
        self._identity = -1, -1
        self._sequences: dict[TopicPartition, int] = {}

    async def begin_again(self) -> None:
        """InitProducerId: aborts a transaction that this id left open, and fences earlier producers."""
        schema = messages.schema(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, "request")
        entity = schema.InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout=messages.milliseconds(TIMEOUT_MS)
        )
        while True:
            try:
                self._take(
                    await self._coordinator.ask(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, entity)
                )
            except KafkaError:
                await self._host.tasks.sleep(pause_ms(self._host))
            else:
                return

    def _take(self, response: Any) -> None:
        identity = response.producer_id, response.producer_epoch
        if identity != self._identity:
            self._identity, self._sequences = identity, {}

    async def produce(self, tp: TopicPartition, records: Sequence[NewRecord]) -> None:
        """Append one batch in the open transaction."""
        schema = messages.schema(ApiKey.PRODUCE, PRODUCE_VERSION, "request")
        sequence = self._sequences.get(tp, 0)
        data = build_batch(
            list(records), timestamp_ms=self._host.clock.wall_ms(), producer_id=self._identity[0],
            producer_epoch=self._identity[1], base_sequence=sequence, is_transactional=True,
        )  # fmt: skip
        row = schema.PartitionProduceData(index=tp.partition, records=data)
        entity = schema.ProduceRequest(
            transactional_id=self._name, acks=-1, timeout=messages.milliseconds(PRODUCE_TIMEOUT_MS),
            topic_data=(schema.TopicProduceData(name=tp.topic, partition_data=(row,)),),
        )  # fmt: skip
        while True:
            leader = await self._client.leader(tp)
            try:
                response = await self._client.ask(
                    leader.address, ApiKey.PRODUCE, PRODUCE_VERSION, entity, REQUEST_MS
                )
            except (OSError, TimeoutError, WireError):
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

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], membership: Membership
    ) -> None:
        """Commit the group's offsets in the open transaction (KIP-447)."""
        schema = messages.schema(ApiKey.TXN_OFFSET_COMMIT, COMMIT_VERSION, "request")
        rows = tuple(
            schema.TxnOffsetCommitRequestPartition(
                partition_index=tp.partition, committed_offset=offset, committed_metadata=""
            )
            for tp, offset in offsets.items()
        )
        (topic,) = {tp.topic for tp in offsets}
        entity = schema.TxnOffsetCommitRequest(
            transactional_id=self._name, group_id=self._group, producer_id=self._identity[0],
            producer_epoch=self._identity[1], generation_id=membership.generation, member_id=membership.member_id,
            topics=(schema.TxnOffsetCommitRequestTopic(name=topic, partitions=rows),),
        )  # fmt: skip
        await self._groups.ask(
            ApiKey.TXN_OFFSET_COMMIT, COMMIT_VERSION, entity, error_of=_offset_commit_error
        )

    async def end(self, *, commit: bool) -> None:
        """End the open transaction."""
        schema = messages.schema(ApiKey.END_TXN, END_VERSION, "request")
        entity = schema.EndTxnRequest(
            transactional_id=self._name, producer_id=self._identity[0], producer_epoch=self._identity[1],
            committed=commit,
        )  # fmt: skip
        self._take(await self._coordinator.ask(ApiKey.END_TXN, END_VERSION, entity))


def _offset_commit_error(response: Any) -> ErrorCode:
    return first_error(row.error_code for topic in response.topics for row in topic.partitions)
