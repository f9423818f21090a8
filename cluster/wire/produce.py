"""Hand-written codec of Produce, v3 to v13: the hot path reads and writes nothing but bytes.

Owns: `decode_produce`, `encode_produce_response`. Record data stays a view of the request's frame; there is no work
for each record. Flexible from v9; v13 names topics by id (KIP-516). Tests compare both with kio's own codec, byte for
byte, for every version.

May fail: `WireError` for a request that does not decode.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import WireError
from ..host.seam import Buffer
from .decoding import read_varint, skip_tags
from .primitives import (
    NodeEndpoint,
    compact_text,
    leader_tag,
    legacy_text,
    node_endpoints_tag,
    present,
    read_topic,
    topic_bytes,
    varint,
)
from .request import RequestBytes
from .texts import text_of_bytes
from .topic_ids import UUID

__all__ = [
    "PRODUCE_VERSION_HIGH",
    "PRODUCE_VERSION_LOW",
    "NodeEndpoint",
    "ProduceAnswer",
    "ProduceEntry",
    "ProduceRequest",
    "decode_acks",
    "decode_produce",
    "encode_produce_response",
]

PRODUCE_VERSION_LOW = 3
PRODUCE_VERSION_HIGH = 13
_FLEXIBLE = 9
_TOPIC_IDS = 13

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS = struct.Struct(">hi")
_PARTITION = struct.Struct(">ii")
_ANSWER_V3 = struct.Struct(">ihqq")
_ANSWER_V5 = struct.Struct(">ihqqq")


class ProduceEntry(NamedTuple):
    """One partition's record data: a view of the frame, None where the client sent null."""

    topic: str | UUID
    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """A decoded produce; topics are ids (UUID) from v13 on."""

    acks: int
    timeout_ms: int
    transactional_id: str | None
    entries: list[ProduceEntry]


class ProduceAnswer(NamedTuple):
    """The result of one partition; -1 where unknown. `error` is Kafka's code, an `ErrorCode` or a number."""

    topic: str | UUID
    partition: int
    error: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1


def decode_acks(request: RequestBytes) -> int:
    """Read `acks` of a produce and nothing else; WireError where the request is too short."""
    return acks_and_timeout(request)[0]


def acks_and_timeout(request: RequestBytes) -> tuple[int, int]:
    """Read `acks` and the timeout in ms of a produce and nothing else; WireError where the request is too short."""
    frame, at = request.frame, request.body_at
    try:
        if request.version >= _FLEXIBLE:
            size, at = read_varint(frame, at)
            at += max(size - 1, 0)
        else:
            size = _INT16.unpack_from(frame, at)[0]
            at += 2 + max(size, 0)
        acks, timeout_ms = _ACKS.unpack_from(frame, at)
    except (struct.error, IndexError) as error:
        raise WireError(f"Produce v{request.version} does not decode: {error}") from error
    return acks, timeout_ms


def decode_produce(request: RequestBytes) -> ProduceRequest:
    """Decode a produce of v3 to v13 without copying its records."""
    decode = _decode_flexible if request.version >= _FLEXIBLE else _decode_legacy
    try:
        decoded, end = decode(request)
    except (struct.error, IndexError, ValueError) as error:
        raise WireError(f"Produce v{request.version} does not decode: {error}") from error
    if end > len(request.frame):
        raise WireError(f"Produce v{request.version} claims {end} bytes of {len(request.frame)}")
    return decoded


def _decode_legacy(request: RequestBytes) -> tuple[ProduceRequest, int]:
    frame, at = request.frame, request.body_at
    view = memoryview(frame)
    size: int = _INT16.unpack_from(frame, at)[0]
    at += 2
    transactional_id: str | None = None
    if size >= 0:
        transactional_id = text_of_bytes(frame[at : at + size])
        at += size
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    topics: int = _INT32.unpack_from(frame, at + 6)[0]
    at += 10
    entries: list[ProduceEntry] = []
    for _ in range(present(topics)):
        size = _INT16.unpack_from(frame, at)[0]
        if size < 0:
            raise WireError("Produce: a topic without a name")
        at += 2
        topic = text_of_bytes(frame[at : at + size])
        at += size
        partitions: int = _INT32.unpack_from(frame, at)[0]
        at += 4
        for _ in range(present(partitions)):
            partition, size = _PARTITION.unpack_from(frame, at)
            at += 8
            if size < 0:
                entries.append(ProduceEntry(topic, partition, None))
                continue
            entries.append(ProduceEntry(topic, partition, view[at : at + size]))
            at += size
    return ProduceRequest(acks, timeout_ms, transactional_id, entries), at


