"""How the requests of a client with a bug differ from those of a correct one.

Owns: `CHANGES`, a row for each mutant. `request` gets the decoded request and returns the one that is served in its
place, None for one that stays as it is; `response` gets both responses alike. With `served=False` the request has no
effect, and its response says that all of it succeeded. Only requests without a transaction lose their producer id or
their acks: Kafka refuses transactional batches without them.

Pure functions: no state, no input, no output.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from ..errors import ErrorCode
from ..wire.api_keys import ApiKey
from ..wire.batch_header import ATTRIBUTES_AT, CODEC_MASK, CRC_AT, HEADER, TRANSACTIONAL, header_at
from ..wire.records import NewRecord, Record, build_batch, decode_records

ALL_REPLICAS, LEADER_ONLY = -1, 1
PRODUCER_AT = struct.calcsize(">qiibIhiqq")
NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)
CRC = struct.Struct(">I")

assert PRODUCER_AT + len(NO_PRODUCER) == struct.calcsize(">qiibIhiqqqhi"), "the count of records follows the sequence"


class Change(NamedTuple):
    """What a mutant does with requests of one API."""

    api_key: ApiKey
    request: Callable[[Any], Any | None] | None = None
    response: Callable[[Any], Any | None] | None = None
    served: bool = True


# ------------------------------------------------------------------ Produce


def _acks_of_leader(request: Any) -> Any | None:
    if request.acks != ALL_REPLICAS or request.transactional_id is not None:
        return None
    return dataclasses.replace(request, acks=LEADER_ONLY)


def _with_rows(message: Any, topics: str, rows: str, change: Callable[[Any], Any]) -> Any | None:
    """The message with other rows of partitions; None where none of them changes."""
    before = getattr(message, topics)
    after = tuple(
        dataclasses.replace(topic, **{rows: tuple(change(row) for row in getattr(topic, rows))}) for topic in before
    )
    return None if after == before else dataclasses.replace(message, **{topics: after})


def _with_batches(change: Callable[[bytes], bytes]) -> Callable[[Any], Any | None]:
    """Change the batches of a Produce."""

    def with_batch(row: Any) -> Any:
        return row if row.records is None else dataclasses.replace(row, records=change(bytes(row.records)))

    def changed(request: Any) -> Any | None:
        return _with_rows(request, "topic_data", "partition_data", with_batch)

    return changed


def _without_producer(batch: bytes) -> bytes:
    """The batch without producer id, epoch and sequence; a transactional one as it is."""
    if len(batch) < HEADER.size or header_at(batch).attributes & TRANSACTIONAL:
        return batch
    changed = bytearray(batch)
    changed[PRODUCER_AT : PRODUCER_AT + len(NO_PRODUCER)] = NO_PRODUCER
    CRC.pack_into(changed, CRC_AT, crc32c(memoryview(changed)[ATTRIBUTES_AT:]))
    return bytes(changed)


def _rebuilt(batch: bytes, records: Sequence[Record]) -> bytes:
    """The batch with other records, of the same producer."""
    header = header_at(batch)
    new: Sequence[NewRecord] = [(row.key, row.value, row.headers) for row in records]
    return build_batch(
        new,
        timestamp_ms=records[0].timestamp,
        timestamps_ms=[row.timestamp for row in records],
        codec=header.attributes & CODEC_MASK,
        is_transactional=bool(header.attributes & TRANSACTIONAL),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _without_headers(batch: bytes) -> bytes:
    records = decode_records(batch)
    if not any(row.headers for row in records):
        return batch
    return _rebuilt(batch, [row._replace(headers=()) for row in records])


def _last_twice(batch: bytes) -> bytes:
    """The last record twice, as after a retry of a producer without idempotence; a transactional batch as it is."""
    if header_at(batch).attributes & TRANSACTIONAL:
        return batch
    plain = _without_producer(batch)
    records = decode_records(plain)
    assert records, "a batch has a record"
    return _rebuilt(plain, [*records, records[-1]])


def _as_sent(response: Any) -> Any | None:
    """A response to a Produce that says of each partition that its batch was appended."""

    def appended(row: Any) -> Any:
        return dataclasses.replace(row, error_code=ErrorCode.none, error_message=None)

    return _with_rows(response, "responses", "partition_responses", appended)


# ------------------------------------------------------------------ offsets


def _offsets_plus_one(request: Any) -> Any | None:
    def too_far(row: Any) -> Any:
        return dataclasses.replace(row, committed_offset=row.committed_offset + 1)

    return _with_rows(request, "topics", "partitions", too_far)


def _no_offsets(request: Any) -> Any | None:
    return dataclasses.replace(request, topics=()) if request.topics else None


# ------------------------------------------------------------------ Fetch


def _uncommitted(request: Any) -> Any | None:
    return dataclasses.replace(request, isolation_level=0) if request.isolation_level else None


CHANGES: Mapping[str, tuple[Change, ...]] = {
    "acks-of-leader": (Change(ApiKey.PRODUCE, _acks_of_leader),),
    "no-idempotence": (Change(ApiKey.PRODUCE, _with_batches(_without_producer)),),
    "sent-twice": (Change(ApiKey.PRODUCE, _with_batches(_last_twice)),),
    "no-headers": (Change(ApiKey.PRODUCE, _with_batches(_without_headers)),),
    "failed-is-sent": (Change(ApiKey.PRODUCE, response=_as_sent),),
    "offset-too-far": (
        Change(ApiKey.OFFSET_COMMIT, _offsets_plus_one),
        Change(ApiKey.TXN_OFFSET_COMMIT, _offsets_plus_one),
    ),
    "offsets-left-out": (Change(ApiKey.TXN_OFFSET_COMMIT, _no_offsets, served=False),),
    "read-uncommitted": (Change(ApiKey.FETCH, _uncommitted),),
}
"""By the name of the mutant; `harness/mutants/catalogue.py` says what each of them is for."""
