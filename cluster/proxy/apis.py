"""Which APIs and versions pass through the proxy, and the ApiVersions response that says so.

Owns: `check_passes` and `cut_api_versions`. A version passes when its schema is known here, because only then can the
proxy find addresses of brokers in its response. Ranges of a broker's ApiVersions response are cut to these versions,
so that a client never gets the address of a foreign broker; an API without such a version is left out.

Left out by name: what only KRaft controllers serve, whose responses name controllers (`CONTROLLER_APIS`);
DescribeQuorum from version 2 on, for the same reason; SaslHandshake v0, because what follows it has no headers.
Produce keeps version 0 in its range as Apache Kafka does (KAFKA-18659): librdkafka would send uncompressed batches
otherwise.

May fail: `WireError` for a request that does not pass. The connection is closed then, as a broker does it.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..errors import ErrorCode, WireError
from ..wire import messages
from ..wire.api_keys import INTER_BROKER_APIS, ApiKey
from ..wire.headers import RequestHeader

VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, DESCRIBE_QUORUM = 52, 53, 54, 55
FETCH_SNAPSHOT, UPDATE_RAFT_VOTER = 59, 82
CONTROLLER_APIS = frozenset((VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH_SNAPSHOT, UPDATE_RAFT_VOTER))
LEFT_OUT = CONTROLLER_APIS | INTER_BROKER_APIS
VERSION_LEAST: Mapping[int, int] = {ApiKey.SASL_HANDSHAKE: 1}
"""Lowest versions that pass."""
VERSION_MOST = {DESCRIBE_QUORUM: 1}
"""Highest versions that pass, where the schema of a later version names controllers."""

_ERROR = struct.Struct(">h")


@cache
def passing_versions(api_key: int) -> range:
    """Return the versions of an API that pass; empty for an API that does not."""
    known = messages.versions_known(api_key)
    if not known or api_key in LEFT_OUT:
        return range(0)
    most = min(known[-1], VERSION_MOST.get(api_key, known[-1]))
    assert known == tuple(range(known[0], known[-1] + 1)), f"API key {api_key}: versions {known}"
    return range(VERSION_LEAST.get(api_key, known[0]), most + 1)


def check_passes(api_key: int, version: int) -> None:
    """WireError for a request that does not pass, with what passes."""
    passing = passing_versions(api_key)
    if version in passing:
        return
    if not passing:
        raise WireError(f"API key {api_key} does not pass the proxy")
    raise WireError(f"API key {api_key} passes the proxy in versions {passing[0]} to {passing[-1]}, not {version}")


def cut_api_versions(version: int, frame: bytes, body_at: int) -> bytes:
    """Return the broker's ApiVersions response with the ranges that pass; WireError when it does not decode."""
    if len(frame) < body_at + _ERROR.size:
        raise WireError(f"an ApiVersions response of {len(frame)} bytes")
    if _ERROR.unpack_from(frame, body_at)[0] == int(ErrorCode.unsupported_version):
        version = 0  # KIP-511: the body of such a response has version 0, whatever the request had
    entity = messages.decode_response(ApiKey.API_VERSIONS, version, frame, body_at)
    passing = [row for row in map(_cut, entity.api_keys) if row is not None]
    write = messages.response_writer(ApiKey.API_VERSIONS, version)
    return frame[:body_at] + messages.encode(write, dataclasses.replace(entity, api_keys=tuple(passing)))


def is_unknown_api_versions(header: RequestHeader) -> bool:
    """Whether a request is an ApiVersions of a version whose response cannot be read here."""
    api_key = header.api_key
    return api_key == ApiKey.API_VERSIONS and header.version not in passing_versions(api_key)


def unsupported_api_versions() -> bytes:
    """Return the body that refuses an ApiVersions request of an unknown version (KIP-511)."""
    passing = passing_versions(ApiKey.API_VERSIONS)
    s = messages.schema(ApiKey.API_VERSIONS, 0, "response")
    row = s.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=passing[0], max_version=passing[-1])
    entity = s.root(error_code=ErrorCode.unsupported_version, api_keys=(row,))
    return messages.encode(messages.response_writer(ApiKey.API_VERSIONS, 0), entity)


def _cut(row: Any) -> Any:
    """Return a row of the response with the versions that pass; None when none does."""
    passing = passing_versions(row.api_key)
    if not passing:
        return None
    low, high = max(row.min_version, passing[0]), min(row.max_version, passing[-1])
    if low > high:
        return None
    if row.api_key == ApiKey.PRODUCE and row.min_version == 0:
        low = 0
    return dataclasses.replace(row, min_version=low, max_version=high)
