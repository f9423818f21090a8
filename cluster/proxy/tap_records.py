"""Rows of batches: what Produce responses acknowledged, what Fetch responses delivered.

Owns: the fetch sessions of one broker. Layout and meaning of the rows: `host/tap.py`. A Produce that is part of a
transaction of version 2 (KIP-890) adds its partitions to the transaction, so it writes rows of transactions too.
"""

from __future__ import annotations

from ..host.seam import Tap
from ..wire.fetch import decode_fetch
from ..wire.fetch_response import decode_fetch_response
from ..wire.produce import ProduceAnswer, decode_produce
from ..wire.produce_response import decode_produce_response
from ..wire.topic_ids import UUID
from .fetch_sessions import FetchSessions, Offsets
from .pending import PendingRequest
from .tap_transactions import TransactionViews
from .topic_names import TopicNames

READ_COMMITTED = 1
ADDS_PARTITIONS_FROM = 12
"""The first version of Produce that adds its partitions to the transaction (KIP-890)."""


class TappedProduces:
    """Produce at one broker."""

    def __init__(self, tap: Tap, names: TopicNames, transactions: TransactionViews) -> None:
        self._tap = tap
        self._names = names
        self._transactions = transactions

    def forwarded(self, request: PendingRequest) -> None:
        """Keep the batches, and add the partitions of a transaction: the broker may do so from now on."""
        produce = request.tapped = decode_produce(request)
        if produce.transactional_id is not None and request.version >= ADDS_PARTITIONS_FROM:
            self._transactions.produced(self._tap, self._names, produce)

    def answered(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """Write a row for each batch."""
        answers = decode_produce_response(request.version, response, body_at)
        self._write(request, {(row.topic, row.partition): row for row in answers})

    def refused(self, request: PendingRequest, error: int) -> None:
        """Write rows for batches that the proxy refuses."""
        request.tapped = decode_produce(request)
        answers = {
            (entry.topic, entry.partition): ProduceAnswer(entry.topic, entry.partition, error)
            for entry in request.tapped.entries
        }
        self._write(request, answers)

    def _write(
        self, request: PendingRequest, answers: dict[tuple[str | UUID, int], ProduceAnswer]
    ) -> None:
        for entry in request.tapped.entries:
            row = answers.get((entry.topic, entry.partition))
            if row is not None:
                self._tap.produced(
                    request.client_id, self._names.name(entry.topic), entry.partition,
                    base_offset=-1 if row.error else row.base_offset, error=int(row.error), acks=request.tapped.acks,
                    invoked_ns=request.invoked_ns, batches=entry.records or b"", lost=request.lost,
                )  # fmt: skip


class TappedFetches:
    """Fetch at one broker."""

    def __init__(self, tap: Tap, names: TopicNames) -> None:
        self._tap = tap
        self._names = names
        self._sessions = FetchSessions()

    def forwarded(self, request: PendingRequest) -> None:
        """Keep the offsets that the client asks for; a follower's fetches have no rows."""
        fetch = decode_fetch(request)
        request.frame = b""
        if fetch.replica_id < 0:
            request.tapped = (self._sessions.asked(fetch), fetch.isolation_level)

    def answered(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """Write a row for each batch."""
        if request.tapped is None:
            return
        offsets: Offsets
        offsets, isolation_level = request.tapped
        decoded = decode_fetch_response(request.version, response, body_at)
        for row in decoded.partitions:
            if len(row.records):
                aborted = None if isolation_level != READ_COMMITTED else row.aborted or ()
                self._tap.fetched(
                    request.client_id, self._names.name(row.topic), row.partition,
                    offset=offsets.get((row.topic, row.partition), 0), invoked_ns=request.invoked_ns,
                    batches=(row.records,), aborted=aborted,
                )  # fmt: skip
        self._sessions.answered(decoded.session_id, offsets)
