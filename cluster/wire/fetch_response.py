"""Hand-written codec of Fetch responses, v4 to v18: the leader encodes them, a follower decodes them.

Owns: `encode_fetch_response`, `decode_fetch_response`. Record data is never copied: the parts that storage returned are
sent between the parts written here, and a follower's records are views of the frame. Versions as in `fetch.py`; the
diverging epoch (KIP-595), the current leader (KIP-951) and the leaders' endpoints are tagged fields. Tests compare
both with kio's own codec, byte for byte, for every version.

Nearly every response to a follower has one partition, by topic id, without aborted transactions or tags. All of it
before the records is then a single struct (`_ONE_ROW`), packed and unpacked as a whole.

May fail: `WireError` for a response that does not decode.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import WireError
from ..host.seam import Part
from .decoding import read_varint, skip_tags
from .fetch import FLEXIBLE, ONE, TOPIC_IDS
from .primitives import NodeEndpoint, leader_tag, node_endpoints_tag, read_topic, topic_bytes, topic_of, varint
from .topic_ids import UUID

__all__ = [
    "FetchAnswer",
    "FetchResponse",
    "FetchedPartition",
    "NodeEndpoint",
    "decode_fetch_response",
    "encode_fetch_response",
]

_SESSIONS = 7
_LOG_START = 5
_PREFERRED = 11
_ENDPOINTS = 16

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TOP = struct.Struct(">ihi")
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">iqb")
_LEADER = struct.Struct(">ii")
_EPOCH_END = struct.Struct(">iq")
_ONE_ROW = struct.Struct(">ihi B16sB ihqqq Bi")
_NO_TAGS = b"\0\0\0"
"""After the records: the empty tags of the row, of its topic and of the response."""


class FetchAnswer(NamedTuple):
    """One partition of a response. `records` are the parts that storage returned; None writes null.

    `aborted` (producer id, first offset) is None for a reader of uncommitted data. `diverging` is
    `(epoch, end offset)`: the follower truncates there. Unknown offsets are -1.
    """

    topic: str | UUID
    partition: int
    error: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Part] | None = ()
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging: tuple[int, int] | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    read_epoch: int = -1
    """The leader epoch in which the leader read this, for the tap; -1: a follower did. It is not in the response."""


class FetchedPartition(NamedTuple):
    """One partition as a follower reads it; `records` is a view of the response's bytes."""

    topic: str | UUID
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    aborted: list[tuple[int, int]] | None
    preferred_read_replica: int
    diverging: tuple[int, int] | None
    leader_id: int
    leader_epoch: int


class FetchResponse(NamedTuple):
    """A decoded response: an error for the whole response, or an error code for each partition."""

    throttle_ms: int
    error: int
    session_id: int
    partitions: list[FetchedPartition]


