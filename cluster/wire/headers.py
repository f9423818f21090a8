"""The headers of requests and responses, by a codec written by hand because every message has a header.

Owns: on the server side, reading a request's header and writing a response's; on the client side, the reverse. There
are request headers v1 and v2 and response headers v0 and v1. The client id is a legacy string in both request headers
(Kafka's RequestHeader.json), and the response header of ApiVersions is v0 in every version (KIP-511).
What may fail: `WireError` when a frame is too short or a length points outside it.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from ..errors import WireError
from ..host.seam import Buffer
from . import messages
from .api_keys import ApiKey
from .decoding import skip_tags
from .texts import text_of_bytes

__all__ = [
    "HeaderReader",
    "RequestHeader",
    "encode_request_header",
    "encode_response_header",
    "parse_request_header",
    "parse_response_header",
    "request_is_flexible",
    "response_is_flexible",
]

_REQUEST = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
_REMEMBERED_BYTES_MOST = 1024
"""A longer header is not remembered, because the peer would decide how much memory a connection takes."""


class RequestHeader(NamedTuple):
    """A request's header, and the position of its body in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body_at: int


@cache
def request_is_flexible(api_key: int, version: int) -> bool:
    """True when the request has header v2 (tagged fields). An unknown version counts as the nearest known version.

    So a version that is newer than all known versions is flexible, and an ApiVersions request of any version parses.
    """
    known = messages.versions_known(api_key)
    if not known:
        raise WireError(f"unknown API key {api_key}")
    nearest = min(max(version, known[0]), known[-1])
    return bool(messages.request_type(api_key, nearest).__flexible__)


@cache
def response_is_flexible(api_key: int, version: int) -> bool:
    """True when the response has header v1 (tagged fields)."""
    return api_key != ApiKey.API_VERSIONS and request_is_flexible(api_key, version)


def parse_request_header(frame: bytes) -> RequestHeader:
    """Read a frame's header; WireError for an unknown API key or a frame too short."""
    try:
        api_key, version, correlation_id, size = _REQUEST.unpack_from(frame, 0)
        flexible = request_is_flexible(api_key, version)
        at = _REQUEST.size
        client_id = ""
        if size > 0:
            client_id = text_of_bytes(frame[at : at + size])
            at += size
        if at > len(frame):
            raise WireError(f"a client id of {size} bytes in a frame of {len(frame)}")
        if flexible:
            at = skip_tags(frame, at)
    except (struct.error, IndexError) as error:
        raise WireError(f"no request header in a frame of {len(frame)} bytes: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, at)


class HeaderReader:
    """Reads the headers of one connection; a header that differs from the last only in its correlation id is reused."""

    __slots__ = ("_before", "_behind", "_last")

    def __init__(self) -> None:
        self._before, self._behind = b"", b"no header was read"
        self._last = RequestHeader(-1, -1, -1, "", 0)

    def read(self, frame: bytes) -> RequestHeader:
        """The same result as `parse_request_header`."""
        api_key, version, _, client_id, body_at = self._last
        if frame[:4] == self._before and frame[8:body_at] == self._behind:
            correlation_id: int = _CORRELATION.unpack_from(frame, 4)[0]
            return RequestHeader(api_key, version, correlation_id, client_id, body_at)
        last = parse_request_header(frame)
        if last.body_at <= _REMEMBERED_BYTES_MOST:
            self._last = last
            self._before, self._behind = frame[:4], frame[8 : last.body_at]
        return last


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The bytes before a response's body, without the frame's size."""
    header = _CORRELATION.pack(correlation_id)
    return header + b"\0" if response_is_flexible(api_key, version) else header


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """The bytes before a request's body, without the frame's size."""
    name = client_id.encode()
    header = _REQUEST.pack(api_key, version, correlation_id, len(name)) + name
    return header + b"\0" if request_is_flexible(api_key, version) else header


def parse_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """`(correlation id, position of the body)` of the response to a request of that version."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame, 0)[0]
        at = _CORRELATION.size
        if response_is_flexible(api_key, version):
            at = skip_tags(frame, at)
    except (struct.error, IndexError) as error:
        raise WireError(f"no response header in a frame of {len(frame)} bytes") from error
    return correlation_id, at
