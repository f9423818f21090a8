"""KIP-320: fetches are not fenced by the leader epoch.

What was wrong: a Fetch request did not say under which leader epoch the follower sent it. A follower that did not know
of two elections continued to fetch from a broker that had meanwhile followed another leader, truncated its log, and was
elected again. That leader took the offset of the fetch for a log like its own: it counted the follower for its high
watermark and its ISR, and the follower appended behind records that the leader does not have.

Seen as: `replica-divergence`; `lost-write` when that follower is elected. The search by events finds it in
simulation, and did not in two runs on real processes.
Replaces: the truncation strategy `kip-320` by `kip-279`, whose requests carry no leader epoch; `Partition.fence_epoch`;
`Partition.epoch_to_append`, a later rule (KAFKA-18723), by which a follower appends nothing that a later leader sent.
Source: KIP-320, KAFKA-7395; Kafka's `Partition.checkCurrentLeaderEpoch`.
"""

from __future__ import annotations

import random

from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam.failpoints import AFTER_APPEND
from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.truncation_strategies import STRATEGIES
from harrow.cluster.storage.appending import EPOCH_MOST

from .. import (
    began,
    failpoint,
    follower,
    healed,
    isolate,
    isr_count,
    kill,
    leader,
    new_leader,
    next_leader,
    took_effect,
)
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from .bug import SAME_BATCHES, Bug, InOrder
from .shared import LAG_MS, QUICK, RUN, SESSION_MS, SETTLED_MS, first_ms, late_request

TITLE = "KIP-320: fetches are not fenced by the leader epoch"
OPTIONS = SimulationOptions(brokers=3, partitions=1, seconds=7.0, batches=140, config=QUICK)


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


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """One follower lacks the leader's last batches, the other does not know of elections.

    The leader dies and follows its heir, then the heir dies and the old leader leads again.
    """
    end_ms = OPTIONS.seconds * 1_000
    at_ms = rng.uniform(200, 800)
    late_ms = rng.uniform(4, 6) * SESSION_MS
    heir_ms = at_ms + rng.uniform(2, 2.6) * SESSION_MS
    return (
        timed_step(1, at_ms, isolate(follower(TOPIC), heals_by="reset"), rng.uniform(0.7, 0.9) * LAG_MS),
        timed_step(2, at_ms + 30, late_request("LeaderAndIsr", follower(TOPIC), late_ms), end_ms),
        timed_step(3, at_ms + rng.uniform(0.3, 0.6) * LAG_MS, kill(leader(TOPIC)), rng.uniform(1.1, 1.4) * SESSION_MS),
        timed_step(4, heir_ms, kill(leader(TOPIC)), end_ms),
    )


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The same by events; the run ends when the old leader has appended again."""
    behind = isolate(next_leader(TOPIC), heals_by="reset")
    unaware = late_request("LeaderAndIsr", follower(TOPIC))
    appends = failpoint(AFTER_APPEND, leader(TOPIC), "delay", delay_ms=0)
    end = (took_effect("5"),)
    return (
        step_after(1, behind, wait_ms=first_ms(rng), until=(took_effect("3"),)),
        step_after(2, unaware, took_effect("1"), until=end),
        step_after(3, kill(leader(TOPIC)), began("2"), wait_ms=SETTLED_MS, until=(new_leader(TOPIC, 0, "3"),)),
        step_after(4, kill(leader(TOPIC)), healed("3"), isr_count(TOPIC, 0, 3), until=end),
        step_after(5, appends, new_leader(TOPIC, 0, "4"), until=end),
    )


BUG = Bug(
    number=4,
    module=__name__,
    title=TITLE,
    versions="before 2.1",
    needs="LeaderAndIsr comes late to one follower; the leader dies, returns as a follower, and is elected again",
    seen_as=frozenset({"lost-write", "replica-divergence"}),
    options=OPTIONS,
    steps=steps_by_time,
    in_order=InOrder(options=RUN, steps=steps_by_event, on_processes=SAME_BATCHES),
)
