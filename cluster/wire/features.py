"""The features of the cluster that ApiVersions announces (KIP-584).

Owns: the list. `transaction.version` 2 makes clients of KIP-890 raise their epoch at each end of a transaction and
leave AddPartitionsToTxn out; older clients do not read it, and are served as with version 1. The level never changes,
so the epoch of the finalized features is always the same.

Source: Kafka's ApiVersionsResponse, Feature, TransactionVersion.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature, the levels that brokers support, and the level of this cluster."""

    name: str
    low: int
    high: int
    level: int


FEATURES = (Feature("group.version", 0, 1, 1), Feature("transaction.version", 0, 2, 2))
FINALIZED_EPOCH = 0
FINALIZED_FROM = 3
"""First version of ApiVersions with features."""
MINIMUM_ZERO_FROM = 4
"""First version whose clients accept a feature with the lowest level 0."""
