"""Rows of records of share groups: what ShareFetch delivered, and the results of acknowledgements (KIP-932).

Owns: for each member, the ranges of what it acquired at this broker. Layout and meaning of the rows: `tap/layouts.py`.
A share session that is closed, or whose connection ends, gives back what its member holds, and no response says which
records these are: `SHARE_RELEASED` with an unknown result stands for all that the member got here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from ..host.seam import (
    SHARE_ACCEPTED,
    SHARE_ACQUIRED,
    SHARE_REJECTED,
    SHARE_RELEASED,
    SHARE_RENEWED,
    SharedRecords,
    Tap,
)
from ..wire.topic_ids import UUID
from .pending import PendingRequest
from .tap_offsets import decode_request, decode_response
from .topic_names import TopicNames

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
FINAL_EPOCH = -1
"""The epoch of the request that closes its share session."""
ERROR_UNKNOWN = 7
KINDS: Mapping[int, int] = {1: SHARE_ACCEPTED, 2: SHARE_RELEASED, 3: SHARE_REJECTED, 4: SHARE_RENEWED}
"""By the type of an acknowledgement; type 0 says that there is no record at the offset."""
MEMBERS_MOST = 4000

Place = tuple[UUID, int]
Acknowledged = tuple[Place, int, int, int]
"""Place, kind of row, first and last offset."""


class TappedShares:
    """ShareFetch and ShareAcknowledge at one broker."""

    def __init__(self, tap: Tap, names: TopicNames) -> None:
        self._tap = tap
        self._names = names
        self._held: dict[tuple[str, str, str], dict[Place, tuple[int, int]]] = {}
        """By group, member and client: the first and the last offset of all that the member acquired here."""

    def answered(self, request: PendingRequest, response: bytes, body_at: int) -> int:
        """Write rows of acknowledgements, then of acquired records; return the first error."""
        body = decode_request(request)
        answer = decode_response(request, response, body_at)
        fetched = request.api_key == SHARE_FETCH
        rows = {(topic.topic_id, row.partition_index): row for topic in answer.responses for row in topic.partitions}
        top = int(answer.error_code)
        errors = {
            place: top or int(row.acknowledge_error_code if fetched else row.error_code) for place, row in rows.items()
        }
        lock_ms = _milliseconds(getattr(answer, "acquisition_lock_timeout", None))
        lock_until_ns = request.invoked_ns + lock_ms * 1_000_000 if lock_ms else 0
        self._acknowledge(request, body, errors, top or ERROR_UNKNOWN, lock_until_ns)
        if fetched and not top:
            acquired = {place: row.acquired_records for place, row in rows.items() if row.acquired_records}
            self._acquire(request, body, acquired, lock_until_ns)
        if body.share_session_epoch == FINAL_EPOCH:
            self._give_back(_whose(request, body), request.invoked_ns)
        found = (top, *errors.values(), *(int(row.error_code) for row in rows.values()))
        return next((error for error in found if error), 0)

    def unanswered(self, request: PendingRequest) -> None:
        """No response arrived: what the broker did is not known."""
        body = decode_request(request)
        self._acknowledge(request, body, {}, ERROR_UNKNOWN, 0)
        if body.share_session_epoch == FINAL_EPOCH:
            self._give_back(_whose(request, body), request.invoked_ns)

    def connection_ended(self, client: str) -> None:
        """The broker closes the sessions of a connection; those of every connection of this client may be meant."""
        for whose in [whose for whose in self._held if whose[2] == client]:
            self._give_back(whose, 0)

    def _acquire(self, request: PendingRequest, body: Any, acquired: Mapping[Place, Any], lock_until_ns: int) -> None:
        held = self._held.setdefault(_whose(request, body), {})
        found: list[SharedRecords] = []
        for (topic, partition), ranges in acquired.items():
            name = self._names.name(topic)
            for row in ranges:
                found.append(SharedRecords(name, partition, row.first_offset, row.last_offset, row.delivery_count))
                first, last = held.get((topic, partition), (row.first_offset, row.last_offset))
                held[topic, partition] = min(first, row.first_offset), max(last, row.last_offset)
        self._write(request, body, found, SHARE_ACQUIRED, 0, lock_until_ns)
        while len(self._held) > MEMBERS_MOST:
            self._give_back(next(iter(self._held)), 0)

    def _acknowledge(
        self, request: PendingRequest, body: Any, errors: Mapping[Place, int], otherwise: int, lock_until_ns: int
    ) -> None:
        """`otherwise`: the error of partitions that the response does not have."""
        by: dict[tuple[int, int], list[SharedRecords]] = defaultdict(list)
        for place, kind, first, last in _acknowledged(body):
            row = SharedRecords(self._names.name(place[0]), place[1], first, last)
            by[kind, errors.get(place, otherwise)].append(row)
        for (kind, error), rows in by.items():
            self._write(request, body, rows, kind, error, lock_until_ns if kind == SHARE_RENEWED and not error else 0)

    def _write(
        self, request: PendingRequest, body: Any, rows: list[SharedRecords], kind: int, error: int, lock_until_ns: int
    ) -> None:
        if rows:
            self._tap.shared(
                *_whose(request, body),
                rows,
                kind=kind,
                error=error,
                invoked_ns=request.invoked_ns,
                lock_until_ns=lock_until_ns,
                lost=request.lost or request.error != 0,
            )

    def _give_back(self, whose: tuple[str, str, str], invoked_ns: int) -> None:
        rows = [
            SharedRecords(self._names.name(topic), partition, first, last)
            for (topic, partition), (first, last) in self._held.pop(whose, {}).items()
        ]
        if rows:
            self._tap.shared(*whose, rows, kind=SHARE_RELEASED, error=ERROR_UNKNOWN, invoked_ns=invoked_ns)


def _whose(request: PendingRequest, body: Any) -> tuple[str, str, str]:
    return body.group_id or "", body.member_id or "", request.client_id


def _milliseconds(duration: Any) -> int:
    return 0 if duration is None else round(duration.total_seconds() * 1000)


def _acknowledged(body: Any) -> Iterator[Acknowledged]:
    """Yield the ranges of one type: a batch has one type for all its offsets, or one for each."""
    for topic in body.topics:
        for partition in topic.partitions:
            place = topic.topic_id, partition.partition_index
            for batch in partition.acknowledgement_batches:
                types = [int(each) for each in batch.acknowledge_types]
                if len(types) <= 1:
                    runs = [(batch.first_offset, batch.last_offset, types[0] if types else 0)]
                else:
                    runs = list(_runs(batch.first_offset, types))
                for first, last, type_ in runs:
                    if type_ in KINDS:
                        yield place, KINDS[type_], first, last


def _runs(first: int, types: list[int]) -> Iterator[tuple[int, int, int]]:
    start = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[start]:
            yield first + start, first + at - 1, types[start]
            start = at
