"""Rows of batches and watermarks: what Produce acknowledged, what Fetch and ListOffsets returned.

Owns: the fetch sessions of one broker. Layout and meaning of the rows: `tap/layouts.py`. A
Produce that is part of a transaction of version 2 (KIP-890) adds its partitions to the transaction, so it writes rows
of transactions too. The leader epoch of a Fetch response is that of its request, which the
broker compares with its own.
"""

from __future__ import annotations

from typing import Any

from ..host.seam import Tap, Watermarks
from ..wire import messages
from ..wire.fetch import FetchRequest, decode_fetch
from ..wire.fetch_response import decode_fetch_response
from ..wire.produce import ProduceAnswer, decode_produce
from ..wire.produce_response import decode_produce_response
from ..wire.topic_ids import UUID
from .fetch_sessions import Asked, FetchSessions, Offsets
from .pending import PendingRequest
from .tap_transactions import TransactionViews
from .topic_names import TopicNames

READ_COMMITTED = 1
LATEST = -1
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

    def answered(self, request: PendingRequest, response: bytes, body_at: int) -> int:
        """Write a row for each batch; return the first error."""
        answers = decode_produce_response(request.version, response, body_at)
        self._write(request, {(row.topic, row.partition): row for row in answers})
        return next((int(row.error) for row in answers if row.error), 0)

    def refused(self, request: PendingRequest, error: int) -> None:
        """Write rows for batches that the proxy refuses."""
        request.tapped = decode_produce(request)
        answers = {
            (entry.topic, entry.partition): ProduceAnswer(entry.topic, entry.partition, error)
            for entry in request.tapped.entries
        }
        self._write(request, answers)

    def _write(self, request: PendingRequest, answers: dict[tuple[str | UUID, int], ProduceAnswer]) -> None:
        for entry in request.tapped.entries:
            row = answers.get((entry.topic, entry.partition))
            if row is not None:
                self._tap.produced(
                    request.client_id,
                    self._names.name(entry.topic),
                    entry.partition,
                    base_offset=-1 if row.error else row.base_offset,
                    error=int(row.error) or request.error,
                    acks=request.tapped.acks,
                    invoked_ns=request.invoked_ns,
                    batches=entry.records or b"",
                    lost=request.lost,
                )


class TappedFetches:
    """Fetch at one broker."""

    def __init__(self, tap: Tap, names: TopicNames) -> None:
        self._tap = tap
        self._names = names
        self._sessions = FetchSessions()

    def forwarded(self, request: PendingRequest) -> None:
        """Keep what the client asks for; a follower's fetches have no rows."""
        fetch = decode_fetch(request)
        request.frame = b""
        if fetch.replica_id < 0:
            request.tapped = (self._sessions.asked(fetch), fetch)

    def answered(self, request: PendingRequest, response: bytes, body_at: int) -> int | None:
        """Write a row for each batch; return the first error."""
        if request.tapped is None:
            return None
        offsets: Offsets
        fetch: FetchRequest
        offsets, fetch = request.tapped
        found: list[Watermarks] = []
        decoded = decode_fetch_response(request.version, response, body_at)
        for row in decoded.partitions:
            asked = offsets.get((row.topic, row.partition), Asked())
            if not row.error and not fetch.rack_id:  # a consumer with a rack may read from a follower
                found.append(
                    Watermarks(
                        self._names.name(row.topic),
                        row.partition,
                        asked.leader_epoch,
                        row.high_watermark,
                        row.last_stable_offset,
                        row.log_start_offset,
                        self._names.mark(row.topic),
                    )
                )
            if len(row.records):
                aborted = None if fetch.isolation_level != READ_COMMITTED else row.aborted or ()
                self._tap.fetched(
                    request.client_id,
                    self._names.name(row.topic),
                    row.partition,
                    offset=asked.offset,
                    invoked_ns=request.invoked_ns,
                    batches=(row.records,),
                    aborted=aborted,
                )
        self._tap.watermarks(request.client_id, found, invoked_ns=request.invoked_ns)
        self._sessions.answered(decoded.session_id, offsets)
        errors = (decoded.error, *(row.error for row in decoded.partitions))
        return next((int(error) for error in errors if error), 0)

    def failed(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """Keep the session of a response that reaches the client with an error instead of its records."""
        if request.tapped is not None:
            decoded = decode_fetch_response(request.version, response, body_at)
            self._sessions.answered(decoded.session_id, request.tapped[0])

    def session_partitions(self, session_id: int) -> Offsets:
        """The partitions of a session."""
        return self._sessions.partitions(session_id)


class TappedListings:
    """ListOffsets at one broker."""

    def __init__(self, tap: Tap, names: TopicNames) -> None:
        self._tap = tap
        self._names = names

    def answered(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """Write a row for each partition whose latest offset the response has."""
        key, version = request.api_key, request.version
        body = messages.request_reader(key, version)(request.frame, request.body_at)[0]
        if body.replica_id >= 0:
            return
        asked = {
            (topic.name, row.partition_index)
            for topic in body.topics
            for row in topic.partitions
            if row.timestamp == LATEST
        }
        committed = getattr(body, "isolation_level", 0) == READ_COMMITTED
        entity: Any = messages.decode_response(key, version, response, body_at)
        found = [
            Watermarks.listed(
                str(topic.name),
                row.partition_index,
                getattr(row, "leader_epoch", -1),
                row.offset,
                committed=committed,
                topic_id=self._names.mark(topic.name),
            )
            for topic in entity.topics
            for row in topic.partitions
            if not row.error_code and (topic.name, row.partition_index) in asked
        ]
        self._tap.watermarks(request.client_id, found, invoked_ns=request.invoked_ns, listed=True)
