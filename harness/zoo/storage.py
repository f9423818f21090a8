"""Bugs of logs, disks and reads, and what makes each of them visible."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harrow.faults.disk_faults import DiskError, PowerLoss, SlowDisk, Wipe
from harrow.faults.network_faults import Isolate, Reset, SlowLink
from harrow.faults.process_faults import Kill, Pause
from harrow.faults.restart_faults import CrashDuringRecovery
from harrow.faults.schedule import ScheduledFault
from harrow.faults.schedule import timed_step as step
from harrow.faults.targets import all_brokers, follower, leader

from ..run_settings import EXACTLY_ONCE, SAME_BROKER, SINK, TOPIC, RunSettings
from ..simulation import SimulationOptions
from .bug import Bug

SESSION_MS = 600
"""The registry's session timeout of these runs: short, so that elections follow soon."""
ONE_BATCH_A_FETCH = {"replica.fetch.max.bytes": 1, "replica.fetch.response.max.bytes": 1}
"""An empty follower needs long, as it does for a log of real size."""
TIMES = {"zookeeper.session.timeout.ms": SESSION_MS, "replica.lag.time.max.ms": 400}


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
    )


def fsync_of_last_member_fails(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """The followers leave the ISR, then one fsync of the leader's log fails; the followers stay away meanwhile."""
    partition = rng.randrange(settings.partitions)
    begin_ms = rng.uniform(300, 900)
    error_ms = begin_ms + rng.uniform(1.5, 2.2) * SESSION_MS
    back_ms = error_ms - begin_ms + 6 * SESSION_MS
    error = DiskError(
        target=leader(TOPIC, partition),
        operation="sync",
        path=f"*/{TOPIC}-{partition}/*.log",
        nth=rng.randint(1, 6),
        count=1,
    )
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
    )
    return (
        step(1, begin_ms, error, 2 * SESSION_MS),
        step(2, begin_ms + rng.uniform(100, 1_500), Reset(target=leader(TOPIC, partition)), 0),
    )


def leader_is_cut_off_from_brokers(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """A leader takes records that no follower gets, and follows another leader later; clients reach it all the time."""
    begin_ms = rng.uniform(300, 1_500)
    cut = Isolate(target=leader(TOPIC, rng.randrange(settings.partitions)), clients=False)
    return (step(1, begin_ms, cut, rng.uniform(1.2, 3.0) * SESSION_MS),)


def all_lose_power_with_slow_disks(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """Records wait for fsyncs on all brokers and stay above the high watermark for long; then all lose their power."""
    del settings
    steps: list[ScheduledFault] = []
    cut_ms = rng.uniform(300, 900)
    for _ in range(4):
        slow = SlowDisk(target=all_brokers, delay_ms=float(rng.randint(60, 150)))
        lasts_ms = rng.uniform(0.2, 0.6) * SESSION_MS
        steps.append(step(len(steps) + 1, cut_ms - 250, slow, 250))
        steps.append(step(len(steps) + 1, cut_ms, PowerLoss(target=all_brokers), lasts_ms))
        cut_ms += 1_300 + rng.uniform(0, 300)
    return steps


def follower_loses_its_disk_on_its_way_back(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """A follower that has left the ISR comes back, and loses its disk before the leader's late ISR write lands.

    Then it fetches slowly, and the leader is killed.
    """
    del settings
    begin_ms, away_ms = rng.uniform(500, 1_000), rng.uniform(700, 1_000)
    late_ms = rng.uniform(200, 450)
    back_ms = begin_ms + away_ms
    wipe_ms = back_ms + rng.uniform(20, 0.8 * late_ms)  # a member of the ISR that is wiped loses records
    kill_ms = back_ms + late_ms + rng.uniform(150, 450)
    late = SlowLink(target=leader(TOPIC, 0), peers="any")
    slow = SlowLink(target=follower(TOPIC, 0))
    return (
        step(1, begin_ms, Pause(target=follower(TOPIC, 0)), away_ms),
        step(2, back_ms - 100, late, late_ms + 60, peer="registry", delay_ms=round(late_ms)),
        step(3, wipe_ms, Wipe(target=follower(TOPIC, 0)), 0),
        step(4, wipe_ms + 60, slow, 3_000, delay_ms=80),
        step(5, kill_ms, Kill(target=leader(TOPIC, 0)), 3 * SESSION_MS),
    )


def follower_dies_while_it_loads_its_logs(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """A follower shuts down cleanly, and is killed while it starts; later the leader dies for long."""
    end_ms = 1_000 * settings.seconds
    crash = CrashDuringRecovery(target=follower(TOPIC, 0), clean=True)
    begin_ms, lasts_ms = rng.uniform(500, 1_500), rng.uniform(0.5, 1.5) * SESSION_MS
    leader_dies_ms = begin_ms + lasts_ms + rng.uniform(3, 5) * SESSION_MS
    return (step(1, begin_ms, crash, lasts_ms), step(2, leader_dies_ms, Kill(target=leader(TOPIC, 0)), end_ms))


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
    Bug(
        number=12,
        name="kafka_14704",
        known_as="KAFKA-14704",
        seen_as=frozenset({"lost-write", "inconsistent-offsets"}),
        options=SimulationOptions(brokers=3, seconds=4.0, producers=2, reads_from=SAME_BROKER, config=TIMES),
        steps=leader_is_cut_off_from_brokers,
    ),
    Bug(
        number=13,
        name="kafka_9835",
        known_as="KAFKA-9835",
        seen_as=frozenset({"lost-write", "inconsistent-offsets"}),
        options=SimulationOptions(brokers=3, seconds=6.0, batches=150, producers=5, power_loss=True, config=TIMES),
        steps=all_lose_power_with_slow_disks,
    ),
    Bug(
        number=9,
        name="kip_903",
        known_as="KIP-903",
        seen_as=frozenset({"lost-write", "inconsistent-offsets"}),
        # two replicas: there is one follower, and it alone can be elected
        options=SimulationOptions(
            brokers=2,
            seconds=4.0,
            partitions=1,
            topic_config={"min.insync.replicas": "1"},
            config={**TIMES, **ONE_BATCH_A_FETCH, "zookeeper.session.timeout.ms": 1_500},
        ),
        steps=follower_loses_its_disk_on_its_way_back,
    ),
    Bug(
        number=14,
        name="kafka_10471",
        known_as="KAFKA-10471",
        seen_as=frozenset({"lost-write"}),
        # two replicas: the follower alone can be elected
        options=SimulationOptions(
            brokers=2,
            seconds=7.0,
            partitions=1,
            topic_config={"min.insync.replicas": "1"},
            config={**TIMES, "log.segment.bytes": 1 << 20, "log.retention.check.interval.ms": 300},
        ),
        steps=follower_dies_while_it_loads_its_logs,
    ),
)
