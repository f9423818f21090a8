"""A plant for tests: readers of committed data read up to the high watermark, so also records of open transactions."""

from __future__ import annotations

from harrow.cluster.ids import Offset
from harrow.cluster.planting import Planter
from harrow.cluster.replication.fetch_isolation import FetchIsolation
from harrow.cluster.replication.partition import Partition

TITLE = "the last stable offset is not respected"


def plant(planter: Planter) -> None:
    """Replace the limit of readers of committed data."""
    planter.replace_method(FetchIsolation, "upper_bound", _upper_bound)


def _upper_bound(self: FetchIsolation, partition: Partition) -> Offset:
    if self is FetchIsolation.LOG_END:
        return partition.log_end_offset
    return partition.high_watermark
