"""Requests of a transactional producer over `RawKafka`, of any version, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka, batch
from waiting import until

TRANSACTION = 1
RETRIABLE = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    }
)


def coordinator_of(raw: RawKafka, name: str, kind: int = TRANSACTION) -> int:
    """The node that coordinates a transactional id or a group, once it is known."""

    def find() -> int | None:
        s = messages.schema(ApiKey.FIND_COORDINATOR, 4, "request")
        entity = s.FindCoordinatorRequest(key_type=kind, coordinator_keys=(name,))
        (row,) = raw.ask(ApiKey.FIND_COORDINATOR, 4, entity).coordinators
        return row.node_id if row.error_code is ErrorCode.none else None

    return until(find, f"the coordinator of {name}")


@dataclass
class RawProducer:
    """One transactional producer. `connect` gives a connection to a node; errors are returned, not raised."""

    connect: Callable[[int], RawKafka]
    name: str
    any_node: int = 1
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    @property
    def coordinator(self) -> RawKafka:
        return self.connect(coordinator_of(self.connect(self.any_node), self.name))

    def patiently(self, ask: Callable[[], Any]) -> Any:
        """The first response of `ask` without a retriable error."""
        last: list[Any] = []

        def done() -> bool:
            last[:] = [ask()]
            return last[0].error_code not in RETRIABLE

        until(done, lambda: f"a final response; the last was {last}")
        return last[0]

    # ---- InitProducerId ----------------------------------------------------------------------------

    def ask_init(self, *given: int, version: int = 5, timeout_ms: int = 60_000, name: str | None = None) -> Any:
        """InitProducerId; `given`: producer id and epoch (KIP-360)."""
        s = messages.schema(ApiKey.INIT_PRODUCER_ID, version, "request")
        extra = dict(zip(("producer_id", "producer_epoch"), given, strict=False))
        entity = s.InitProducerIdRequest(
            transactional_id=self.name if name is None else name,
            transaction_timeout=messages.milliseconds(timeout_ms),
            **extra,
        )
        return self.coordinator.ask(ApiKey.INIT_PRODUCER_ID, version, entity)

    def init(self, *given: int, version: int = 5, timeout_ms: int = 60_000) -> Any:
        """As `ask_init`, until the coordinator is free; takes the id and the epoch."""
        answer = self.patiently(lambda: self.ask_init(*given, version=version, timeout_ms=timeout_ms))
        if answer.error_code is ErrorCode.none:
            self.take(answer)
        return answer

    def take(self, answer: Any) -> None:
        """Go on with the id and the epoch of a response."""
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self.sequence = 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    # ---- AddPartitionsToTxn, AddOffsetsToTxn -------------------------------------------------------

    def add(self, topic: str, *partitions: int, version: int = 3) -> ErrorCode:
        """AddPartitionsToTxn as a client sends it; the error of the lowest partition."""
        s = messages.schema(ApiKey.ADD_PARTITIONS_TO_TXN, version, "request")
        entity = s.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(s.AddPartitionsToTxnTopic(name=topic, partitions=partitions or (0,)),),
        )
        answer = self.coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, entity)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        return ErrorCode(min(rows, key=lambda row: row.partition_index).partition_error_code)

    def add_many(self, version: int, **topics: Sequence[int]) -> list[tuple[str, list[tuple[int, ErrorCode]]]]:
        """AddPartitionsToTxn v4 or v5, for one transaction: of each topic the partitions with their errors."""
        s = messages.schema(ApiKey.ADD_PARTITIONS_TO_TXN, version, "request")
        rows = tuple(
            s.AddPartitionsToTxnTopic(name=name, partitions=tuple(numbers)) for name, numbers in topics.items()
        )
        transaction = s.AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=False,
            topics=rows,
        )
        entity = s.AddPartitionsToTxnRequest(transactions=(transaction,))
        answer = self.coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, entity)
        assert answer.error_code is ErrorCode.none, answer
        (result,) = answer.results_by_transaction
        assert result.transactional_id == self.name
        return [
            (
                topic.name,
                [(row.partition_index, ErrorCode(row.partition_error_code)) for row in topic.results_by_partition],
            )
            for topic in result.topic_results
        ]

    def add_offsets(self, group: str, version: int = 3) -> ErrorCode:
        """AddOffsetsToTxn."""
        s = messages.schema(ApiKey.ADD_OFFSETS_TO_TXN, version, "request")
        entity = s.AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        answer = self.coordinator.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, entity)
        return ErrorCode(answer.error_code)

    # ---- Produce -----------------------------------------------------------------------------------

    def batch(self, values: Sequence[str], **fields: Any) -> bytes:
        """A transactional batch with the next sequence."""
        wanted = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequence,
            "is_transactional": True,
            **fields,
        }
        return batch(values, **wanted)

    def produce(self, leader: RawKafka, topic: Any, *values: str, version: int = 11, data: bytes | None = None) -> Any:
        """Produce to partition 0; the row of the response. `topic`: a name, or an id from v13 on."""
        s = messages.schema(ApiKey.PRODUCE, version, "request")
        records = self.batch(values) if data is None else data
        row = s.PartitionProduceData(index=0, records=records)
        named = {"topic_id": topic} if version >= 13 else {"name": topic}
        entity = s.ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout=messages.milliseconds(30_000),
            topic_data=(s.TopicProduceData(**named, partition_data=(row,)),),
        )
        answer = leader.ask(ApiKey.PRODUCE, version, entity).responses[0].partition_responses[0]
        if answer.error_code is ErrorCode.none and data is None:
            self.sequence += len(values)
        return answer

    # ---- EndTxn ------------------------------------------------------------------------------------

    def ask_end(self, *, commit: bool, version: int = 5, epoch: int | None = None) -> Any:
        """EndTxn."""
        s = messages.schema(ApiKey.END_TXN, version, "request")
        entity = s.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        return self.coordinator.ask(ApiKey.END_TXN, version, entity)

    def end(self, *, commit: bool, version: int = 5) -> Any:
        """As `ask_end`, until the coordinator is free; takes the next epoch where the version has it."""
        answer = self.patiently(lambda: self.ask_end(commit=commit, version=version))
        if answer.error_code is ErrorCode.none and version >= 5:
            self.take(answer)
        return answer

    # ---- DescribeTransactions ----------------------------------------------------------------------

    def describe(self) -> Any:
        """DescribeTransactions; its row, once the coordinator serves."""
        return self.patiently(self._ask_description)

    def _ask_description(self) -> Any:
        s = messages.schema(ApiKey.DESCRIBE_TRANSACTIONS, 0, "request")
        entity = s.DescribeTransactionsRequest(transactional_ids=(self.name,))
        return self.coordinator.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, entity).transaction_states[0]

    def await_state(self, *states: str) -> Any:
        """Wait until the transaction is in one of these states; its row."""
        last: list[Any] = []

        def reached() -> bool:
            last[:] = [self.describe()]
            return last[0].transaction_state in states

        until(reached, lambda: f"{self.name} in {states}; now {last}")
        return last[0]
