"""The features of a cluster (KIP-584): the levels that the brokers support, and the level of each one.

Owns: `features_of`. Clients choose behaviour by them: with `transaction.version` 2 a producer raises its epoch at each
end of a transaction and leaves AddPartitionsToTxn out (KIP-890); older clients do not read it, and are served as with
version 1. A feature of requests that a listener does not serve is no feature there (`_OF_API`).

Left out, because the brokers are not what they say: `metadata.version` and `kraft.version`, the formats of a metadata
log, which a cluster with a registry has not; `eligible.leader.replicas.version` (KIP-966): `FEATURES_OF_KRAFT`.
A cluster of an older release (`harrow.as.version`) has the levels of that release, or the feature is left out.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from .release_table import Release

__all__ = ["FEATURES_OF_KRAFT", "FINALIZED_EPOCH", "Feature", "features_of"]


class Feature(NamedTuple):
    """A feature, the levels that brokers support, and the level of this cluster."""

    name: str
    low: int
    high: int
    level: int


_SHARE_FETCH, _STREAMS_GROUP_HEARTBEAT = 78, 88
_ALWAYS = (Feature("group.version", 0, 1, 1), Feature("transaction.version", 0, 2, 2))
_OF_API: Mapping[int, Feature] = {
    _SHARE_FETCH: Feature("share.version", 0, 2, 2),
    _STREAMS_GROUP_HEARTBEAT: Feature("streams.version", 0, 1, 1),
}
FEATURES_OF_KRAFT = frozenset({"metadata.version", "kraft.version", "eligible.leader.replicas.version"})
"""What Kafka has beside these; an update may leave each of them at level 0."""
FINALIZED_EPOCH = 0
"""Always the same, because no level changes."""


def features_of(served: Container[int], release: Release | None = None) -> tuple[Feature, ...]:
    """The features of a broker that serves these API keys, cut to those of `release`, in the order of their names."""
    rows = [*_ALWAYS, *(row for api_key, row in _OF_API.items() if api_key in served)]
    if release is not None:
        known = release.features
        rows = [
            Feature(row.name, row.low, min(row.high, known[row.name][1]), min(row.level, known[row.name][2]))
            for row in rows
            if row.name in known
        ]
    return tuple(sorted(rows))
