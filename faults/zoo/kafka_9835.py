"""KAFKA-9835: the size of what may be read is looked at twice, and bytes above the high watermark leave.

What was wrong (Kafka to 2.5): the range of a consumer's read ends at the high watermark. Where that was the end of the
segment's file, the code then asked for the size of the file once more, to cut the range there. What another thread had
appended between the two looks became part of the range: the consumer received records that were not committed.

Threads do not run in between here, other turns of the loop do. So the two looks are those of a fetch that waits: when
it comes, and when the high watermark has moved and it is completed. Where the high watermark was the log end at the
first look, the read ends at the log end of the second look.

Needs: a consumer that has read everything, slow disks (records stay above the high watermark for long), a power loss of
all brokers; and several producers, because one producer sends a lost record to the same offset again.
Seen as: `lost-write`, `inconsistent-offsets`: a record that was read is another one later, or none.
Replaces: `FetchReader.read_limit`.
Source: KAFKA-9835; Kafka's `FileRecords.slice`, `LogSegment.read`.
"""

from __future__ import annotations

from collections.abc import Callable

from harrow.cluster.ids import Offset
from harrow.cluster.planting import Planter
from harrow.cluster.replication.fetch_reads import FetchReader
from harrow.cluster.replication.partition import Partition

TITLE = "KAFKA-9835: the log end is looked at twice, and a read goes beyond the high watermark"
Limit = Callable[[Partition], Offset]


def plant(planter: Planter) -> None:
    """Look twice."""
    look_once = FetchReader.read_limit

    def read_limit(self: FetchReader) -> Limit:
        return _TwoLooks(look_once(self))

    planter.replace_method(FetchReader, "read_limit", read_limit)


class _TwoLooks:
    """The limit of one fetch, which remembers partitions of which everything could be read."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._read_to_end: dict[Partition, Offset] = {}

    def __call__(self, partition: Partition) -> Offset:
        limit, end = self._limit(partition), partition.log_end_offset
        first_look = self._read_to_end.get(partition)
        if first_look is None and limit == end:
            self._read_to_end[partition] = limit
        return limit if first_look is None or limit == first_look else end
