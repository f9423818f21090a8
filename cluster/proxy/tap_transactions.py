"""Rows of transactions, as far as the requests of producers show them. Layout and meaning: `tap/layouts.py`.

Owns: `TransactionViews`, for all brokers of a proxy, because the partitions of a transaction are added at their leaders
(KIP-890) and the transaction ends at its coordinator. A transaction that the proxy did not see begin has the timeout
`TIMEOUT_MS_MOST`, so that no check takes it for late.

A decision is in the coordinator's log at some time between EndTxn and its response. Its row is written before the
response leaves, with the time of the first EndTxn: markers, and with them deliveries, may come before the response. An
EndTxn that has no response, or an error, has a row `END_UNKNOWN` instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..host.seam import END_UNKNOWN, PREPARE_ABORT, PREPARE_COMMIT, TRANSACTION_ONGOING, Tap
from ..ids import TopicPartition
from ..wire import messages
from ..wire.produce import ProduceRequest
from .pending import PendingRequest
from .tap_offsets import decode_request, decode_response
from .topic_names import TopicNames

TIMEOUT_MS_MOST = 900_000
"""Kafka's default of transaction.max.timeout.ms."""
VIEWS_MOST = 100_000
BATCHED_FROM = 4
"""From this version on AddPartitionsToTxn is a broker's request for several transactions."""


@dataclass(slots=True)
class TransactionView:
    """What passed of one transactional id."""

    timeout_ms: int = TIMEOUT_MS_MOST
    producer: tuple[int, int] = (-1, -1)
    """Producer id and epoch of the records."""
    partitions: dict[TopicPartition, None] = field(default_factory=dict[TopicPartition, None])
    """The partitions of the open transaction, in the order in which they were added."""
    ending_ns: int = 0
    """When the first EndTxn of the open transaction was forwarded; 0: none was."""


class TransactionViews:
    """The transactions of one cluster by transactional id."""

    def __init__(self) -> None:
        self._views: dict[str, TransactionView] = {}

    def of(self, transactional_id: str) -> TransactionView:
        """The view of an id; the longest unused one is forgotten for a new one when there are too many."""
        view = self._views.pop(transactional_id, None) or TransactionView()
        self._views[transactional_id] = view
        if len(self._views) > VIEWS_MOST:
            del self._views[next(iter(self._views))]
        return view

    def add(
        self, tap: Tap, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]
    ) -> None:
        """Partitions are in the open transaction of a producer; write rows of those that were not."""
        view = self.of(transactional_id)
        if view.producer != producer or view.ending_ns:
            view.producer, view.ending_ns = producer, 0
            view.partitions.clear()
        new = [tp for tp in partitions if tp not in view.partitions]
        view.partitions.update(dict.fromkeys(new))
        write_rows(tap, transactional_id, view, new, TRANSACTION_ONGOING)

    def produced(self, tap: Tap, names: TopicNames, produce: ProduceRequest) -> None:
        """A Produce adds its partitions, where it has a batch."""
        for entry in produce.entries:
            if entry.records is not None and len(entry.records) >= BATCH_BYTES_LEAST:
                assert produce.transactional_id is not None, "a transaction"
                producer = producer_of(entry.records)
                tp = TopicPartition(names.name(entry.topic), entry.partition)
                self.add(tap, produce.transactional_id, producer, [tp])


BATCH_BYTES_LEAST = 61
_PRODUCER_ID, _PRODUCER_EPOCH = slice(43, 51), slice(51, 53)


def producer_of(records: memoryview) -> tuple[int, int]:
    """Producer id and epoch in the header of the first batch."""
    identity, epoch = bytes(records[_PRODUCER_ID]), bytes(records[_PRODUCER_EPOCH])
    return int.from_bytes(identity, "big", signed=True), int.from_bytes(epoch, "big", signed=True)


def write_rows(
    tap: Tap, transactional_id: str, view: TransactionView, partitions: Iterable[TopicPartition], state: int
) -> None:
    """Write a row for each partition; a decision has the time of its first EndTxn."""
    tap.transaction(
        transactional_id,
        partitions,
        state=state,
        producer_id=view.producer[0],
        producer_epoch=view.producer[1],
        timeout_ms=view.timeout_ms,
        since_ns=view.ending_ns,
    )


class TappedTransactions:
    """The requests of a transaction coordinator."""

    def __init__(self, tap: Tap, views: TransactionViews) -> None:
        self._tap = tap
        self._views = views

    def initialised(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """InitProducerId: a new epoch, and the timeout of later transactions."""
        body = decode_request(request)
        if body.transactional_id is None or decode_response(request, response, body_at).error_code:
            return
        view = self._views.of(body.transactional_id)
        view.timeout_ms = messages.to_milliseconds(body.transaction_timeout)

    def partitions_added(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """AddPartitionsToTxn of a client: the partitions without an error."""
        if request.version >= BATCHED_FROM:
            return
        body, answer = decode_request(request), decode_response(request, response, body_at)
        added = [
            TopicPartition(topic.name, row.partition_index)
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
            if not row.partition_error_code
        ]
        producer = (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        self._views.add(self._tap, body.v3_and_below_transactional_id, producer, added)

    def end_forwarded(self, request: PendingRequest) -> None:
        """EndTxn: from now on the coordinator may decide."""
        body = request.tapped = decode_request(request)
        view = self._views.of(body.transactional_id)
        if not view.ending_ns:
            view.ending_ns = request.invoked_ns

    def ended(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """EndTxn: the decision of the coordinator, unless it has an error."""
        if decode_response(request, response, body_at).error_code:
            self.unanswered(request)
        else:
            self._write(request.tapped, PREPARE_COMMIT if request.tapped.committed else PREPARE_ABORT)

    def unanswered(self, request: PendingRequest) -> None:
        """EndTxn without a result."""
        self._write(request.tapped, END_UNKNOWN)

    def _write(self, body: Any, state: int) -> None:
        view = self._views.of(body.transactional_id)
        if view.producer == (body.producer_id, body.producer_epoch):
            write_rows(self._tap, body.transactional_id, view, view.partitions, state)
