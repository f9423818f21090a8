"""KIP-279: a follower takes the end offset of an epoch that it does not know.

What was wrong (Kafka 0.11 to 1.1): a new follower asked the leader where the follower's last epoch ends, and truncated
to the offset of the answer. After two fast elections the leader may not know that epoch. Then the offset is the end of
an earlier epoch in the leader's log, and this epoch may end earlier in the follower's log. What lies between the two
ends stays: leader and follower have different records at the same offsets.

Needs: a follower that lacks the leader's last batch is elected, appends, and dies before another follower truncates.
Seen as: `replica-divergence`.
Replaces: the truncation strategy `kip-320` by `kip-101`.
Source: KIP-279, KAFKA-6361; Kafka's `ReplicaFetcherThread` before 2.0.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.truncation import STRATEGIES

TITLE = "KIP-279: a follower truncates to the end offset of an epoch that it does not know"


def plant(planter: Planter) -> None:
    """Let the default strategy be that of Kafka 0.11."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["kip-101"])
