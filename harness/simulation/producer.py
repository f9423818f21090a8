"""An idempotent producer of a simulation: acks=all, several batches in flight, retries in order (KIP-98).

Owns: `SimulatedProducer`, with the batches of each partition (`PartitionBatches`), which keep their sequence
through every retry. Each record is an operation of the history: invoked when it is offered, ok when it is
acknowledged, info when its outcome is unknown.

Java's rules: while a batch is to be sent again nothing new leaves, and retries are sent singly, in order, so that the
five batches which a broker remembers of a producer are enough. The outcome of a batch can be unknown, because its
connection was reset, while later batches are acknowledged on the next connection: these count as in flight until the
oldest batch has an outcome. Before the first acknowledgement a single batch is in
flight at a time: a broker takes any sequence from a producer that it does not know (so does Kafka).
OUT_OF_ORDER_SEQUENCE_NUMBER is retried while an earlier batch was in flight when this batch left. Otherwise the leader
does not remember what came before (a snapshot of producers has the newest batch of each alone, in Kafka as here):
what has been tried is given up with an unknown outcome, and the partition continues under a new producer id. With
`resends` the producer sends it again under the new id, as the Java client does after it has raised its epoch (KIP-360):
the log then has a batch twice when the broker had appended it.
Whether the cluster lost something acknowledged is the oracle's question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.records import NewRecord, build_batch

from ..backends.simulated.wire import WireClient
from ..histories.format import OperationFunction, OperationType
from ..histories.memory import MemoryHistory, hash_of, hash_of_key

PRODUCE_VERSION, INIT_VERSION = 8, 4
REQUEST_MS = 900
PRODUCE_TIMEOUT_MS = 700
VALUES_OF_KEY = 4
RETRIABLE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.network_exception,
    }
)
"""Kafka's RetriableException among what Produce may answer."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """Some records with one sequence, until they are acknowledged."""

    number: int
    """Its place among all batches of the partition."""
    sequence: int
    values: list[bytes]
    first_op: int
    """The operation of its first record; the others follow."""
    invoked_ns: int
    offered_ms: int
    """Wall time of `invoked_ns`."""
    in_flight: bool = False
    attempts: int = 0
    failed: bool = False
    """It came back once: it is sent again."""
    base_offset: int | None = None
    """Where it lies, once acknowledged; -1: acknowledged as a duplicate whose offset the leader forgot."""


@dataclass(slots=True, kw_only=True)
class PartitionBatches:
    """One partition's batches."""

    tp: TopicPartition
    pending: list[Batch] = field(default_factory=list[Batch])
    identity: tuple[int, int] = (-1, -1)
    acknowledged: bool = False
    """The cluster has acknowledged something under this identity."""
    next_sequence: int = 0
    made: int = 0
    """How many batches there were."""
    broken: str = ""


def key_of(value: bytes, keys: int) -> bytes | None:
    """Return the key of the record `PARTITION:NUMBER`, by its number; None without keys.

    `keys` keys have values in turn, `VALUES_OF_KEY` each, and then the next keys: compaction must keep each last value.
    """
    if not keys:
        return None
    number = int(value.rpartition(b":")[2])
    return f"key {number // (keys * VALUES_OF_KEY) * keys + number % keys}".encode()


def produce_request(
    tp: TopicPartition, batch: bytes, version: int, *, acks: int, transactional_id: str | None = None
) -> ClientRequest:
    """Return the Produce request with one batch."""
    return client_request(
        ApiKey.PRODUCE,
        version,
        transactional_id=transactional_id,
        acks=acks,
        timeout=PRODUCE_TIMEOUT_MS,
        topic_data=[{"name": tp.topic, "partition_data": [{"index": tp.partition, "records": batch}]}],
    )


