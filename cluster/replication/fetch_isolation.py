"""How far a fetch may read, and what ListOffsets calls "latest": one limit for each kind of reader (A4, C6, F5).

Owns: `FetchIsolation`, and with it the rule for the upper bound of what leaves this broker. The bound is worked out
once for a read and handed to the log (KAFKA-9835: Kafka looked at the size of the log twice, and bytes above the high
watermark left between the two).

    reader                          reads up to
    a follower                      the log end
    a consumer                      the high watermark
    a consumer, read_committed      the last stable offset

The last stable offset moves only together with the high watermark: a marker ends its transaction for readers once it
lies below it. So the same event wakes both kinds of consumer.

Source: Kafka's `FetchIsolation`, `Partition.readRecords`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ids import Offset
    from .partition import Partition

READ_COMMITTED = 1
"""`isolation_level` of Fetch and ListOffsets."""


class FetchIsolation(Enum):
    """A kind of reader."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"

    def upper_bound(self, partition: Partition) -> Offset:
        """First offset of `partition` that this reader must not read, now."""
        if self is _LOG_END:
            return partition.log_end_offset
        return partition.high_watermark if self is _HIGH_WATERMARK else partition.last_stable_offset


_LOG_END = FetchIsolation.LOG_END
_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK


def isolation_of(replica_id: int, isolation_level: int) -> FetchIsolation:
    """The kind of reader that sent a request with these two fields."""
    if replica_id >= 0:
        return FetchIsolation.LOG_END
    if isolation_level == READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    return FetchIsolation.HIGH_WATERMARK