def encode_fetch_response(
    version: int,
    answers: Sequence[FetchAnswer],
    *,
    throttle_ms: int = 0,
    error: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """The parts of the body. Answers of one topic are grouped; topics are in the order of their first answer."""
    if version >= TOPIC_IDS and len(answers) == 1 and not node_endpoints:
        single = _encode_one_row(answers[0], throttle_ms, error, session_id)
        if single is not None:
            return single
    flexible = version >= FLEXIBLE
    by_topic: dict[str | UUID, list[FetchAnswer]] = {}
    for answer in answers:
        by_topic.setdefault(answer.topic, []).append(answer)
    pending = bytearray(_TOP.pack(throttle_ms, error, session_id) if version >= _SESSIONS else _INT32.pack(throttle_ms))
    parts: list[Part] = []
    pending += varint(len(by_topic) + 1) if flexible else _INT32.pack(len(by_topic))
    for topic, rows in by_topic.items():
        pending += topic_bytes(topic, flexible=flexible, by_id=version >= TOPIC_IDS)
        pending += varint(len(rows) + 1) if flexible else _INT32.pack(len(rows))
        for row in rows:
            pending = _put_answer(version, row, pending, parts)
        if flexible:
            pending += b"\0"
    if flexible:
        pending += node_endpoints_tag(node_endpoints if version >= _ENDPOINTS else ())
    if pending:
        parts.append(pending)
    return parts


def _encode_one_row(answer: FetchAnswer, throttle_ms: int, error: int, session_id: int) -> list[Part] | None:
    """The response in the shape of `_ONE_ROW`; None when it has another."""
    (topic, partition, code, high, stable, start, records, aborted, preferred, diverging, leader_id, epoch, _) = answer
    if aborted is not None or diverging is not None or leader_id != -1 or epoch != -1:
        return None
    raw = topic_bytes(topic, flexible=True, by_id=True)
    head = _ONE_ROW.pack(
        throttle_ms, error, session_id, ONE, raw, ONE, partition, code, high, stable, start, 0, preferred
    )
    size = sum(map(len, records)) if records else 0
    if records and size:
        return [head + varint(size + 1), *records, _NO_TAGS]
    return [head + (b"\0" if records is None else b"\1") + _NO_TAGS]


def _put_answer(version: int, row: FetchAnswer, pending: bytearray, parts: list[Part]) -> bytearray:
    """Append one partition to `parts`; returns the bytes that are yet to be appended."""
    flexible = version >= FLEXIBLE
    if version >= _LOG_START:
        pending += _PARTITION_V5.pack(
            row.partition, row.error, row.high_watermark, row.last_stable_offset, row.log_start_offset
        )
    else:
        pending += _PARTITION_V4.pack(row.partition, row.error, row.high_watermark, row.last_stable_offset)
    pending += _aborted(row.aborted, flexible=flexible)
    if version >= _PREFERRED:
        pending += _INT32.pack(row.preferred_read_replica)
    records = row.records
    if records is None:
        pending += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        size = sum(map(len, records))
        pending += varint(size + 1) if flexible else _INT32.pack(size)
        if size:
            parts.append(pending)
            parts += records
            pending = bytearray()
    if flexible:
        pending += _answer_tags(row)
    return pending


def _aborted(aborted: Sequence[tuple[int, int]] | None, *, flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    if flexible:
        return varint(len(aborted) + 1) + b"".join(_ABORTED.pack(*row) + b"\0" for row in aborted)
    return _INT32.pack(len(aborted)) + b"".join(_ABORTED.pack(*row) for row in aborted)


def _answer_tags(row: FetchAnswer) -> bytes:
    has_leader = (row.leader_id, row.leader_epoch) != (-1, -1)
    if row.diverging is None and not has_leader:
        return b"\0"
    out = bytes((has_leader + (row.diverging is not None),))
    if row.diverging is not None:
        out += bytes((0, _DIVERGING.size)) + _DIVERGING.pack(*row.diverging, 0)
    if has_leader:
        out += leader_tag(1, row.leader_id, row.leader_epoch)
    return out


def decode_fetch_response(version: int, frame: bytes, at: int = 0) -> FetchResponse:
    """Decode the body that begins at `at`."""
    if version >= TOPIC_IDS and len(frame) - at > _ONE_ROW.size + len(_NO_TAGS):
        single = _decode_one_row(frame, at)
        if single is not None:
            return single
    try:
        decoded, end = _decode(version, frame, at)
    except (struct.error, IndexError, ValueError) as error_:
        raise WireError(f"FetchResponse v{version} does not decode: {error_}") from error_
    if end > len(frame):
        raise WireError(f"FetchResponse v{version} claims {end} bytes of {len(frame)}")
    return decoded


def _decode_one_row(frame: bytes, at: int) -> FetchResponse | None:
    """The response at `at`, up to the end of `frame`; None when it has another shape than `_ONE_ROW`."""
    (throttle_ms, error, session_id, topics, topic, rows, partition, code, high, stable, start, aborted, preferred) = (
        _ONE_ROW.unpack_from(frame, at)
    )
    if topics != ONE or rows != ONE or aborted or frame[-3:] != _NO_TAGS:
        return None
    size, at = read_varint(frame, at + _ONE_ROW.size)
    end = at + max(size - 1, 0)
    if end + len(_NO_TAGS) != len(frame):
        return None
    row = FetchedPartition(
        topic_of(topic), partition, code, high, stable, start, memoryview(frame)[at:end], None, preferred, None, -1, -1
    )
    return FetchResponse(throttle_ms, error, session_id, [row])


def _decode(version: int, frame: bytes, at: int) -> tuple[FetchResponse, int]:
    flexible = version >= FLEXIBLE
    throttle_ms, error, session_id = 0, 0, 0
    if version >= _SESSIONS:
        throttle_ms, error, session_id = _TOP.unpack_from(frame, at)
        at += _TOP.size
    else:
        throttle_ms = _INT32.unpack_from(frame, at)[0]
        at += 4
    view = memoryview(frame)
    partitions: list[FetchedPartition] = []
    topics, at = _read_count(frame, at, flexible=flexible)
    for _ in range(topics):
        topic, at = _read_topic(frame, at, version)
        count, at = _read_count(frame, at, flexible=flexible)
        for _ in range(count):
            row, at = _read_partition(version, frame, view, at, topic)
            partitions.append(row)
        if flexible:
            at = skip_tags(frame, at)
    if flexible:
        at = skip_tags(frame, at)
    return FetchResponse(throttle_ms, error, session_id, partitions), at


def _read_count(frame: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """A nullable length; -1 for null."""
    if flexible:
        count, at = read_varint(frame, at)
        return count - 1, at
    count = _INT32.unpack_from(frame, at)[0]
    return count, at + 4


def _read_topic(frame: bytes, at: int, version: int) -> tuple[str | UUID, int]:
    if version >= FLEXIBLE:
        return read_topic(frame, at, by_id=version >= TOPIC_IDS)
    size: int = _INT16.unpack_from(frame, at)[0]
    if size < 0:
        raise WireError("FetchResponse: a topic without a name")
    end = at + 2 + size
    return frame[at + 2 : end].decode(), end


def _read_partition(
    version: int, frame: bytes, view: memoryview, at: int, topic: str | UUID
) -> tuple[FetchedPartition, int]:
    flexible = version >= FLEXIBLE
    log_start = -1
    if version >= _LOG_START:
        partition, error, high, stable, log_start = _PARTITION_V5.unpack_from(frame, at)
        at += _PARTITION_V5.size
    else:
        partition, error, high, stable = _PARTITION_V4.unpack_from(frame, at)
        at += _PARTITION_V4.size
    aborted: list[tuple[int, int]] | None = None
    count, at = _read_count(frame, at, flexible=flexible)
    if count >= 0:
        aborted = []
        for _ in range(count):
            aborted.append(_ABORTED.unpack_from(frame, at))
            at += _ABORTED.size
            at = skip_tags(frame, at) if flexible else at
    preferred = -1
    if version >= _PREFERRED:
        preferred = _INT32.unpack_from(frame, at)[0]
        at += 4
    size, at = _read_count(frame, at, flexible=flexible)
    records = view[at : at + max(size, 0)]
    at += max(size, 0)
    diverging: tuple[int, int] | None = None
    leader = (-1, -1)
    if flexible:
        diverging, leader, at = _read_tags(frame, at)
    row = FetchedPartition(
        topic, partition, error, high, stable, log_start, records, aborted, preferred, diverging, *leader
    )
    return row, at


def _read_tags(frame: bytes, at: int) -> tuple[tuple[int, int] | None, tuple[int, int], int]:
    diverging: tuple[int, int] | None = None
    leader = (-1, -1)
    tags, at = read_varint(frame, at)
    for _ in range(tags):
        tag, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        if tag == 0:
            diverging = _EPOCH_END.unpack_from(frame, at)
        elif tag == 1:
            leader = _LEADER.unpack_from(frame, at)
        at += size
    return diverging, leader, at
