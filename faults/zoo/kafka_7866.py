"""KAFKA-7866: a marker is written, the transaction index refuses it, and its offset is given again.

What was wrong (Kafka 0.11 to 2.1): an append wrote its batches to the segment, then updated the producer states and
the transaction index, and only then advanced the log end offset. When the index could not be written, the marker of
an aborted transaction was in the segment and the log end offset was still the marker's. The log stayed in use until
its folder was taken offline (KAFKA-10778), so the next append got the same offset.

Needs: EIO on a write of a transaction index while a transaction is aborted.
Seen as: `inconsistent-offsets`, `replica-divergence`, `aborted-read`; the output lacks records or has them twice.
Replaces: `Log.finish_append`, and what `kafka_10778` replaces.
Source: KAFKA-7866; Kafka's `Log.append`, `LogSegment.updateTxnIndex`.
"""

from __future__ import annotations

from collections.abc import Sequence

from harrow.cluster.host.seam import Buffer
from harrow.cluster.ids import Offset
from harrow.cluster.planting import Planter
from harrow.cluster.storage.log import Log
from harrow.cluster.storage.producers.producer_states import Plan
from harrow.cluster.storage.results import AppendedBatch
from harrow.cluster.storage.segment import LogSegment

from .kafka_10778 import plant_late_fence

TITLE = "KAFKA-7866: the log end offset advances after the transaction index, which may fail"


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
