"""A planted bug: ListOffsets counts replicas outside of the ISR, from which a leader may know nothing yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harrow.cluster.ids import TopicPartition
from harrow.cluster.planting import Planter
from harrow.cluster.replication.fetch_isolation import FetchIsolation
from harrow.cluster.replication.list_offsets import LATEST, OffsetHandlers, TimestampOffset

TITLE = "the latest offset of ListOffsets is the least log end of all replicas"
_look_up = OffsetHandlers._look_up  # pyright: ignore[reportPrivateUsage] - replaced below


def plant(planter: Planter) -> None:
    """Replace what ListOffsets finds."""
    planter.replace_method(OffsetHandlers, "_look_up", _least_log_end)


async def _least_log_end(
    self: OffsetHandlers, topic: str, rows: Sequence[Any], isolation: FetchIsolation, version: int
) -> TimestampOffset:
    timestamp, offset, epoch = await _look_up(self, topic, rows, isolation, version)
    row = rows[0]
    if row.timestamp == LATEST:
        place = TopicPartition(topic, row.partition_index)
        partition = self._directory.leader_of(place, -1)  # pyright: ignore[reportPrivateUsage] - as above
        offset = min([offset, *(max(0, end) for end in partition.remote_ends().values())])
    return timestamp, offset, epoch
