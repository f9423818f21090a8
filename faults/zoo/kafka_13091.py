"""KAFKA-13091: the high watermark stays where it is when a follower has left the ISR.

What was wrong (Kafka 2.7 to 3.0): since ISRs are changed by AlterIsr, the leader learns the result later. It moved the
high watermark when it sent the request, when the follower that leaves still counts, and not when the controller had
accepted the smaller ISR. The records that only this follower lacked were committed by then, but their producers waited
for the next event on the partition, up to the timeout of their request: the other followers had fetched everything, and
so did not move the high watermark either.

Needs: a follower that stops for longer than `replica.lag.time.max.ms`, and no other traffic on the partition.
Seen as: `missed-wake-up`; a producer sees a request that times out, and sends again.
Replaces: `Partition.advance_after_isr`.
Source: KAFKA-13091; Kafka's `Partition.handleAlterIsrResponse`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition

TITLE = "KAFKA-13091: the high watermark does not move when a follower has left the ISR"


def plant(planter: Planter) -> None:
    """Leave the high watermark to the next append or fetch."""
    planter.replace_method(Partition, "advance_after_isr", _not_now)


def _not_now(self: Partition, now_ms: int) -> bool:
    del self, now_ms
    return False
