"""Requests of a transactional producer over `RawKafka`, of any version, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harrow.cluster.errors import ErrorCode
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
        (row,) = raw.ask(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=(name,)).coordinators
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

    def _ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """The coordinator's response to a request of this producer."""
        own = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        return self.coordinator.ask(key, version, **{**own, **fields})

    # ---- InitProducerId ----------------------------------------------------------------------------

    def ask_init(self, *given: int, version: int = 5, timeout_ms: int = 60_000, name: str | None = None) -> Any:
        """InitProducerId; `given`: producer id and epoch (KIP-360)."""
        extra = dict(zip(("producer_id", "producer_epoch"), given, strict=False))
        return self.coordinator.ask(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=self.name if name is None else name,
            transaction_timeout=timeout_ms,
            **extra,
        )

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
        answer = self.coordinator.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=({"name": topic, "partitions": partitions or (0,)},),
        )
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        return ErrorCode(min(rows, key=lambda row: row.partition_index).partition_error_code)

    def add_many(self, version: int, **topics: Sequence[int]) -> list[tuple[str, list[tuple[int, ErrorCode]]]]:
        """AddPartitionsToTxn v4 or v5, for one transaction: of each topic the partitions with their errors."""
        rows = tuple({"name": name, "partitions": tuple(numbers)} for name, numbers in topics.items())
        transaction = {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "verify_only": False,
            "topics": rows,
        }
        answer = self.coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=(transaction,))
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
        answer = self._ask(ApiKey.ADD_OFFSETS_TO_TXN, version, group_id=group)
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
        records = self.batch(values) if data is None else data
        row = {"index": 0, "records": records}
        named = {"topic_id": topic} if version >= 13 else {"name": topic}
        topics = [{**named, "partition_data": [row]}]
        asked = leader.ask(
            ApiKey.PRODUCE, version, transactional_id=self.name, acks=-1, timeout=30_000, topic_data=topics
        )
        answer = asked.responses[0].partition_responses[0]
        if answer.error_code is ErrorCode.none and data is None:
            self.sequence += len(values)
        return answer

    # ---- EndTxn ------------------------------------------------------------------------------------

    def ask_end(self, *, commit: bool, version: int = 5, epoch: int | None = None) -> Any:
        """EndTxn."""
        given = {} if epoch is None else {"producer_epoch": epoch}
        return self._ask(ApiKey.END_TXN, version, committed=commit, **given)

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
        answer = self.coordinator.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.name])
        return answer.transaction_states[0]

    def await_state(self, *states: str) -> Any:
        """Wait until the transaction is in one of these states; its row."""
        last: list[Any] = []

        def reached() -> bool:
            last[:] = [self.describe()]
            return last[0].transaction_state in states

        until(reached, lambda: f"{self.name} in {states}; now {last}")
        return last[0]
