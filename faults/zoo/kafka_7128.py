"""KAFKA-7128: a follower joins the ISR when it reaches the high watermark.

What was wrong (Kafka before 2.0.1 and 2.1): the leader let a follower into the ISR as soon as the follower's log end
offset reached the leader's high watermark. The high watermark of a new leader lags behind what the old leader
acknowledged. So a follower that lacks committed records could join, be elected, and the records were gone. The rule
since then: the follower must also reach the start offset of the leader's epoch.

Needs: a slow follower, and two elections while the new leader's high watermark still lags.
Seen as: `lost-write`.
Replaces: `Partition.may_join_isr`.
Source: KAFKA-7128, KIP-497; Kafka's `Partition.isFollowerInSync`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.remote_replica import RemoteReplica

TITLE = "KAFKA-7128: a follower joins the ISR at the high watermark, below the leader epoch's start"


def plant(planter: Planter) -> None:
    """Ask for the high watermark alone."""
    planter.replace_method(Partition, "may_join_isr", _reached_high_watermark)


def _reached_high_watermark(self: Partition, remote: RemoteReplica) -> bool:
    return remote.log_end_offset >= self.high_watermark
