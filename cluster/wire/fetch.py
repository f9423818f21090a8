"""Hand-written codec of Fetch requests, v4 to v18: the leader decodes them, a follower encodes them.

Owns: `decode_fetch`, `encode_fetch_request`. Flexible from v12, topics by id from v13 (KIP-516), the replica's id and
epoch in a tagged field from v15 (KIP-903). The replica's high watermark (a tagged field of v18, KIP-1166) is skipped:
the leader gives its own with every response. Session fields are decoded (KIP-227); a leader that answers with session
id 0 receives full fetches. The response is in `fetch_response.py`. Tests compare both with kio's own codec, byte for
byte, for every version.

Nearly every fetch between brokers is part of a session and names one partition. From v15 on such a request is a single
struct (`_ONE_ROW`), packed and unpacked as a whole; requests of another shape are handled field by field.

May fail: `WireError` for a request that does not decode.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import WireError
from .decoding import read_varint, skip_tags
from .primitives import compact_text, legacy_text, present, read_topic, topic_bytes, topic_of, varint
from .request import RequestBytes
from .texts import text_of_bytes
from .topic_ids import UUID

__all__ = [
    "FETCH_VERSION_HIGH",
    "FETCH_VERSION_LOW",
    "FetchPartition",
    "FetchRequest",
    "decode_fetch",
    "encode_fetch_request",
]

FETCH_VERSION_LOW = 4
FETCH_VERSION_HIGH = 18
FLEXIBLE = 12
TOPIC_IDS = 13
_SESSIONS = 7
_RACK = 11
_REPLICA_STATE = 15

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_REPLICA = struct.Struct(">iqb")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_ONE_ROW = struct.Struct(">iiib ii B16sB iiqiqi 7s iqx")
ONE = 2
"""The compact length of an array of one."""
_BEHIND_ROW = b"\0\0\1\1\1\1" + bytes((_REPLICA.size,))
"""Between the row and the replica's state: no tags of row and topic, no forgotten topics, no rack, then tag 1."""


class FetchPartition(NamedTuple):
    """One partition of a request; epochs and log start are -1 where unknown."""

    topic: str | UUID
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


FULL_EPOCH, FINAL_EPOCH = 0, -1
"""Session epochs of a full fetch: it begins a session, or it belongs to none."""


