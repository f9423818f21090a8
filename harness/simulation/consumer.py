"""A reader of a simulation: follows each partition from its beginning, epochs carried (KIP-320).

With `reads_from` = `same-broker` it stays with the broker that led a partition when it began to read it, also when that
broker follows (KIP-392), and states no leader epoch, as clients do that do not implement KIP-320. After an error it
goes to the leader of that time.

Each record that it reads is an operation of the history. OFFSET_OUT_OF_RANGE at its position means that something which
it read is gone: the anomaly `offset-out-of-range`. A broker that led in an older epoch than that of the last record may
say so legally, because it was deposed before the record was written and does not know it.
"""

from __future__ import annotations

from collections.abc import Callable

from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.fetch_response import FetchedPartition
from harrow.cluster.wire.records import Record, decode_records
from harrow.faults.runs import SAME_BROKER

from ..backends.simulated.wire import KnownLeader, WireClient
from ..histories.format import OperationFunction, OperationType
from ..histories.memory import MemoryHistory, hash_of, hash_of_key

WAIT_MS = 400
READ_UNCOMMITTED = 0


class SimulatedConsumer:
    """Reads every partition of a topic for as long as the simulation runs."""

    def __init__(
        self,
        client: WireClient,
        topic: str,
        partitions: int,
        history: MemoryHistory,
        *,
        reads_from: str,
        on_anomaly: Callable[[str, str], None],
    ) -> None:
        self._client = client
        self._host = client.host
        self._on_anomaly = on_anomaly
        self._stays = reads_from == SAME_BROKER
        self._brokers: dict[TopicPartition, KnownLeader] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epoch of the last batch that was read."""
        self.positions = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self._history = history
        self._names = history.name("reader"), history.name(topic)

    def start(self) -> None:
        """Begin to read."""
        for tp in self.positions:
            self._host.tasks.spawn(self._follow(tp), name=f"read-{tp}")

    async def _follow(self, tp: TopicPartition) -> None:
        while True:
            broker = self._brokers.get(tp) or await self._client.leader(tp)
            row = await self._fetch(tp, broker)
            error = None if row is None else ErrorCode(row.error)
            if row is not None and error is ErrorCode.none:
                self._take(tp, row)
                continue
            deposed = broker.epoch < self._epochs.get(tp, 0)
            if row is not None and error is ErrorCode.offset_out_of_range and not deposed:
                text = f"{tp} at {self.positions[tp]}, its log starts at {row.log_start_offset}"
                self._on_anomaly("offset-out-of-range", text)
                return
            self._brokers.pop(tp, None)
            await self._client.refresh(tp.topic)
            await self._client.pause()

    async def _fetch(self, tp: TopicPartition, broker: KnownLeader) -> FetchedPartition | None:
        epoch = broker.epoch
        if self._stays:
            self._brokers[tp], epoch = broker, -1
        offset = self.positions[tp]
        return await self._client.fetch(tp, broker, offset, WAIT_MS, isolation=READ_UNCOMMITTED, epoch=epoch)

    def _take(self, tp: TopicPartition, row: FetchedPartition) -> None:
        position = self.positions[tp]
        for at, size, header in headers(row.records):
            self._epochs[tp] = header.leader_epoch
            for record in decode_records(row.records[at : at + size]):
                if record.offset >= position:
                    self._record(tp, record)
                    position = record.offset + 1
        self.positions[tp] = position

    def _record(self, tp: TopicPartition, record: Record) -> None:
        assert record.value is not None, "the workload writes values"
        client, topic = self._names
        self._history.append(
            OperationFunction.POLL,
            OperationType.OK,
            client,
            topic,
            tp.partition,
            record.offset,
            self._history.next_op(),
            key_hash=hash_of_key(record.key),
            value_hash=hash_of(record.value),
            time_ns=self._host.clock.monotonic_ns(),
        )
