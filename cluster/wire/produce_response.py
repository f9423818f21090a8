"""Hand-written decoder of Produce responses, v3 to v13: what became of each partition.

Owns: `decode_produce_response`. Record errors, messages, leaders and endpoints are skipped. Tests compare it with
kio's codec for every version.

May fail: `WireError` for a response that does not decode.
"""

from __future__ import annotations

import struct

from ..errors import WireError
from .decoding import read_varint, skip_tags
from .primitives import read_topic
from .produce import ProduceAnswer
from .topic_ids import UUID

__all__ = ["decode_produce_response"]

_FLEXIBLE, _TOPIC_IDS, _LOG_START, _RECORD_ERRORS = 9, 13, 5, 8
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_HEAD = struct.Struct(">ihqq")


def decode_produce_response(version: int, frame: bytes, at: int = 0) -> list[ProduceAnswer]:
    """Decode the body that begins at `at`; each answer has its topic, partition, error and base offset."""
    answers: list[ProduceAnswer] = []
    try:
        topics, at = _count(frame, at, version)
        for _ in range(topics):
            topic, at = _topic(frame, at, version)
            partitions, at = _count(frame, at, version)
            for _ in range(partitions):
                partition, error, base_offset, time_ms = _HEAD.unpack_from(frame, at)
                answers.append(ProduceAnswer(topic, partition, error, base_offset, time_ms))
                at = _skip_rest(frame, at + _HEAD.size, version)
            if version >= _FLEXIBLE:
                at = skip_tags(frame, at)
    except (struct.error, IndexError, ValueError) as error:
        raise WireError(f"ProduceResponse v{version} does not decode: {error}") from error
    if at > len(frame):
        raise WireError(f"ProduceResponse v{version} claims {at} bytes of {len(frame)}")
    return answers


def _count(frame: bytes, at: int, version: int) -> tuple[int, int]:
    if version >= _FLEXIBLE:
        count, at = read_varint(frame, at)
        return count - 1, at
    return _INT32.unpack_from(frame, at)[0], at + 4


def _topic(frame: bytes, at: int, version: int) -> tuple[str | UUID, int]:
    if version >= _FLEXIBLE:
        return read_topic(frame, at, by_id=version >= _TOPIC_IDS)
    size: int = _INT16.unpack_from(frame, at)[0]
    if size < 0:
        raise WireError("ProduceResponse: a topic without a name")
    end = at + 2 + size
    return frame[at + 2 : end].decode(), end


def _skip_rest(frame: bytes, at: int, version: int) -> int:
    """Skip what is behind the log append time of a partition."""
    if version >= _LOG_START:
        at += 8
    if version < _RECORD_ERRORS:
        return at
    errors, at = _count(frame, at, version)
    for _ in range(errors):
        at = _skip_text(frame, at + 4, version)
        if version >= _FLEXIBLE:
            at = skip_tags(frame, at)
    at = _skip_text(frame, at, version)
    return skip_tags(frame, at) if version >= _FLEXIBLE else at


def _skip_text(frame: bytes, at: int, version: int) -> int:
    if version >= _FLEXIBLE:
        size, at = read_varint(frame, at)
        return at + max(size - 1, 0)
    legacy_size: int = _INT16.unpack_from(frame, at)[0]
    return at + 2 + max(legacy_size, 0)
