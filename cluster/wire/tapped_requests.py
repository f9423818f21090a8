"""What the tap says of a request: the first error in its response, and what the request names (J6).

Owns: `first_error` and `subject_of`. Many responses are alike, so the errors of the last `REMEMBERED_MOST` small bodies
are remembered. Nothing is raised: a response that does not decode has no error, a request that does not has no subject.
A large Fetch response is not decoded here: its handler knows the errors.

    first error: at the top of the response, else the first one in its lists, depth first
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..errors import WireError
from ..host.seam import Part, bytes_of
from . import messages
from .api_keys import ApiKey
from .decoding import read_varint
from .headers import request_is_flexible
from .request import RequestBytes
from .texts import text_of_bytes

REMEMBERED_MOST = 512
REMEMBERED_BYTES_MOST = 2048
_INT16 = struct.Struct(">h")
_SHARE_FETCH = 78
_WITH_RECORDS = frozenset((ApiKey.FETCH, _SHARE_FETCH))
_AT_ERROR: dict[int, int] = {
    ApiKey.API_VERSIONS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 4,
    ApiKey.SHARE_GROUP_HEARTBEAT: 4,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 4,
    ApiKey.END_TXN: 4,
}
"""Where the error is in every version of the response; -1 in `_error_at` for others."""
_HEARTBEAT_HAS_THROTTLE_TIME = 1
_UNTIL = {
    ApiKey.OFFSET_COMMIT: 99,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 99,
    ApiKey.HEARTBEAT: 99,
    ApiKey.LEAVE_GROUP: 99,
    ApiKey.SYNC_GROUP: 99,
    ApiKey.INIT_PRODUCER_ID: 99,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 99,
    ApiKey.END_TXN: 99,
    ApiKey.TXN_OFFSET_COMMIT: 99,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 99,
    ApiKey.SHARE_GROUP_HEARTBEAT: 99,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 99,
}
"""APIs whose first field is what they name, and the last version of which that is true."""
_COUNT_BEFORE = {ApiKey.OFFSET_FETCH: 0, ApiKey.FIND_COORDINATOR: 1}
"""Later versions have a list of them, so many bytes behind the beginning."""
_remembered: dict[tuple[int, int, bytes], int] = {}


def first_error(api_key: int, version: int, parts: Sequence[Part]) -> int:
    """Return the first error code in a response's body; 0 without one."""
    try:
        body = b"".join(bytes_of(part) for part in parts)
        at = _error_at(api_key, version)
        if at >= 0:
            return int(_INT16.unpack_from(body, at)[0])
        if api_key in _WITH_RECORDS and len(body) > REMEMBERED_BYTES_MOST:
            return 0
        if len(body) > REMEMBERED_BYTES_MOST:
            return _decoded_error(api_key, version, body)
        key = (api_key, version, body)
        found = _remembered.get(key)
        if found is None:
            if len(_remembered) >= REMEMBERED_MOST:
                _remembered.clear()
            found = _remembered[key] = _decoded_error(api_key, version, body)
        return found
    except (WireError, struct.error, IndexError, ValueError):
        return 0


def _error_at(api_key: int, version: int) -> int:
    if api_key == ApiKey.HEARTBEAT:
        return 4 if version >= _HEARTBEAT_HAS_THROTTLE_TIME else 0
    return _AT_ERROR.get(api_key, -1)


def _decoded_error(api_key: int, version: int, body: bytes) -> int:
    return _error_in(messages.decode_response(api_key, version, body))


def _error_in(entity: Any) -> int:
    code = int(getattr(entity, "error_code", 0) or 0)
    if code:
        return code
    for name in _lists_of(entity.__class__):
        for item in getattr(entity, name) or ():
            code = _error_in(item)
            if code:
                return code
    return 0


@cache
def _lists_of(kind: Any) -> tuple[str, ...]:
    """Return the fields of a class that may be lists."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return tuple(field.name for field in fields if "tuple" in str(field.type))


def subject_of(api_key: int, request: RequestBytes) -> str | None:
    """Return the group, transactional id or coordinator key that a request names first; None without one."""
    last = _UNTIL.get(ApiKey(api_key)) if api_key in _UNTIL else None
    if last is None:
        return None
    version, frame, at = request.version, request.frame, request.body_at
    if version > last and api_key not in _COUNT_BEFORE:
        return None
    flexible = request_is_flexible(api_key, version)
    try:
        if version > last:
            count, at = read_varint(frame, at + _COUNT_BEFORE[ApiKey(api_key)])
            if count <= 1:
                return None
        return _text(frame, at, flexible=flexible)
    except (WireError, struct.error, IndexError):
        return None


def _text(frame: bytes, at: int, *, flexible: bool) -> str | None:
    if flexible:
        size, at = read_varint(frame, at)
        size -= 1
    else:
        size, at = int(_INT16.unpack_from(frame, at)[0]), at + 2
    return text_of_bytes(frame[at : at + size]) if 0 < size <= len(frame) - at else None