def _decode_flexible(request: RequestBytes) -> tuple[ProduceRequest, int]:
    frame, at = request.frame, request.body_at
    by_id = request.version >= _TOPIC_IDS
    view = memoryview(frame)
    size, at = read_varint(frame, at)
    transactional_id: str | None = None
    if size:
        transactional_id = text_of_bytes(frame[at : at + size - 1])
        at += size - 1
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    topics, at = read_varint(frame, at + 6)
    entries: list[ProduceEntry] = []
    for _ in range(present(topics - 1)):
        topic, at = read_topic(frame, at, by_id=by_id)
        partitions, at = read_varint(frame, at)
        for _ in range(present(partitions - 1)):
            partition: int = _INT32.unpack_from(frame, at)[0]
            size, at = read_varint(frame, at + 4)
            if size == 0:
                entries.append(ProduceEntry(topic, partition, None))
            else:
                entries.append(ProduceEntry(topic, partition, view[at : at + size - 1]))
                at += size - 1
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
        at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    return ProduceRequest(acks, timeout_ms, transactional_id, entries), at


def encode_produce_response(
    version: int, answers: Sequence[ProduceAnswer], *, throttle_ms: int = 0, node_endpoints: Sequence[NodeEndpoint] = ()
) -> list[Buffer]:
    """The parts of the body. Answers of one topic are grouped; topics are in the order of their first answer."""
    flexible = version >= _FLEXIBLE
    if flexible and len(answers) == 1 and not node_endpoints:  # nearly always
        answer = answers[0]
        name = topic_bytes(answer.topic, flexible=True, by_id=version >= _TOPIC_IDS)
        row = _answer(version, answer)
        return [b"".join((b"\2", name, b"\2", row, b"\0", _INT32.pack(throttle_ms), b"\0"))]
    by_topic: dict[str | UUID, list[ProduceAnswer]] = {}
    for answer in answers:
        by_topic.setdefault(answer.topic, []).append(answer)
    out: list[bytes] = [_count(len(by_topic), flexible=flexible)]
    for topic, rows in by_topic.items():
        out.append(topic_bytes(topic, flexible=flexible, by_id=version >= _TOPIC_IDS))
        out.append(_count(len(rows), flexible=flexible))
        out += [_answer(version, row) for row in rows]
        if flexible:
            out.append(b"\0")
    out.append(_INT32.pack(throttle_ms))
    if flexible:
        out.append(node_endpoints_tag(node_endpoints if version >= 10 else ()))  # KIP-951
    return [b"".join(out)]


def _count(count: int, *, flexible: bool) -> bytes:
    return varint(count + 1) if flexible else _INT32.pack(count)


def _answer(version: int, row: ProduceAnswer) -> bytes:
    if version < 5:  # log start offset came with v5
        return _ANSWER_V3.pack(row.partition, row.error, row.base_offset, row.log_append_time_ms)
    head = _ANSWER_V5.pack(row.partition, row.error, row.base_offset, row.log_append_time_ms, row.log_start_offset)
    if version < 8:  # record errors came with v8 (KIP-467)
        return head
    flexible = version >= _FLEXIBLE
    if row.error == 0 and flexible:
        return head + b"\1\0\0"  # no record errors, no message, no tags: nearly every answer
    text = compact_text if flexible else legacy_text
    out = [head, _count(len(row.record_errors), flexible=flexible)]
    for index, message in row.record_errors:
        out += (_INT32.pack(index), text(message))
        if flexible:
            out.append(b"\0")
    out.append(text(row.error_message))
    if flexible:
        has_leader = version >= 10 and (row.leader_id, row.leader_epoch) != (-1, -1)  # KIP-951
        out.append(b"\1" + leader_tag(0, row.leader_id, row.leader_epoch) if has_leader else b"\0")
    return b"".join(out)
