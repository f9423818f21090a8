"""KAFKA-7415: a new leader does not store where its epoch starts.

What was wrong (Kafka 0.11 to 2.0): a leader stored its epoch and the start offset of it with its first append, not when
it was elected. A leader that had appended nothing could not say where a later epoch than its last one ends: it
answered "unknown", and the follower, which had led under that epoch, truncated to its own high watermark. The follower
was still in the ISR. When the leader died before the follower had fetched again, the follower was elected, and records
that were committed above its high watermark were gone.

Needs: two elections without a replicated record between them, the second by preference, so that the leader of the first
stays in the ISR with a high watermark that lags; then the new leader dies.
Seen as: `lost-write`.
Replaces: `Partition.store_epoch_start`; the truncation strategy `kip-320` by `kip-279`, which Kafka 2.0 had.
Source: KAFKA-7415; Kafka's `LeaderEpochFileCache.endOffsetFor`, `Partition.makeLeader`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.truncation import STRATEGIES

TITLE = "KAFKA-7415: a new leader stores the start of its epoch with its first append only"


def plant(planter: Planter) -> None:
    """Leave the epoch to the first append, under the truncation of that time."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["kip-279"])
    planter.replace_method(Partition, "store_epoch_start", _nothing)


def _nothing(self: Partition) -> None:
    del self