class FetchRequest(NamedTuple):
    """A decoded fetch; `replica_id` is -1 for a consumer, topics are ids (UUID) from v13 on."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[tuple[str | UUID, int]]
    rack_id: str
    cluster_id: str | None = None

    @property
    def continues_session(self) -> bool:
        """Whether it is a later fetch of a session, and no full fetch."""
        return self.session_epoch not in (FULL_EPOCH, FINAL_EPOCH)


def decode_fetch(request: RequestBytes) -> FetchRequest:
    """Decode a fetch of v4 to v18."""
    frame, at, version = request.frame, request.body_at, request.version
    if version >= _REPLICA_STATE and len(frame) - at == _ONE_ROW.size:
        single = _decode_one_row(frame, at)
        if single is not None:
            return single
    try:
        if version >= FLEXIBLE:
            decoded, end = _decode_flexible(frame, at, version)
        else:
            decoded, end = _decode_legacy(frame, at, version)
    except (struct.error, IndexError, ValueError) as error:
        raise WireError(f"Fetch v{version} does not decode: {error}") from error
    if end > len(frame):
        raise WireError(f"Fetch v{version} claims {end} bytes of {len(frame)}")
    return decoded


def _legacy_text(frame: bytes, at: int) -> tuple[str, int]:
    size: int = _INT16.unpack_from(frame, at)[0]
    if size < 0:
        raise WireError("Fetch: null where a string must be")
    end = at + 2 + size
    return text_of_bytes(frame[at + 2 : end]), end


def _legacy_partition(frame: bytes, at: int, topic: str, version: int) -> tuple[FetchPartition, int]:
    epoch = start = -1
    if version >= 9:  # leader epochs (KIP-320)
        layout = _PARTITION_V9
        partition, epoch, offset, start, size = layout.unpack_from(frame, at)
    elif version >= 5:  # log start offsets
        layout = _PARTITION_V5
        partition, offset, start, size = layout.unpack_from(frame, at)
    else:
        layout = _PARTITION_V4
        partition, offset, size = layout.unpack_from(frame, at)
    return FetchPartition(topic, partition, epoch, offset, -1, start, size), at + layout.size


def _decode_legacy(frame: bytes, at: int, version: int) -> tuple[FetchRequest, int]:
    replica_id: int = _INT32.unpack_from(frame, at)[0]
    max_wait_ms, min_bytes, max_bytes, isolation = _HEAD.unpack_from(frame, at + 4)
    at += 4 + _HEAD.size
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(frame, at)
        at += _SESSION.size
    partitions: list[FetchPartition] = []
    topics: int = _INT32.unpack_from(frame, at)[0]
    at += 4
    for _ in range(present(topics)):
        topic, at = _legacy_text(frame, at)
        count: int = _INT32.unpack_from(frame, at)[0]
        at += 4
        for _ in range(present(count)):
            row, at = _legacy_partition(frame, at, topic, version)
            partitions.append(row)
    forgotten: list[tuple[str | UUID, int]] = []
    if version >= _SESSIONS:
        at = _legacy_forgotten(frame, at, forgotten)
    rack_id = ""
    if version >= _RACK:
        rack_id, at = _legacy_text(frame, at)
    decoded = FetchRequest(
        replica_id,
        -1,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id,
    )
    return decoded, at


def _legacy_forgotten(frame: bytes, at: int, into: list[tuple[str | UUID, int]]) -> int:
    topics: int = _INT32.unpack_from(frame, at)[0]
    at += 4
    for _ in range(present(topics)):
        topic, at = _legacy_text(frame, at)
        count: int = _INT32.unpack_from(frame, at)[0]
        at += 4
        for _ in range(present(count)):
            into.append((topic, _INT32.unpack_from(frame, at)[0]))
            at += 4
    return at


def _decode_flexible(frame: bytes, at: int, version: int) -> tuple[FetchRequest, int]:
    replica_id = -1
    if version < _REPLICA_STATE:
        replica_id = _INT32.unpack_from(frame, at)[0]
        at += 4
    max_wait_ms, min_bytes, max_bytes, isolation = _HEAD.unpack_from(frame, at)
    at += _HEAD.size
    session_id, session_epoch = _SESSION.unpack_from(frame, at)
    topics, at = read_varint(frame, at + _SESSION.size)
    by_id = version >= TOPIC_IDS
    partitions: list[FetchPartition] = []
    for _ in range(present(topics - 1)):
        topic, at = read_topic(frame, at, by_id=by_id)
        count, at = read_varint(frame, at)
        for _ in range(present(count - 1)):
            partitions.append(FetchPartition(topic, *_PARTITION_V12.unpack_from(frame, at)))
            at += _PARTITION_V12.size
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
        at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    forgotten: list[tuple[str | UUID, int]] = []
    at = _flexible_forgotten(frame, at, forgotten, by_id=by_id)
    size, at = read_varint(frame, at)
    if size == 0:
        raise WireError("Fetch: null where the rack must be")
    rack_id = text_of_bytes(frame[at : at + size - 1])
    at += size - 1
    replica_id, replica_epoch, cluster_id, at = _closing_tags(frame, at, version, replica_id)
    decoded = FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id,
        cluster_id,
    )
    return decoded, at


def _decode_one_row(frame: bytes, at: int) -> FetchRequest | None:
    """The fetch in the last bytes of `frame`; None when it has another shape than `_ONE_ROW`."""
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        topic,
        rows,
        partition,
        current_epoch,
        offset,
        last_epoch,
        start,
        size,
        behind,
        replica_id,
        replica_epoch,
    ) = _ONE_ROW.unpack_from(frame, at)
    if topics != ONE or rows != ONE or behind != _BEHIND_ROW:
        return None
    row = FetchPartition(topic_of(topic), partition, current_epoch, offset, last_epoch, start, size)
    return FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        [row],
        [],
        "",
    )


def _flexible_forgotten(frame: bytes, at: int, into: list[tuple[str | UUID, int]], *, by_id: bool) -> int:
    topics, at = read_varint(frame, at)
    for _ in range(present(topics - 1)):
        topic, at = read_topic(frame, at, by_id=by_id)
        count, at = read_varint(frame, at)
        for _ in range(present(count - 1)):
            into.append((topic, _INT32.unpack_from(frame, at)[0]))
            at += 4
        at = skip_tags(frame, at)
    return at


def _closing_tags(frame: bytes, at: int, version: int, replica_id: int) -> tuple[int, int, str | None, int]:
    """`(replica id, replica epoch, cluster id, end)`: tag 0 is the cluster's id, tag 1 the replica's state."""
    replica_epoch, cluster_id = -1, None
    tags, at = read_varint(frame, at)
    for _ in range(tags):
        tag, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        if tag == 0:
            length, begin = read_varint(frame, at)
            cluster_id = text_of_bytes(frame[begin : begin + length - 1]) if length else None
        elif tag == 1 and version >= _REPLICA_STATE:
            replica_id, replica_epoch, _ = _REPLICA.unpack_from(frame, at)
        at += size
    return replica_id, replica_epoch, cluster_id, at


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body of a fetch. Fields that the version lacks are left out."""
    if version >= _REPLICA_STATE and len(request.partitions) == 1:
        single = _encode_one_row(request)
        if single is not None:
            return single
    flexible = version >= FLEXIBLE
    out: list[bytes] = []
    if version < _REPLICA_STATE:
        out.append(_INT32.pack(request.replica_id))
    out.append(_HEAD.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level))
    if version >= _SESSIONS:
        out.append(_SESSION.pack(request.session_id, request.session_epoch))
    rows = {
        topic: [_partition(version, row) for row in of_topic]
        for topic, of_topic in _by_topic(request.partitions).items()
    }
    _put_topics(out, version, rows)
    if version >= _SESSIONS:
        lost: dict[str | UUID, list[bytes]] = {}
        for topic, partition in request.forgotten:
            lost.setdefault(topic, []).append(_INT32.pack(partition))
        _put_topics(out, version, lost)
    if version >= _RACK:
        out.append(compact_text(request.rack_id) if flexible else legacy_text(request.rack_id))
    if flexible:
        out.append(_request_tags(version, request))
    return b"".join(out)


