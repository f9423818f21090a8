"""KIP-101, second case: two replicas that lost their power keep different records at the same offsets.

What was wrong (Kafka before 0.11): a replica truncated its log to its own high watermark and compared nothing with its
leader. Two replicas lose their power, and start again in the reverse order. Meanwhile a replica with a shorter log
leads and gives the same offsets to other records. A replica that returns with a high watermark above that point keeps
its old records and fetches what follows them: the logs differ from there on, for good.

Needs: the power loss of a leader and of its heir, the heir back first, and records written in between.
Seen as: `replica-divergence`.
Replaces: the truncation strategy `kip-320` by `high-watermark`.
Source: KIP-101, scenario 2; Kafka's `ReplicaFetcherThread` before 0.11.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.truncation import STRATEGIES

TITLE = "KIP-101, second case: replicas that lost power keep different records at the same offsets"


def plant(planter: Planter) -> None:
    """Let the default strategy be that of Kafka 0.10."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["high-watermark"])
