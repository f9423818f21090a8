"""KAFKA-7866: a marker is written, the transaction index refuses it, and its offset is given again.

What was wrong: an append wrote its batches to the segment, then updated the producer states and the transaction index,
and only then advanced the log end offset. When the index could not be written, the marker of an aborted transaction was
in the segment and the log end offset was still the marker's. The log stayed in use until its folder was taken offline
(KAFKA-10778), so the next append got the same offset.

Seen as: `inconsistent-offsets`, `replica-divergence`, `aborted-read`; the output lacks records or has them twice.
Replaces: `Log.finish_append`, and what `kafka_10778` replaces.
Source: KAFKA-7866; Kafka's `Log.append`, `LogSegment.updateTxnIndex`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from harrow.cluster.host.seam import Buffer
from harrow.cluster.ids import Offset
from harrow.cluster.planting import Planter
from harrow.cluster.storage.log import Log
from harrow.cluster.storage.producers.producer_states import Plan
from harrow.cluster.storage.results import AppendedBatch
from harrow.cluster.storage.segment import LogSegment

from .. import disk_error, leader, reset
from ..runs import EXACTLY_ONCE, SINK, TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .kafka_10778 import plant_late_fence
from .shared import SHORT, SHORT_SESSION_MS

TITLE = "KAFKA-7866: the log end offset advances after the transaction index, which may fail"
OPTIONS = SimulationOptions(brokers=3, seconds=5.0, workload=EXACTLY_ONCE, config=SHORT)


def plant(planter: Planter) -> None:
    """Advance the log end offset last."""
    plant_late_fence(planter)
    planter.replace_method(Log, "finish_append", _end_offset_last)


def _end_offset_last(
    self: Log, segment: LogSegment, parts: tuple[Buffer, ...], rows: Sequence[AppendedBatch], planned: Plan, end: Offset
) -> None:
    aborted = self.producers.commit(planned, end)
    if aborted:
        self.note_aborted(segment, aborted)
    self.log_end_offset = end
    self.extend_tail(parts, rows)


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The leader of the output cannot write a transaction index once; faults of clients make transactions abort."""
    partition = rng.randrange(OPTIONS.partitions)
    begin_ms = rng.uniform(300, 1_000)
    error = disk_error("write", leader(SINK, partition), path=f"*/{SINK}-{partition}/*.txnindex", count=1)
    return (
        timed_step(1, begin_ms, error, 2 * SHORT_SESSION_MS),
        timed_step(2, begin_ms + rng.uniform(100, 1_500), reset(leader(TOPIC, partition)), 0),
    )


BUG = Bug(
    number=16,
    module=__name__,
    title=TITLE,
    versions="0.11 to 2.1",
    needs="EIO on a write of a transaction index while a transaction is aborted",
    seen_as=frozenset(
        {
            "aborted-read",
            "duplicate-output",
            "inconsistent-offsets",
            "lost-write",
            "missing-output",
            "replica-divergence",
            "unseen",
        }
    ),
    options=OPTIONS,
    steps=steps_by_time,
)
