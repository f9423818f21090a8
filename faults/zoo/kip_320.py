"""KIP-320: fetches are not fenced by the leader epoch.

What was wrong (Kafka before 2.1): a Fetch request did not say under which leader epoch the follower sent it. A follower
that had not received two elections continued to fetch from a broker that had meanwhile followed another leader,
truncated its log, and was elected again. That leader took the offset of the fetch for a log like its own: it counted
the follower for its high watermark and its ISR, and the follower appended behind records that the leader does not have.

Needs: LeaderAndIsr comes late to one follower; the leader dies, returns as a follower, and is elected again.
Seen as: `replica-divergence`; `lost-write` when that follower is elected.
Replaces: the truncation strategy `kip-320` by `kip-279`, whose requests carry no leader epoch; `Partition.fence_epoch`;
`Partition.epoch_to_append`, a later rule (KAFKA-18723), by which a follower appends nothing that a later leader sent.
Source: KIP-320, KAFKA-7395; Kafka's `Partition.checkCurrentLeaderEpoch`.
"""

from __future__ import annotations

from harrow.cluster.errors import ErrorCode
from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.truncation import STRATEGIES
from harrow.cluster.storage.appending import EPOCH_MOST

TITLE = "KIP-320: fetches are not fenced by the leader epoch"


def plant(planter: Planter) -> None:
    """State no leader epoch in requests, and refuse none."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["kip-279"])
    planter.replace_method(Partition, "fence_epoch", _no_fence)
    planter.replace_method(Partition, "epoch_to_append", _any_epoch)


def _no_fence(self: Partition, epoch: int) -> ErrorCode:
    del self, epoch
    return ErrorCode.none


def _any_epoch(self: Partition) -> int:
    del self
    return EPOCH_MOST
