"""KAFKA-7415: a new leader does not store where its epoch starts.

What was wrong: a leader stored its epoch and the start offset of it with its first append, not when it was elected. A
leader that had appended nothing could not say where a later epoch than its last one ends: it answered "unknown", and
the follower, which had led under that epoch, truncated to its own high watermark. The follower was still in the ISR.
When the leader died before the follower had fetched again, the follower was elected, and records that were committed
above its high watermark were gone.

Replaces: `Partition.store_epoch_start`; the truncation strategy `kip-320` by `kip-279`, which Kafka 2.0 had.
Source: KAFKA-7415; Kafka's `LeaderEpochFileCache.endOffsetFor`, `Partition.makeLeader`.
"""

from __future__ import annotations

import random

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.truncation_strategies import STRATEGIES

from .. import all_brokers, follower, isolate, kill, leader, restart, slow_link
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import IMBALANCE_CHECK, LAG, SESSION, SESSION_MS, late_request

TITLE = "KAFKA-7415: a new leader stores the start of its epoch with its first append only"
LAG_MS, CHECK_S = 1_000, 1
OPTIONS = SimulationOptions(
    brokers=5,
    partitions=1,
    seconds=5.0,
    batches=40,
    config={
        SESSION: SESSION_MS,
        LAG: LAG_MS,
        IMBALANCE_CHECK: CHECK_S,
        "leader.imbalance.per.broker.percentage": 0,
        "replica.fetch.wait.max.ms": 400,
    },
)


def plant(planter: Planter) -> None:
    """Leave the epoch to the first append, under the truncation of that time."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["kip-279"])
    planter.replace_method(Partition, "store_epoch_start", _nothing)


def _nothing(self: Partition) -> None:
    del self


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """An heir's followers fetch nothing from it until the preferred leader leads again, which then dies.

    The preferred leader restarts shortly before a check for imbalances. It is back in the ISR, cut off until the check
    is over, leads, and dies before the heir has fetched from it.
    """
    check_ms = 2_000 * CHECK_S
    restart_ms = check_ms - rng.uniform(250, 600)
    back_ms = check_ms + rng.uniform(0.05, 0.3) * LAG_MS
    cut_ms = restart_ms + rng.uniform(40, 70)
    late_ms = rng.uniform(0.6, 0.9) * LAG_MS
    return (
        timed_step(1, restart_ms, slow_link(follower(TOPIC), delay_ms=late_ms), back_ms - restart_ms),
        timed_step(2, restart_ms, restart(leader(TOPIC), kill=True), 0),
        timed_step(3, cut_ms - 10, late_request("Fetch", all_brokers, late_ms), OPTIONS.seconds * 1_000),
        timed_step(4, cut_ms, isolate(follower(TOPIC), heals_by="reset"), back_ms - cut_ms),
        timed_step(5, back_ms + rng.uniform(100, 500), kill(leader(TOPIC)), 2 * SESSION_MS),
    )


BUG = Bug(
    number=6,
    module=__name__,
    title=TITLE,
    versions="0.11 to 2.0",
    needs=(
        "two elections without a replicated record between them, the second by preference, so that the leader of the "
        "first stays in the ISR with a high watermark that lags; then the new leader dies"
    ),
    seen_as=frozenset({"lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
)
