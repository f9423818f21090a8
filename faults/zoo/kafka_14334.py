"""KAFKA-14334: a consumer's fetch that waits at a follower is not woken when records arrive there.

What was wrong: since KIP-392 consumers may fetch from followers. Their fetches wait in the purgatory of that broker, as
they do at a leader. Appends and a moved high watermark completed only the fetches at leaders. At a follower a fetch
waited until its deadline (`fetch.max.wait.ms`), however many records had come meanwhile.

Seen as: `missed-wake-up`; a consumer sees records later, by up to `fetch.max.wait.ms`.
Replaces: `WakeUps.follower_high_watermark_moved`.
Source: KAFKA-14334; Kafka's `ReplicaManager.completeDelayedFetchRequests`.
"""

from __future__ import annotations

import random

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.wake_ups import WakeUps

from .. import isolate, leader
from ..runs import SAME_BROKER, TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import QUICK, SESSION_MS

TITLE = "KAFKA-14334: fetches that wait at a follower are not woken"
OPTIONS = SimulationOptions(brokers=3, partitions=1, seconds=5.0, batches=100, reads_from=SAME_BROKER, config=QUICK)


def plant(planter: Planter) -> None:
    """Wake no fetch when the high watermark of a follower has moved."""
    planter.replace_method(WakeUps, "follower_high_watermark_moved", _wakes_no_fetch)


def _wakes_no_fetch(self: WakeUps, partition: Partition) -> None:
    del self, partition


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The leader is cut off from the brokers and leads no more; a reader stays with it."""
    at_ms = rng.uniform(200, 1_000)
    cut = isolate(leader(TOPIC), heals_by="reset")
    return (timed_step(1, at_ms, cut, rng.uniform(1.2, 1.6) * SESSION_MS),)


BUG = Bug(
    number=29,
    module=__name__,
    title=TITLE,
    versions="2.4 to 3.3",
    needs="a consumer at the end of a partition that reads from a follower, and appends",
    seen_as=frozenset({"missed-wake-up"}),
    options=OPTIONS,
    steps=steps_by_time,
)
