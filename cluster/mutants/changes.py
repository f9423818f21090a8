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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from ..errors import ErrorCode
from ..wire.api_keys import ApiKey
from ..wire.batch_header import ATTRIBUTES_AT, CODEC_MASK, CRC_AT, HEADER, TRANSACTIONAL
from ..wire.records import NewRecord, Record, build_batch, decode_records

ALL_REPLICAS, LEADER_ONLY = -1, 1
TRANSACTIONAL_BATCH = TRANSACTIONAL
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


def _with_records(request: Any, change: Callable[[bytes], bytes]) -> Any | None:
    """The Produce with other batches; None where no batch changes."""
    topics = tuple(
        dataclasses.replace(
            topic,
            partition_data=tuple(
                dataclasses.replace(row, records=None if row.records is None else change(bytes(row.records)))
                for row in topic.partition_data
            ),
        )
        for topic in request.topic_data
    )
    return None if topics == request.topic_data else dataclasses.replace(request, topic_data=topics)


def _with_batches(change: Callable[[bytes], bytes]) -> Callable[[Any], Any | None]:
    def changed(request: Any) -> Any | None:
        return _with_records(request, change)

    return changed


def _without_producer(batch: bytes) -> bytes:
    """The batch without producer id, epoch and sequence; a transactional one as it is."""
    if len(batch) < HEADER.size or struct.unpack_from(">h", batch, ATTRIBUTES_AT)[0] & TRANSACTIONAL_BATCH:
        return batch
    changed = bytearray(batch)
    changed[PRODUCER_AT : PRODUCER_AT + len(NO_PRODUCER)] = NO_PRODUCER
    CRC.pack_into(changed, CRC_AT, crc32c(memoryview(changed)[ATTRIBUTES_AT:]))
    return bytes(changed)


def _rebuilt(batch: bytes, change: Callable[[list[Record]], list[Record]], *, keeps_producer: bool) -> bytes:
    """The batch with other records."""
    fields = HEADER.unpack_from(batch)
    attributes, producer_id, epoch, sequence = fields[5], fields[9], fields[10], fields[11]
    records = change(decode_records(batch))
    assert records, "a batch has a record"
    new: Sequence[NewRecord] = [(row.key, row.value, row.headers) for row in records]
    producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return build_batch(
        new,
        timestamp_ms=records[0].timestamp,
        timestamps_ms=[row.timestamp for row in records],
        codec=attributes & CODEC_MASK,
        is_transactional=bool(attributes & TRANSACTIONAL_BATCH),
        **(producer if keeps_producer else {}),
    )


def _without_headers(batch: bytes) -> bytes:
    if not any(row.headers for row in decode_records(batch)):
        return batch
    return _rebuilt(batch, lambda rows: [row._replace(headers=()) for row in rows], keeps_producer=True)


def _last_twice(batch: bytes) -> bytes:
    """The last record twice, as after a retry of a producer without idempotence; a transactional batch as it is."""
    plain = _without_producer(batch)
    if struct.unpack_from(">h", batch, ATTRIBUTES_AT)[0] & TRANSACTIONAL_BATCH:
        return batch
    return _rebuilt(plain, lambda rows: [*rows, rows[-1]], keeps_producer=False)


def _as_sent(response: Any) -> Any | None:
    """A response to a Produce that says of each partition that its batch was appended."""
    topics = tuple(
        dataclasses.replace(
            topic,
            partition_responses=tuple(
                dataclasses.replace(row, error_code=ErrorCode.none, error_message=None)
                for row in topic.partition_responses
            ),
        )
        for topic in response.responses
    )
    return None if topics == response.responses else dataclasses.replace(response, responses=topics)


# ------------------------------------------------------------------ offsets


def _offsets_plus_one(request: Any) -> Any:
    topics = tuple(
        dataclasses.replace(
            topic,
            partitions=tuple(
                dataclasses.replace(row, committed_offset=row.committed_offset + 1) for row in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return dataclasses.replace(request, topics=topics)


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


def changes_of(mutant: str) -> Iterator[Change]:
    """Yield the changes of a mutant; none for one that does not act on the wire."""
    yield from CHANGES.get(mutant, ())
