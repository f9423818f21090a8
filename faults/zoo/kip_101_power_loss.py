"""KIP-101, second case: two replicas that lost their power keep different records at the same offsets.

What was wrong: a replica truncated its log to its own high watermark and compared nothing with its leader. Two replicas
lose their power, and start again in the reverse order. Meanwhile a replica with a shorter log leads and gives the same
offsets to other records. A replica that returns with a high watermark above that point keeps its old records and
fetches what follows them: the logs differ from there on, for good.

Replaces: the truncation strategy `kip-320` by `high-watermark`.
Source: KIP-101, scenario 2; Kafka's `ReplicaFetcherThread` before 0.11.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from .. import power_loss
from .bug import Bug, InOrder
from .kip_101 import OPTIONS, leader_and_heir_end, leader_and_heir_end_in_order, plant
from .shared import POWER_LOSSES, QUICK

TITLE = "KIP-101, second case: replicas that lost power keep different records at the same offsets"
__all__ = ["BUG", "TITLE", "plant"]

BUG = Bug(
    number=2,
    module=__name__,
    title=TITLE,
    versions="before 0.11",
    needs="the power loss of a leader and of its heir, the heir back first, and records written in between",
    seen_as=frozenset({"replica-divergence"}),
    options=replace(OPTIONS, power_loss=True, config={**QUICK, "replica.high.watermark.checkpoint.interval.ms": 100}),
    steps=partial(leader_and_heir_end, end=power_loss),
    in_order=InOrder(options=POWER_LOSSES, steps=partial(leader_and_heir_end_in_order, end=power_loss)),
)
