"""KAFKA-14334: a consumer's fetch that waits at a follower is not woken when records arrive there.

What was wrong (Kafka 2.4 to 3.3): since KIP-392 consumers may fetch from followers. Their fetches wait in the purgatory
of that broker, as they do at a leader. Appends and a moved high watermark completed only the fetches at leaders.
At a follower a fetch waited until its deadline (`fetch.max.wait.ms`), however many records had come meanwhile.

Needs: a consumer at the end of a partition that reads from a follower, and appends.
Seen as: `missed-wake-up`; a consumer sees records later, by up to `fetch.max.wait.ms`.
Replaces: `WakeUps.follower_high_watermark_moved`.
Source: KAFKA-14334; Kafka's `ReplicaManager.completeDelayedFetchRequests`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.wake_ups import WakeUps

TITLE = "KAFKA-14334: fetches that wait at a follower are not woken"


def plant(planter: Planter) -> None:
    """Wake no fetch when the high watermark of a follower has moved."""
    planter.replace_method(WakeUps, "follower_high_watermark_moved", _wakes_no_fetch)


def _wakes_no_fetch(self: WakeUps, partition: Partition) -> None:
    del self, partition
