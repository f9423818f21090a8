"""Bugs of logs, disks and reads, and what makes each of them visible."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harrow.faults.disk_faults import DiskError, PowerLoss
from harrow.faults.network_faults import Reset
from harrow.faults.process_faults import Kill
from harrow.faults.schedule import ScheduledFault
from harrow.faults.spec import Fault
from harrow.faults.targets import follower, leader

from ..run_settings import EXACTLY_ONCE, SINK, TOPIC, RunSettings
from ..simulation import SimulationOptions
from .bug import Bug

SESSION_MS = 600
"""The registry's session timeout of these runs: short, so that elections follow soon."""
TIMES = {"zookeeper.session.timeout.ms": SESSION_MS, "replica.lag.time.max.ms": 400}


def step(number: int, at_ms: float, fault: Fault, lasts_ms: float) -> ScheduledFault:
    """One fault of a directed run, `at_ms` after the first traffic."""
    return ScheduledFault(
        id=str(number), fault=fault, at_ms=round(at_ms), trigger="traffic", required=False,
        duration_ms=round(lasts_ms),
    )  # fmt: skip


def last_member_loses_power(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """The followers leave the ISR, the leader loses its power and is back before they are."""
    partition = rng.randrange(settings.partitions)
    begin_ms = rng.uniform(300, 900)
    cut_ms = begin_ms + rng.uniform(1.5, 2.2) * SESSION_MS
    back_ms = cut_ms - begin_ms + 4 * SESSION_MS
    return (
        step(1, begin_ms, Kill(target=follower(TOPIC, partition)), back_ms),
        step(2, begin_ms + 1, Kill(target=follower(TOPIC, partition)), back_ms),
        step(3, cut_ms, PowerLoss(target=leader(TOPIC, partition)), rng.uniform(0.2, 1.2) * SESSION_MS),
    )  # fmt: skip


def fsync_of_last_member_fails(
    rng: random.Random, settings: RunSettings
) -> Sequence[ScheduledFault]:
    """The followers leave the ISR, then one fsync of the leader's log fails; the followers stay away meanwhile."""
    partition = rng.randrange(settings.partitions)
    begin_ms = rng.uniform(300, 900)
    error_ms = begin_ms + rng.uniform(1.5, 2.2) * SESSION_MS
    back_ms = error_ms - begin_ms + 6 * SESSION_MS
    error = DiskError(
        target=leader(TOPIC, partition), operation="sync", path=f"*/{TOPIC}-{partition}/*.log",
        nth=rng.randint(1, 6), count=1,
    )  # fmt: skip
    return (
        step(1, begin_ms, Kill(target=follower(TOPIC, partition)), back_ms),
        step(2, begin_ms + 1, Kill(target=follower(TOPIC, partition)), back_ms),
        step(3, error_ms, error, 2 * SESSION_MS),
    )


def transaction_index_fails(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """The leader of the output cannot write a transaction index once; faults of clients make transactions abort."""
    partition = rng.randrange(settings.partitions)
    begin_ms = rng.uniform(300, 1_000)
    error = DiskError(
        target=leader(SINK, partition), operation="write", path=f"*/{SINK}-{partition}/*.txnindex", count=1
    )  # fmt: skip
    return (
        step(1, begin_ms, error, 2 * SESSION_MS),
        step(2, begin_ms + rng.uniform(100, 1_500), Reset(target=leader(TOPIC, partition)), 0),
    )


BUGS: tuple[Bug, ...] = (
    Bug(
        number=8,
        name="kip_966",
        known_as="KIP-966",
        seen_as=frozenset({"lost-write", "inconsistent-offsets"}),
        options=SimulationOptions(brokers=3, seconds=4.0, power_loss=True, config=TIMES),
        steps=last_member_loses_power,
    ),
    Bug(
        number=15,
        name="kafka_10778",
        known_as="KAFKA-10778",
        seen_as=frozenset({"lost-write", "inconsistent-offsets"}),
        options=SimulationOptions(
            brokers=3,
            seconds=6.0,
            batches=300,
            power_loss=True,
            config=TIMES,
            topic_config={"min.insync.replicas": "1"},
        ),
        steps=fsync_of_last_member_fails,
    ),
    Bug(
        number=16,
        name="kafka_7866",
        known_as="KAFKA-7866",
        seen_as=frozenset(
            {
                "inconsistent-offsets",
                "replica-divergence",
                "aborted-read",
                "missing-output",
                "duplicate-output",
                "lost-write",
                "unseen",
            }
        ),
        options=SimulationOptions(brokers=3, seconds=5.0, workload=EXACTLY_ONCE, config=TIMES),
        steps=transaction_index_fails,
    ),
)
