"""Which handler serves an API, in which versions, on one listener; the answer to ApiVersions.

Owns: `ApiTable`, `ApiRow`. A listener advertises the APIs that its table serves, and nothing else. The table of
a listener for clients leaves the inter-broker APIs out (`INTER_BROKER_APIS`): there they are unknown keys.

The table itself answers ApiVersions (A2, KIP-511): a request of a version that the broker does not know gets error 35
in a v0 body that lists the range of ApiVersions, and a client that means another node gets REBOOTSTRAP_REQUIRED
(KIP-1242). Produce is advertised from version 0, as Apache Kafka does
(KAFKA-18659), because librdkafka would send uncompressed batches otherwise; a Produce of a version that the handler
does not serve is refused all the same.

A table of an older release (`release`, harrow.as.version) lists and serves what a broker of that release does, as far
as the rows go. Brokers use versions of their own, so the inter-broker listener lists that and serves everything.

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
from .features import FINALIZED_EPOCH, Feature, features_of
from .release_table import Release
from .request import Handler, Request

__all__ = ["API_VERSIONS_HIGH", "ApiRow", "ApiTable", "Identity", "VersionRange", "names_its_software"]

_PRODUCE_ADVERTISED_FROM = 0
API_VERSIONS_HIGH = 5
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


_NEEDS: dict[int, str] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "group.version",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "group.version",
}
"""APIs that a release lists and refuses with UNSUPPORTED_VERSION while it has not the feature: Kafka 3.9 (KIP-848)."""
FINALIZED_FROM = 3
"""First version of ApiVersions with features."""
MINIMUM_ZERO_FROM = 4
"""First version whose clients accept a feature with the lowest level 0."""
NO_NODE = -1
NAMES_NODE_FROM = 5
"""First version in which a client says whom it means to reach (KIP-1242)."""


class Identity(NamedTuple):
    """Who serves a listener. A client that means another cluster, or another node of it, must bootstrap again."""

    cluster_id: str | None = None
    """None: not known yet, so no client is refused."""
    node_id: int = NO_NODE


class ApiTable:
    """The APIs of one listener; all of them where `inter_broker` is true."""

    __slots__ = ("_advertised", "_features", "_identity", "_inter_broker", "_release", "_rows")

    def __init__(
        self,
        rows: Iterable[ApiRow] = (),
        *,
        inter_broker: bool = True,
        identity: Callable[[], Identity] = Identity,
        release: Release | None = None,
    ) -> None:
        self._inter_broker = inter_broker
        self._identity = identity
        self._release = release
        self._features: tuple[Feature, ...] = ()
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
        if self._release is not None and api_key in _NEEDS and _NEEDS[api_key] not in self._release.features:
            handler = _unsupported
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
        low, high = row.low, row.high
        if self._release is not None and not self._inter_broker:
            offered = self._release.apis.get(api_key)
            if offered is None:
                raise WireError(f"API key {api_key} is not served as {self._release.version}")
            low, high = max(low, offered[0]), min(high, offered[1])
        if not low <= version <= high and api_key != ApiKey.API_VERSIONS:
            raise WireError(f"API key {api_key} is served in versions {low} to {high}, not {version}")
        return row

    def versions(self) -> tuple[VersionRange, ...]:
        """The advertised ranges, by API key."""
        if self._advertised is None:
            ranges = (self._advertise(self._rows[key]) for key in sorted(self._rows))
            self._advertised = tuple(found for found in ranges if found is not None)
        return self._advertised

    def features(self) -> tuple[Feature, ...]:
        """The features that the listener names, by name."""
        if not self._features:
            self._features = features_of({row.api_key for row in self.versions()}, self._release)
        return self._features

    @property
    def api_versions_high(self) -> int:
        """The last version of ApiVersions that this table answers."""
        if self._release is None:
            return API_VERSIONS_HIGH
        return min(API_VERSIONS_HIGH, self._release.apis[ApiKey.API_VERSIONS][1])

    def _advertise(self, row: ApiRow) -> VersionRange | None:
        """None for an API, or all of its versions, that the release does not have."""
        low, high = _PRODUCE_ADVERTISED_FROM if row.api_key == ApiKey.PRODUCE else row.low, row.high
        if self._release is not None and row.api_key not in INTER_BROKER_APIS:
            least, most = self._release.apis.get(row.api_key, (0, -1))
            low, high = max(low, least), min(high, most)
        return VersionRange(row.api_key, low, high) if low <= high else None

    def _api_versions(self, request: Request) -> None:
        high = self.api_versions_high
        if not 0 <= request.version <= high:
            own = (VersionRange(ApiKey.API_VERSIONS, 0, high),)
            request.respond_parts((_body(0, ErrorCode.unsupported_version, own),))
            return
        if not names_its_software(request):
            request.respond_parts((_body(request.version, ErrorCode.invalid_request, ()),))
            return
        if means_another(request, self._identity()):
            request.respond_parts((_body(request.version, ErrorCode.rebootstrap_required, ()),))
            return
        request.respond_parts((_body(request.version, ErrorCode.none, self.versions(), self.features()),))


def _unsupported(request: Request) -> None:
    request.fail(ErrorCode.unsupported_version)


def names_its_software(request: Request) -> bool:
    """True when the client's software name and version are well-formed, which v3 and later require (KIP-511).

    And when it names both a cluster and a node, or neither, which v5 requires (KIP-1242).
    """
    if request.version < 3:  # the two fields were added in version 3
        return True
    entity = request.decode()
    if request.version >= NAMES_NODE_FROM and (entity.cluster_id is None) != (entity.node_id == NO_NODE):
        return False
    return bool(
        _SOFTWARE.fullmatch(entity.client_software_name) and _SOFTWARE.fullmatch(entity.client_software_version)
    )


def means_another(request: Request, identity: Identity) -> bool:
    """True when the client names a cluster (v5 and later), and it or the node is not this one."""
    if request.version < NAMES_NODE_FROM or identity.cluster_id is None:
        return False
    entity = request.decode()
    return entity.cluster_id is not None and (entity.cluster_id, entity.node_id) != identity


def _body(version: int, code: ErrorCode, ranges: Iterable[VersionRange], named: tuple[Feature, ...] = ()) -> bytes:
    s = messages.schema(ApiKey.API_VERSIONS, version, "response")
    rows = tuple(s.ApiVersion(api_key=row.api_key, min_version=row.low, max_version=row.high) for row in ranges)
    features = named if version >= FINALIZED_FROM else ()
    entity = s.ApiVersionsResponse(
        error_code=code,
        api_keys=rows,
        supported_features=tuple(
            s.SupportedFeatureKey(name=row.name, min_version=row.low, max_version=row.high)
            for row in features
            if row.low or version >= MINIMUM_ZERO_FROM
        ),
        finalized_features_epoch=FINALIZED_EPOCH if code is ErrorCode.none and version >= FINALIZED_FROM else -1,
        finalized_features=tuple(
            s.FinalizedFeatureKey(name=row.name, max_version_level=row.level, min_version_level=row.level)
            for row in features
            if row.level
        ),
    )
    return messages.encode(messages.response_writer(ApiKey.API_VERSIONS, version), entity)