def _encode_one_row(request: FetchRequest) -> bytes | None:
    (
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        (row,),
        forgotten,
        rack_id,
        cluster_id,
    ) = request
    if forgotten or rack_id or cluster_id is not None or replica_id == replica_epoch == -1:
        return None
    topic, partition, current_epoch, offset, last_epoch, start, size = row
    raw = topic_bytes(topic, flexible=True, by_id=True)
    return _ONE_ROW.pack(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        ONE,
        raw,
        ONE,
        partition,
        current_epoch,
        offset,
        last_epoch,
        start,
        size,
        _BEHIND_ROW,
        replica_id,
        replica_epoch,
    )


def _by_topic(rows: Sequence[FetchPartition]) -> dict[str | UUID, list[FetchPartition]]:
    grouped: dict[str | UUID, list[FetchPartition]] = {}
    for row in rows:
        grouped.setdefault(row.topic, []).append(row)
    return grouped


def _put_topics(out: list[bytes], version: int, rows: dict[str | UUID, list[bytes]]) -> None:
    flexible = version >= FLEXIBLE
    out.append(varint(len(rows) + 1) if flexible else _INT32.pack(len(rows)))
    for topic, items in rows.items():
        out.append(topic_bytes(topic, flexible=flexible, by_id=version >= TOPIC_IDS))
        out.append(varint(len(items) + 1) if flexible else _INT32.pack(len(items)))
        out += items
        if flexible:
            out.append(b"\0")


def _partition(version: int, row: FetchPartition) -> bytes:
    _, partition, epoch, offset, last_epoch, start, size = row
    if version >= FLEXIBLE:
        return _PARTITION_V12.pack(partition, epoch, offset, last_epoch, start, size) + b"\0"
    if version >= 9:  # leader epochs (KIP-320)
        return _PARTITION_V9.pack(partition, epoch, offset, start, size)
    if version >= 5:  # log start offsets
        return _PARTITION_V5.pack(partition, offset, start, size)
    return _PARTITION_V4.pack(partition, offset, size)


def _request_tags(version: int, request: FetchRequest) -> bytes:
    tags: list[bytes] = []
    if request.cluster_id is not None:
        value = compact_text(request.cluster_id)
        tags.append(b"\0" + varint(len(value)) + value)
    has_replica = (request.replica_id, request.replica_epoch) != (-1, -1)
    if version >= _REPLICA_STATE and has_replica:
        value = _REPLICA.pack(request.replica_id, request.replica_epoch, 0)
        tags.append(b"\1" + varint(len(value)) + value)
    return varint(len(tags)) + b"".join(tags)
