"""Which handler serves an API, in which versions, on one listener; the answer to ApiVersions.

Owns: `ApiTable`, `ApiRow`. A listener advertises the APIs that its table serves, and nothing else. The table of
a listener for clients leaves the inter-broker APIs out (`INTER_BROKER_APIS`): there they are unknown keys.

The table itself answers ApiVersions (A2, KIP-511): a request of a version that the broker does not know gets error 35
in a v0 body that lists the range of ApiVersions. Produce is advertised from version 0, as Apache Kafka does
(KAFKA-18659), because librdkafka would send uncompressed batches otherwise; a Produce of a version that the handler
does not serve is refused all the same.

May fail: `lookup` raises `WireError` for an API or version that the listener does not serve. The connection is
closed then, as Kafka's is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..authorizer import Operation
from ..errors import ErrorCode, WireError
from . import messages
from .api_keys import CLUSTER_OPERATIONS, INTER_BROKER_APIS, ApiKey
from .request import Handler, Request

__all__ = ["API_VERSIONS_HIGH", "ApiRow", "ApiTable", "VersionRange", "names_its_software"]

_PRODUCE_ADVERTISED_FROM = 0
API_VERSIONS_HIGH = 4
# Kafka's ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class ApiRow:
    """One API as a room serves it: versions `low` to `high`, both included."""

    api_key: int
    low: int
    high: int
    handler: Handler
    operations: tuple[Operation, ...] = ()
    """The sender needs one of these on the cluster; set by the table, empty for most APIs."""
    refuse: Callable[[Request, ErrorCode], None] | None = None
    """Refuses a request without serving it; None: by `Request.refuse`."""


class VersionRange(NamedTuple):
    """The row of one API in an ApiVersions response."""

    api_key: int
    low: int
    high: int


class Feature(NamedTuple):
    """A feature (KIP-584), the levels that brokers support, and the level of this cluster."""

    name: str
    low: int
    high: int
    level: int


FEATURES = (
    Feature("group.version", 0, 1, 1),
    Feature("streams.version", 0, 1, 1),
    Feature("transaction.version", 0, 2, 2),
)
"""`transaction.version` 2 makes clients of KIP-890 raise their epoch at each end of a transaction and leave
AddPartitionsToTxn out; older clients do not read it, and are served as with version 1."""
FINALIZED_EPOCH = 0
"""Always the same, because no level changes."""
FINALIZED_FROM = 3
"""First version of ApiVersions with features."""
MINIMUM_ZERO_FROM = 4
"""First version whose clients accept a feature with the lowest level 0."""


class ApiTable:
    """The APIs of one listener; all of them where `inter_broker` is true."""

    __slots__ = ("_advertised", "_inter_broker", "_rows")

    def __init__(self, rows: Iterable[ApiRow] = (), *, inter_broker: bool = True) -> None:
        self._inter_broker = inter_broker
        self._rows: dict[int, ApiRow] = {}
        self._advertised: tuple[VersionRange, ...] | None = None
        self.add(ApiKey.API_VERSIONS, 0, API_VERSIONS_HIGH, self._api_versions)
        self.add_rows(rows)

    def add(
        self,
        api_key: int,
        low: int,
        high: int,
        handler: Handler,
        refuse: Callable[[Request, ErrorCode], None] | None = None,
    ) -> None:
        """Serve versions `low` to `high` of an API by `handler`. Each API has one handler, each version a schema."""
        assert self.serves(api_key), f"API key {api_key} on a listener for clients"
        assert api_key not in self._rows, f"API key {api_key} has a handler"
        assert low <= high, f"API key {api_key}: versions {low} to {high}"
        for version in range(low, high + 1):
            assert messages.has_schema(api_key, version), f"API key {api_key}: no v{version}"
        operations = CLUSTER_OPERATIONS.get(api_key, ())
        self._rows[int(api_key)] = ApiRow(int(api_key), low, high, handler, operations, refuse)
        self._advertised = None

    def add_rows(self, rows: Iterable[ApiRow]) -> None:
        """Serve those APIs of a room's `handlers()` that belong on this listener."""
        for row in rows:
            if self.serves(row.api_key):
                self.add(row.api_key, row.low, row.high, row.handler, row.refuse)

    def serves(self, api_key: int) -> bool:
        """True when the API belongs on this listener."""
        return self._inter_broker or api_key not in INTER_BROKER_APIS

    def lookup(self, api_key: int, version: int) -> ApiRow:
        """The row of a request; WireError when the listener does not serve it. ApiVersions is served at any version."""
        row = self._rows.get(api_key)
        if row is None:
            raise WireError(f"API key {api_key} is not served on this listener")
        if not row.low <= version <= row.high and api_key != ApiKey.API_VERSIONS:
            raise WireError(f"API key {api_key} is served in versions {row.low} to {row.high}, not {version}")
        return row

    def versions(self) -> tuple[VersionRange, ...]:
        """The advertised ranges, by API key."""
        if self._advertised is None:
            self._advertised = tuple(self._advertise(self._rows[key]) for key in sorted(self._rows))
        return self._advertised

    @staticmethod
    def _advertise(row: ApiRow) -> VersionRange:
        low = _PRODUCE_ADVERTISED_FROM if row.api_key == ApiKey.PRODUCE else row.low
        return VersionRange(row.api_key, low, row.high)

    def _api_versions(self, request: Request) -> None:
        if not 0 <= request.version <= API_VERSIONS_HIGH:
            own = (VersionRange(ApiKey.API_VERSIONS, 0, API_VERSIONS_HIGH),)
            request.respond_parts((_body(0, ErrorCode.unsupported_version, own),))
            return
        if not names_its_software(request):
            request.respond_parts((_body(request.version, ErrorCode.invalid_request, ()),))
            return
        request.respond_parts((_body(request.version, ErrorCode.none, self.versions()),))


def names_its_software(request: Request) -> bool:
    """True when the client's software name and version are well-formed, which v3 and later require (KIP-511)."""
    if request.version < 3:  # the two fields were added in version 3
        return True
    entity = request.decode()
    return bool(
        _SOFTWARE.fullmatch(entity.client_software_name) and _SOFTWARE.fullmatch(entity.client_software_version)
    )


def _body(version: int, code: ErrorCode, ranges: Iterable[VersionRange]) -> bytes:
    s = messages.schema(ApiKey.API_VERSIONS, version, "response")
    rows = tuple(s.ApiVersion(api_key=row.api_key, min_version=row.low, max_version=row.high) for row in ranges)
    features = FEATURES if code is ErrorCode.none and version >= FINALIZED_FROM else ()
    entity = s.ApiVersionsResponse(
        error_code=code,
        api_keys=rows,
        supported_features=tuple(
            s.SupportedFeatureKey(name=row.name, min_version=row.low, max_version=row.high)
            for row in features
            if row.low or version >= MINIMUM_ZERO_FROM
        ),
        finalized_features_epoch=FINALIZED_EPOCH if features else -1,
        finalized_features=tuple(
            s.FinalizedFeatureKey(name=row.name, max_version_level=row.level, min_version_level=row.level)
            for row in features
        ),
    )
    return messages.encode(messages.response_writer(ApiKey.API_VERSIONS, version), entity)
