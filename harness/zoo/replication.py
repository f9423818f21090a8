"""Bugs of replication and elections, and what makes each of them visible."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from harrow.cluster.host.seam.failpoints import AFTER_APPEND, BEFORE_APPEND, BEFORE_ISR_WRITE
from harrow.faults.disk_faults import PowerLoss
from harrow.faults.failpoint_faults import Failpoint
from harrow.faults.network_faults import Isolate, SlowLink
from harrow.faults.process_faults import Kill, Pause, Restart
from harrow.faults.request_faults import DelayRequest
from harrow.faults.schedule import ScheduledFault
from harrow.faults.schedule import timed_step as step
from harrow.faults.targets import Target, all_brokers, controller, follower, leader

from ..run_settings import SAME_BROKER, TOPIC, RunSettings
from ..simulation import SimulationOptions
from .bug import Bug

SESSION, LAG = "zookeeper.session.timeout.ms", "replica.lag.time.max.ms"
QUICK: Mapping[str, object] = {SESSION: 1_500, LAG: 400}
"""A follower leaves the ISR long before a dead leader is replaced."""
IMBALANCE_CHECK = "leader.imbalance.check.interval.seconds"


def leader_stops_when_a_follower_joins(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """Two elections around a follower that lacks committed records.

    A follower is cut off until it is outside of the ISR. What waited for it is committed then, and the leader dies
    before another follower knows that. Its heir stops when it is about to let the slow follower into the ISR.
    """
    lag_ms = settings.lag_ms
    end_ms = settings.seconds * 1_000
    at_ms = rng.uniform(200, 800)
    armed_ms = at_ms + rng.uniform(0.4, 0.9) * lag_ms
    leader_dies = Failpoint(target=leader(TOPIC), point=BEFORE_APPEND, action="crash")
    heir_stops = Failpoint(target=all_brokers, point=BEFORE_ISR_WRITE, action="stop")
    return (
        step(1, at_ms, Isolate(target=follower(TOPIC), heals_by="reset"), rng.uniform(1.5, 2) * lag_ms),
        step(2, armed_ms, leader_dies, end_ms),
        step(3, armed_ms + 20, heir_stops, end_ms),
    )


def leader_cut_off_from_brokers(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """The leader reaches neither followers nor registry, only clients, until another broker is elected."""
    session_ms = settings.session_ms
    at_ms = rng.uniform(0.1, 0.3) * settings.seconds * 1_000
    lasts_ms = rng.uniform(1.1, 1.5) * session_ms
    return (step(1, at_ms, Isolate(target=leader(TOPIC)), lasts_ms),)


def heir_dies_after_its_first_append(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """Two elections between which the second heir truncates nothing.

    One follower does not get the leader's last batches. The leader dies; its heir appends, and dies before another
    follower knows where to truncate. That one leads, and the heir comes back.
    """
    session_ms, lag_ms = settings.session_ms, settings.lag_ms
    end_ms = settings.seconds * 1_000
    at_ms = rng.uniform(200, 800)
    behind = Isolate(target=follower(TOPIC), heals_by="reset")
    dies_ms = at_ms + rng.uniform(0.2, 0.5) * lag_ms
    late_query = late_request("OffsetForLeaderEpoch", all_brokers, rng.uniform(1, 2) * lag_ms)
    heir_dies = Failpoint(target=all_brokers, point=AFTER_APPEND, action="crash")
    return (
        step(1, at_ms, behind, rng.uniform(0.7, 0.9) * lag_ms),
        step(2, dies_ms, Kill(target=leader(TOPIC)), end_ms),
        step(3, at_ms + lag_ms, late_query, end_ms),
        step(4, at_ms + lag_ms, heir_dies, rng.uniform(0.1, 1.2) * session_ms),
    )


def leader_and_heir_end(
    rng: random.Random, settings: RunSettings, *, end: type[Kill | PowerLoss]
) -> tuple[ScheduledFault, ...]:
    """The leader ends, then its heir, before another follower has fetched from the heir. The heir is back first."""
    session_ms, lag_ms = settings.session_ms, settings.lag_ms
    at_ms = rng.uniform(0.1, 0.3) * settings.seconds * 1_000
    late_fetch = late_request("Fetch", all_brokers, rng.uniform(0.5, 0.9) * lag_ms)
    heir_ms = at_ms + 0.5 * session_ms  # as soon as it leads
    heir_lasts_ms = rng.uniform(1.1, 1.6) * session_ms
    lasts_ms = rng.uniform(3, 4) * session_ms
    return (
        step(1, at_ms, end(target=leader(TOPIC)), lasts_ms),
        step(2, at_ms + 20, late_fetch, 0),
        step(3, heir_ms, end(target=leader(TOPIC)), heir_lasts_ms),
    )


def follower_that_misses_two_elections(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """One follower lacks the leader's last batches, the other does not know of elections.

    The leader dies and follows its heir, then the heir dies and the old leader leads again.
    """
    session_ms, lag_ms = settings.session_ms, settings.lag_ms
    end_ms = settings.seconds * 1_000
    at_ms = rng.uniform(200, 800)
    late_ms = rng.uniform(4, 6) * session_ms
    heir_ms = at_ms + rng.uniform(2, 2.6) * session_ms
    return (
        step(1, at_ms, Isolate(target=follower(TOPIC), heals_by="reset"), rng.uniform(0.7, 0.9) * lag_ms),
        step(2, at_ms + 30, late_request("LeaderAndIsr", follower(TOPIC), late_ms), end_ms),
        step(3, at_ms + rng.uniform(0.3, 0.6) * lag_ms, Kill(target=leader(TOPIC)), rng.uniform(1.1, 1.4) * session_ms),
        step(4, heir_ms, Kill(target=leader(TOPIC)), end_ms),
    )


def controller_cut_off_at_its_check(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """A preferred leader restarts; then the controller is cut off when it is about to give leadership back to it.

    The controller is back when another is elected, and before that one has checked for imbalances.
    """
    session_ms = settings.session_ms
    check_ms = 1_000 * settings.number(IMBALANCE_CHECK)
    restart_ms = check_ms * rng.uniform(1.1, 1.4)
    cut_ms = check_ms * rng.uniform(1.5, 1.9)
    return (
        step(1, restart_ms, Restart(target=leader(TOPIC), kill=True), 0),
        step(2, cut_ms, Isolate(target=controller()), session_ms * rng.uniform(1.2, 2)),
    )


def preferred_leader_dies_before_it_appends(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """An heir's followers fetch nothing from it until the preferred leader leads again, which then dies.

    The preferred leader restarts shortly before a check for imbalances. It is back in the ISR, cut off until the check
    is over, leads, and dies before the heir has fetched from it.
    """
    end_ms = settings.seconds * 1_000
    session_ms, lag_ms = settings.session_ms, settings.lag_ms
    check_ms = 2_000 * settings.number(IMBALANCE_CHECK)
    restart_ms = check_ms - rng.uniform(250, 600)
    back_ms = check_ms + rng.uniform(0.05, 0.3) * lag_ms
    cut_ms = restart_ms + rng.uniform(40, 70)
    late_ms = rng.uniform(0.6, 0.9) * lag_ms
    return (
        step(1, restart_ms, SlowLink(target=follower(TOPIC), delay_ms=late_ms), back_ms - restart_ms),
        step(2, restart_ms, Restart(target=leader(TOPIC), kill=True), 0),
        step(3, cut_ms - 10, late_request("Fetch", all_brokers, late_ms), end_ms),
        step(4, cut_ms, Isolate(target=follower(TOPIC), heals_by="reset"), back_ms - cut_ms),
        step(5, back_ms + rng.uniform(100, 500), Kill(target=leader(TOPIC)), 2 * session_ms),
    )


def follower_paused_past_its_session(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """A follower is removed from the ISR for its lag, loses its session, and fetches before it registers again."""
    session_ms = settings.session_ms
    at_ms = rng.uniform(0.05, 0.3) * settings.seconds * 1_000
    lasts_ms = rng.uniform(1.2, 1.6) * session_ms
    return (step(1, at_ms, Pause(target=follower(TOPIC)), lasts_ms),)


def late_request(api: str, target: Target, delay_ms: float) -> DelayRequest:
    """The next such request that a broker of `target` gets from another broker is served late."""
    return DelayRequest(target=target, api=api, client="broker *", delay_ms=round(delay_ms))


def follower_leaves_the_isr(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """A follower is paused for so long that its leader removes it from the ISR, and not past its session."""
    at_ms = rng.uniform(200, 1_000)
    lasts_ms = rng.uniform(0.6, 0.8) * settings.session_ms
    return (step(1, at_ms, Pause(target=follower(TOPIC)), lasts_ms),)


def leader_changes(rng: random.Random, settings: RunSettings) -> tuple[ScheduledFault, ...]:
    """The leader is cut off from the brokers and leads no more; a reader stays with it."""
    at_ms = rng.uniform(200, 1_000)
    cut = Isolate(target=leader(TOPIC), heals_by="reset")
    return (step(1, at_ms, cut, rng.uniform(1.2, 1.6) * settings.session_ms),)


BUGS: tuple[Bug, ...] = (
    Bug(
        number=1,
        name="kip_101",
        known_as="KIP-101, first case",
        seen_as=frozenset({"lost-write", "inconsistent-offsets"}),
        options=SimulationOptions(brokers=3, partitions=1, seconds=8.0, batches=120, config=QUICK),
        steps=partial(leader_and_heir_end, end=Kill),
    ),
    Bug(
        number=2,
        name="kip_101_power_loss",
        known_as="KIP-101, second case",
        seen_as=frozenset({"replica-divergence"}),
        options=SimulationOptions(
            brokers=3,
            partitions=1,
            seconds=8.0,
            batches=120,
            power_loss=True,
            config={**QUICK, "replica.high.watermark.checkpoint.interval.ms": 100},
        ),
        steps=partial(leader_and_heir_end, end=PowerLoss),
    ),
    Bug(
        number=3,
        name="kip_279",
        known_as="KIP-279",
        seen_as=frozenset({"replica-divergence"}),
        options=SimulationOptions(brokers=3, partitions=1, seconds=5.0, batches=100, config=QUICK),
        steps=heir_dies_after_its_first_append,
    ),
    Bug(
        number=4,
        name="kip_320",
        known_as="KIP-320",
        seen_as=frozenset({"lost-write", "replica-divergence"}),
        options=SimulationOptions(brokers=3, partitions=1, seconds=7.0, batches=140, config=QUICK),
        steps=follower_that_misses_two_elections,
    ),
    Bug(
        number=5,
        name="kafka_7128",
        known_as="KAFKA-7128",
        seen_as=frozenset({"lost-write"}),
        options=SimulationOptions(
            brokers=4,
            partitions=1,
            replication_factor=4,
            seconds=5.0,
            batches=100,
            in_flight=5,
            config={**QUICK, "replica.fetch.wait.max.ms": 400, "replica.fetch.max.bytes": 1},
        ),
        steps=leader_stops_when_a_follower_joins,
    ),
    Bug(
        number=6,
        name="kafka_7415",
        known_as="KAFKA-7415",
        seen_as=frozenset({"lost-write"}),
        options=SimulationOptions(
            brokers=5,
            partitions=1,
            seconds=5.0,
            batches=40,
            config={
                SESSION: 1_500,
                LAG: 1_000,
                IMBALANCE_CHECK: 1,
                "leader.imbalance.per.broker.percentage": 0,
                "replica.fetch.wait.max.ms": 400,
            },
        ),
        steps=preferred_leader_dies_before_it_appends,
    ),
    Bug(
        number=7,
        name="kip_497",
        known_as="KIP-497",
        seen_as=frozenset({"lost-write"}),
        options=SimulationOptions(brokers=3, partitions=1, seconds=4.0, batches=60, config=QUICK),
        steps=leader_cut_off_from_brokers,
    ),
    Bug(
        number=10,
        name="kip_841",
        known_as="KIP-841",
        seen_as=frozenset({"fenced-in-isr"}),
        options=SimulationOptions(brokers=3, partitions=1, seconds=5.0, batches=60, config=QUICK),
        steps=follower_paused_past_its_session,
    ),
    Bug(
        number=11,
        name="kafka_6082",
        known_as="KAFKA-6082",
        seen_as=frozenset({"not-converged"}),
        options=SimulationOptions(
            brokers=5,
            partitions=1,
            seconds=6.0,
            batches=60,
            config={SESSION: 600, LAG: 400, IMBALANCE_CHECK: 2, "leader.imbalance.per.broker.percentage": 0},
        ),
        steps=controller_cut_off_at_its_check,
    ),
    Bug(
        number=28,
        name="kafka_13091",
        known_as="KAFKA-13091",
        seen_as=frozenset({"missed-wake-up"}),
        options=SimulationOptions(brokers=3, partitions=1, seconds=4.0, batches=100, config=QUICK),
        steps=follower_leaves_the_isr,
    ),
    Bug(
        number=29,
        name="kafka_14334",
        known_as="KAFKA-14334",
        seen_as=frozenset({"missed-wake-up"}),
        options=SimulationOptions(
            brokers=3, partitions=1, seconds=5.0, batches=100, reads_from=SAME_BROKER, config=QUICK
        ),
        steps=leader_changes,
    ),
)
