"""Which API at which versions goes to which handler; ApiVersions.

Owns: `ApiTable`, `ApiRow`. A broker advertises exactly what its rooms added, and ApiVersions, which the
table answers itself (A2, KIP-511): a version that it does not know gets error 35 in a v0 body that lists
ApiVersions' own range. Produce is advertised from version 0, as Apache Kafka does (KAFKA-18659), for
librdkafka sends uncompressed otherwise; older than the handler serves is refused all the same.

May fail: `WireError` from `lookup` for an API or version that nobody serves: the connection closes, as
Kafka's does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import ErrorCode, WireError
from . import headers, messages
from .api_keys import ApiKey
from .request import Handler, Request

__all__ = ["ApiRow", "ApiTable", "VersionRange"]

_PRODUCE_ADVERTISED_FROM = 0
_API_VERSIONS_HIGH = 4
# Kafka's ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class ApiRow:
    """One API as a room serves it: versions `low` to `high`, both included."""

    api_key: int
    low: int
    high: int
    handler: Handler


class VersionRange(NamedTuple):
    """What ApiVersions says of one API."""

    api_key: int
    low: int
    high: int


class ApiTable:
    """The APIs of one listener."""

    __slots__ = ("_advertised", "_rows")

    def __init__(self, rows: Iterable[ApiRow] = ()) -> None:
        self._rows: dict[int, ApiRow] = {}
        self._advertised: tuple[VersionRange, ...] | None = None
        self.add(ApiKey.API_VERSIONS, 0, _API_VERSIONS_HIGH, self._api_versions)
        self.add_rows(rows)

    def add(self, api_key: int, low: int, high: int, handler: Handler) -> None:
        """Serve versions `low` to `high` of an API by `handler`. Each API has one handler, each version a schema."""
        assert api_key not in self._rows, f"API key {api_key} has a handler"
        assert low <= high, f"API key {api_key}: versions {low} to {high}"
        for version in range(low, high + 1):
            assert messages.has_schema(api_key, version), f"API key {api_key}: no v{version}"
        self._rows[int(api_key)] = ApiRow(int(api_key), low, high, handler)
        self._advertised = None

    def add_rows(self, rows: Iterable[ApiRow]) -> None:
        """Serve what a room's `handlers()` gives."""
        for row in rows:
            self.add(row.api_key, row.low, row.high, row.handler)

    def lookup(self, api_key: int, version: int) -> Handler:
        """The handler of a request; WireError when nobody serves it. ApiVersions is served at any version."""
        row = self._rows.get(api_key)
        if row is None:
            raise WireError(f"API key {api_key} is not served here")
        if not row.low <= version <= row.high and api_key != ApiKey.API_VERSIONS:
            raise WireError(
                f"API key {api_key} is served in versions {row.low} to {row.high}, not {version}"
            )
        return row.handler

    def versions(self) -> tuple[VersionRange, ...]:
        """What is advertised, by API key."""
        if self._advertised is None:
            self._advertised = tuple(self._advertise(self._rows[key]) for key in sorted(self._rows))
        return self._advertised

    @staticmethod
    def _advertise(row: ApiRow) -> VersionRange:
        low = _PRODUCE_ADVERTISED_FROM if row.api_key == ApiKey.PRODUCE else row.low
        return VersionRange(row.api_key, low, row.high)

    @staticmethod
    def is_flexible(api_key: int, version: int) -> bool:
        """True when the request's header has tagged fields (header v2)."""
        return headers.request_is_flexible(api_key, version)

    @staticmethod
    def response_is_flexible(api_key: int, version: int) -> bool:
        """True when the response's header has tagged fields (header v1)."""
        return headers.response_is_flexible(api_key, version)

    def _api_versions(self, request: Request) -> None:
        if not 0 <= request.version <= _API_VERSIONS_HIGH:
            own = (VersionRange(ApiKey.API_VERSIONS, 0, _API_VERSIONS_HIGH),)
            request.respond_parts((_body(0, ErrorCode.unsupported_version, own),))
            return
        if not _names_its_software(request):
            request.respond_parts((_body(request.version, ErrorCode.invalid_request, ()),))
            return
        request.respond_parts((_body(request.version, ErrorCode.none, self.versions()),))


def _names_its_software(request: Request) -> bool:
    """KIP-511: from v3 on the client's software name and version must be well-formed."""
    if request.version < 3:  # the version that brought the two fields
        return True
    asked = request.decode()
    return bool(
        _SOFTWARE.fullmatch(asked.client_software_name)
        and _SOFTWARE.fullmatch(asked.client_software_version)
    )


def _body(version: int, code: ErrorCode, ranges: Iterable[VersionRange]) -> bytes:
    s = messages.schema(ApiKey.API_VERSIONS, version, "response")
    rows = tuple(
        s.ApiVersion(api_key=row.api_key, min_version=row.low, max_version=row.high)
        for row in ranges
    )
    entity = s.ApiVersionsResponse(error_code=code, api_keys=rows)
    return messages.encode(messages.response_writer(ApiKey.API_VERSIONS, version), entity)
