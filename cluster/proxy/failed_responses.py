"""Responses of a foreign broker into which a fault puts an error.

Owns: `needs_response`, `failed_response`. A refused request is forwarded all the same where only the broker knows the
rest of its response: brokers and controller of Metadata, and a Fetch, so that the broker and its client agree on the
epoch of their fetch session. A Fetch then carries the error in every partition of the session, and no records.

May fail: `WireError` for a message that does not decode; the connection is closed then.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..wire.api_errors import PARTITION, place_of
from ..wire.api_keys import ApiKey
from ..wire.error_versions import code_at
from ..wire.fetch import decode_fetch
from ..wire.fetch_response import FetchAnswer, decode_fetch_response, encode_fetch_response
from ..wire.refusals import is_served, refusal_bytes, struck_bytes
from ..wire.topic_ids import UUID
from .pending import PendingRequest

Partitions = Iterable[tuple[str | UUID, int]]


def needs_response(api_key: int, version: int, error: int) -> bool:
    """Whether a request that is refused with `error` is forwarded for the rest of its response."""
    if api_key == ApiKey.FETCH:
        return place_of(api_key, code_at(api_key, version, error)) == PARTITION
    return is_served(api_key, version, error)


def failed_response(request: PendingRequest, response: bytes, body_at: int, session: Partitions | None) -> bytes:
    """Return the response with `request.error` in it; `session`: the partitions that a Fetch asks for, if known."""
    key, version = request.api_key, request.version
    if is_served(key, version, request.error):
        body = struck_bytes(key, version, response[body_at:], request.error)
    elif key == ApiKey.FETCH and needs_response(key, version, request.error):
        body = _failed_fetch(request, response, body_at, session)
    else:
        whole = request.whole()
        body = refusal_bytes(key, version, whole.frame, whole.body_at, request.error)
    return response[:body_at] + body


def _failed_fetch(request: PendingRequest, response: bytes, body_at: int, session: Partitions | None) -> bytes:
    version = request.version
    given = code_at(ApiKey.FETCH, version, request.error)
    served = decode_fetch_response(version, response, body_at)
    if served.error:  # the session of this request does not exist: the response has no partitions
        return response[body_at:]
    if session is None:
        session = [(row.topic, row.partition) for row in decode_fetch(request.whole()).partitions]
    answers = [FetchAnswer(topic, partition, given) for topic, partition in session]
    parts = encode_fetch_response(version, answers, session_id=served.session_id)
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no region of a file
