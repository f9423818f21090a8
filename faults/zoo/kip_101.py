"""KIP-101, first case: a follower truncates to its own high watermark at the start.

What was wrong (Kafka before 0.11): a follower that restarted, or that got a new leader, truncated its log to its
own high watermark. The high watermark of a follower is one fetch round behind, so the follower removed records
that were committed. When the leader failed before the follower had fetched them again, the follower was elected
and the records were gone.

Needs: a follower restarts (or its leader changes), then the leader dies before the follower's next fetch.
Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: the truncation strategy `kip-320` by `high-watermark`.
Source: KIP-101; Kafka's `ReplicaFetcherThread` before 0.11.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.truncation import STRATEGIES

TITLE = "KIP-101, first case: a follower truncates to its own high watermark"


def plant(planter: Planter) -> None:
    """Let the default strategy be that of Kafka 0.10."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["high-watermark"])