class SimulatedProducer:
    """Sends the batches that `offer` receives; each partition by itself."""

    def __init__(
        self,
        client: WireClient,
        topic: str,
        count: int,
        history: MemoryHistory,
        *,
        in_flight: int,
        acks: int,
        resends: bool,
        on_anomaly: Callable[[str, str], None],
        name: str = "producer",
        keys: int = 0,
    ) -> None:
        """`keys`: how many keys the records have; 0: they have none."""
        self._client = client
        self._host = client.host
        self._in_flight = in_flight
        self._acks = acks
        self._resends = resends
        self._keys = keys
        self._on_anomaly = on_anomaly
        self._history = history
        self._names = history.name(name), history.name(topic)
        history.append(
            OperationFunction.CLIENT,
            OperationType.OK,
            self._names[0],
            history.name(""),
            -1,
            acks,
            1,
            time_ns=self._now_ns,
        )
        self.acked = 0
        """Records acknowledged so far."""
        self.last_acked_ns: int | None = None
        self.started = False
        """True once it has a producer id."""
        self.partitions = [PartitionBatches(tp=TopicPartition(topic, number)) for number in range(count)]

    async def start(self) -> None:
        """Get a producer id."""
        identity = await self._new_identity()
        for queue in self.partitions:
            queue.identity = identity
        self.started = True

    async def _new_identity(self) -> tuple[int, int]:
        request = client_request(
            ApiKey.INIT_PRODUCER_ID, INIT_VERSION, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )
        while True:
            answer = await self._client.ask_any_broker(request)
            if answer.error_code is ErrorCode.none:
                return int(answer.producer_id), int(answer.producer_epoch)
            await self._host.tasks.sleep(50)

    def offer(self, partition: int, values: list[bytes]) -> None:
        """One more batch for a partition."""
        queue = self.partitions[partition]
        now_ns = self._now_ns
        operations = [self._history.next_op() for _ in values]
        batch = Batch(
            number=queue.made,
            sequence=queue.next_sequence,
            values=values,
            first_op=operations[0],
            invoked_ns=now_ns,
            offered_ms=self._host.clock.wall_ms(),
        )
        last = queue.pending[-1] if queue.pending else None
        taken = 0 if last is None else last.sequence + len(last.values)
        assert taken <= batch.sequence, f"{queue.tp}: sequence {batch.sequence} is used up to {taken}"
        queue.made += 1
        self._record(queue, batch, OperationType.INVOKE)
        queue.next_sequence += len(values)
        queue.pending.append(batch)
        self._pump(queue)

    @property
    def _now_ns(self) -> int:
        return self._host.clock.monotonic_ns()

    def _record(self, queue: PartitionBatches, batch: Batch, outcome: OperationType) -> None:
        """One row for each record of a batch."""
        client, topic = self._names
        base = -1 if batch.base_offset is None else batch.base_offset
        for delta, value in enumerate(batch.values):
            self._history.append(
                OperationFunction.SEND,
                outcome,
                client,
                topic,
                queue.tp.partition,
                -1 if base < 0 else base + delta,
                batch.first_op + delta,
                key_hash=hash_of_key(key_of(value, self._keys)),
                value_hash=hash_of(value),
                timestamp_ms=batch.offered_ms,
                invoked_ns=batch.invoked_ns,
                time_ns=self._now_ns,
            )

    @property
    def idle(self) -> bool:
        """True when everything offered was acknowledged."""
        return not any(queue.pending for queue in self.partitions)

    def _pump(self, queue: PartitionBatches) -> None:
        if queue.broken:
            return
        most = self._in_flight
        if not queue.acknowledged or any(batch.failed for batch in queue.pending):
            most = 1  # see the head
        for batch in queue.pending[:most]:
            # acknowledged batches after the oldest one count: a broker remembers no more of them
            within = batch.number < queue.pending[0].number + most
            if within and not batch.in_flight:
                batch.in_flight = True
                self._host.tasks.spawn(self._send(queue, batch), name=f"produce-{queue.tp}")

    async def _send(self, queue: PartitionBatches, batch: Batch) -> None:
        if batch.attempts:
            await self._client.pause()
        batch.attempts += 1
        if batch not in queue.pending:
            return
        first = queue.pending[0] is batch
        error, offset = await self._attempt(queue, batch)
        if batch not in queue.pending:  # given up meanwhile, whatever the answer
            return
        batch.in_flight = False
        batch.failed = True
        if error in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            assert batch.base_offset is None, f"batch {batch.number} of {queue.tp} was acknowledged before"
            batch.base_offset = offset
            queue.pending.remove(batch)
            self._record(queue, batch, OperationType.OK)
            self.acked += len(batch.values)
            self.last_acked_ns = self._now_ns
            queue.acknowledged = True
        elif error is ErrorCode.out_of_order_sequence_number and not first:
            pass  # an earlier batch did not arrive: both are sent again
        elif error is ErrorCode.out_of_order_sequence_number:
            await self._take_new_identity(queue)
        elif error is not None and error not in RETRIABLE:
            queue.broken = f"sequence {batch.sequence} of {queue.tp}: {error.name}"
            self._on_anomaly("send-refused", queue.broken)
        elif error is not None or batch.attempts > 1:
            await self._client.refresh(queue.tp.topic)
        self._pump(queue)

    async def _take_new_identity(self, queue: PartitionBatches) -> None:
        for batch in queue.pending:
            batch.in_flight = True  # nothing leaves while the new id is drawn
        queue.identity = await self._new_identity()
        if not self._resends:
            for batch in queue.pending:
                if batch.attempts:
                    self._record(queue, batch, OperationType.INFO)
            queue.pending = [batch for batch in queue.pending if not batch.attempts]
        queue.acknowledged, queue.next_sequence = False, 0
        for batch in queue.pending:
            batch.in_flight, batch.sequence = False, queue.next_sequence
            queue.next_sequence += len(batch.values)

    async def _attempt(self, queue: PartitionBatches, batch: Batch) -> tuple[ErrorCode | None, int]:
        """The broker's error code and the base offset; None where no answer came."""
        tp = queue.tp
        leader = await self._client.leader(tp)
        records: list[NewRecord] = [(key_of(value, self._keys), value, ()) for value in batch.values]
        data = build_batch(
            records,
            timestamp_ms=self._host.clock.wall_ms(),
            producer_id=queue.identity[0],
            producer_epoch=queue.identity[1],
            base_sequence=batch.sequence,
        )
        request = produce_request(tp, data, PRODUCE_VERSION, acks=self._acks)
        try:
            answer = await self._client.ask(leader.address, request, REQUEST_MS)
        except (OSError, WireError):
            await self._client.refresh(tp.topic)
            return None, -1
        row = answer.responses[0].partition_responses[0]
        return row.error_code, int(row.base_offset)
