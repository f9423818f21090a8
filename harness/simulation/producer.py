"""An idempotent producer of a simulation: acks=all, several batches in flight, retries in order (KIP-98).

Owns: `Producer`, one lane a partition; a lane's batches keep their sequence through every retry. What became of
each batch is kept: acknowledged (with its offset) or never answered for good.

Java's rules: while a batch is to be sent again nothing new leaves, and retries go one by one, in order, so that the
five batches which a broker remembers of a producer are enough. Before the first acknowledgement one batch is in
flight at a time: a broker takes any sequence from a producer it has never heard of (so does Kafka).
OUT_OF_ORDER_SEQUENCE_NUMBER is retried while an earlier batch was on its way when this one left. Otherwise the leader
does not remember what came before (a snapshot of producers has the newest batch of each alone, in Kafka as here):
what has been tried is given up with an unknown outcome, and the lane goes on under a new producer id. Whether the
cluster has forgotten something acknowledged is for the checks to say.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire import messages
from harrow.cluster.wire.records import NewRecord, build_batch

from .wire import WireClient, pause_ms

PRODUCE, PRODUCE_VERSION = 0, 8
INIT_PRODUCER_ID, INIT_VERSION = 22, 4
REQUEST_MS = 900
PRODUCE_TIMEOUT_MS = 700
RETRIABLE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out, ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append, ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch, ErrorCode.network_exception,
    }
)  # fmt: skip
"""Kafka's RetriableException among what Produce may answer."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """Some records with one sequence, until they are acknowledged."""

    sequence: int
    values: list[bytes]
    made_ms: int
    in_flight: bool = False
    attempts: int = 0
    failed: bool = False
    """It came back once: it is to be sent again, or is on its way again."""
    base_offset: int | None = None
    """Where it lies, once acknowledged; -1: acknowledged as a duplicate whose offset the leader forgot."""
    acked_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Lane:
    """One partition's batches."""

    tp: TopicPartition
    pending: list[Batch] = field(default_factory=list[Batch])
    acked: list[Batch] = field(default_factory=list[Batch])
    given_up: list[Batch] = field(default_factory=list[Batch])
    """In the log or not: nobody was told."""
    identity: tuple[int, int] = (-1, -1)
    heard_of: bool = False
    """The cluster has acknowledged something under this identity."""
    next_sequence: int = 0
    broken: str = ""


def produce_body(tp: TopicPartition, batch: bytes, acks: int) -> bytes:
    """A Produce v8 request for one batch."""
    topic = tp.topic.encode()
    head = struct.pack(">hhiih", -1, acks, PRODUCE_TIMEOUT_MS, 1, len(topic))
    return head + topic + struct.pack(">iii", 1, tp.partition, len(batch)) + batch


class Producer:
    """Sends what `offer` is given; every lane on its own."""

    def __init__(
        self, client: WireClient, topic: str, partitions: int, *, in_flight: int, acks: int,
        on_anomaly: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._client = client
        self._host = client.host
        self._in_flight = in_flight
        self._acks = acks
        self._on_anomaly = on_anomaly
        self.lanes = [Lane(tp=TopicPartition(topic, number)) for number in range(partitions)]

    async def start(self) -> None:
        """Get a producer id."""
        identity = await self._new_identity()
        for lane in self.lanes:
            lane.identity = identity

    async def _new_identity(self) -> tuple[int, int]:
        schema = messages.schema(INIT_PRODUCER_ID, INIT_VERSION, "request")
        entity = schema.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=messages.milliseconds(60_000),
            producer_id=-1,
            producer_epoch=-1,
        )
        while True:
            answer = await self._client.ask_anyone(INIT_PRODUCER_ID, INIT_VERSION, entity)
            if answer.error_code is ErrorCode.none:
                return int(answer.producer_id), int(answer.producer_epoch)
            await self._host.tasks.sleep(50)

    def offer(self, partition: int, values: list[bytes]) -> None:
        """One more batch for a partition."""
        lane = self.lanes[partition]
        batch = Batch(
            sequence=lane.next_sequence, values=values, made_ms=self._host.clock.monotonic_ms()
        )
        lane.next_sequence += len(values)
        lane.pending.append(batch)
        self._pump(lane)

    @property
    def acked(self) -> int:
        """Records acknowledged so far."""
        return sum(len(batch.values) for lane in self.lanes for batch in lane.acked)

    @property
    def idle(self) -> bool:
        """True when everything offered was acknowledged."""
        return not any(lane.pending for lane in self.lanes)

    def _pump(self, lane: Lane) -> None:
        if lane.broken:
            return
        most = self._in_flight
        if not lane.heard_of or any(batch.failed for batch in lane.pending):
            most = 1  # see the head
        for batch in lane.pending[:most]:
            if not batch.in_flight:
                batch.in_flight = True
                self._host.tasks.spawn(self._send(lane, batch), name=f"produce-{lane.tp}")

    async def _send(self, lane: Lane, batch: Batch) -> None:
        if batch.attempts:
            await self._host.tasks.sleep(pause_ms(self._host))
        batch.attempts += 1
        if batch not in lane.pending:
            return
        first = lane.pending[0] is batch
        error, offset = await self._attempt(lane, batch)
        if batch not in lane.pending:  # given up meanwhile, whatever the answer
            return
        batch.in_flight = False
        batch.failed = True
        if error in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            batch.base_offset = offset
            batch.acked_ms = self._host.clock.monotonic_ms()
            lane.pending.remove(batch)
            lane.acked.append(batch)
            lane.heard_of = True
        elif error is ErrorCode.out_of_order_sequence_number and not first:
            pass  # an earlier one did not arrive: both come again
        elif error is ErrorCode.out_of_order_sequence_number:
            await self._begin_anew(lane)
        elif error is not None and error not in RETRIABLE:
            lane.broken = f"sequence {batch.sequence} of {lane.tp}: {error.name}"
            self._on_anomaly("producer-refused", lane.broken)
        elif error is not None or batch.attempts > 1:
            await self._client.refresh(lane.tp.topic)
        self._pump(lane)

    async def _begin_anew(self, lane: Lane) -> None:
        for batch in lane.pending:
            batch.in_flight = True  # nothing leaves while the new id is drawn
        lane.identity = await self._new_identity()
        tried = [batch for batch in lane.pending if batch.attempts]
        lane.given_up += tried
        lane.pending = [batch for batch in lane.pending if not batch.attempts]
        lane.heard_of, lane.next_sequence = False, 0
        for batch in lane.pending:
            batch.in_flight, batch.sequence = False, lane.next_sequence
            lane.next_sequence += len(batch.values)

    async def _attempt(self, lane: Lane, batch: Batch) -> tuple[ErrorCode | None, int]:
        """The broker's word and the base offset; None where there was no word."""
        tp = lane.tp
        leader = await self._client.leader(tp)
        records: list[NewRecord] = [(None, value, ()) for value in batch.values]
        data = build_batch(
            records, timestamp_ms=self._host.clock.wall_ms(), producer_id=lane.identity[0],
            producer_epoch=lane.identity[1], base_sequence=batch.sequence,
        )  # fmt: skip
        body = produce_body(tp, data, self._acks)
        try:
            view = await self._client.request(
                leader.address, PRODUCE, PRODUCE_VERSION, body, REQUEST_MS
            )
            answer = messages.decode_response(PRODUCE, PRODUCE_VERSION, view)
        except (OSError, TimeoutError, WireError):
            await self._client.refresh(tp.topic)
            return None, -1
        row = answer.responses[0].partition_responses[0]
        return row.error_code, int(row.base_offset)
