"""KAFKA-9835: the size of what may be read is looked at twice, and bytes above the high watermark leave.

What was wrong: the range of a consumer's read ends at the high watermark. Where that was the end of the segment's file,
the code then asked for the size of the file once more, to cut the range there. What another thread had appended between
the two looks became part of the range: the consumer received records that were not committed.

Threads do not run in between here, other turns of the loop do. So the two looks are those of a fetch that waits: when
it comes, and when the high watermark has moved and it is completed. Where the high watermark was the log end at the
first look, the read ends at the log end of the second look.

Seen as: `lost-write`, `inconsistent-offsets`: a record that was read is another one later, or none.
Replaces: `FetchReader.read_limit`.
Source: KAFKA-9835; Kafka's `FileRecords.slice`, `LogSegment.read`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from harrow.cluster.ids import Offset
from harrow.cluster.planting import Planter
from harrow.cluster.replication.fetch_reads import FetchReader
from harrow.cluster.replication.partition import Partition

from .. import all_brokers, power_loss, slow_disk
from ..runs import SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import SHORT, SHORT_SESSION_MS

TITLE = "KAFKA-9835: the log end is looked at twice, and a read goes beyond the high watermark"
Limit = Callable[[Partition], Offset]
OPTIONS = SimulationOptions(brokers=3, seconds=6.0, batches=150, producers=5, power_loss=True, config=SHORT)


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


def steps_by_time(rng: random.Random) -> list[ScheduledFault]:
    """Records wait for fsyncs on all brokers and stay above the high watermark for long; then all lose their power."""
    steps: list[ScheduledFault] = []
    cut_ms = rng.uniform(300, 900)
    for _ in range(4):
        slow = slow_disk(all_brokers, delay_ms=float(rng.randint(60, 150)))
        lasts_ms = rng.uniform(0.2, 0.6) * SHORT_SESSION_MS
        steps.append(timed_step(len(steps) + 1, cut_ms - 250, slow, 250))
        steps.append(timed_step(len(steps) + 1, cut_ms, power_loss(all_brokers), lasts_ms))
        cut_ms += 1_300 + rng.uniform(0, 300)
    return steps


BUG = Bug(
    number=13,
    module=__name__,
    title=TITLE,
    versions="up to 2.5",
    needs=(
        "a consumer that has read everything, slow disks (records stay above the high watermark for long), a power "
        "loss of all brokers; and several producers, because one producer sends a lost record to the same offset again"
    ),
    seen_as=frozenset({"inconsistent-offsets", "lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
)
