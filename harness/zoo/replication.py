"""Bugs of replication and elections, and what makes each of them visible."""

from __future__ import annotations

import random
from collections.abc import Mapping

from harrow.cluster.host.seam.failpoints import BEFORE_APPEND, BEFORE_ISR_WRITE
from harrow.faults.failpoint_faults import Failpoint
from harrow.faults.network_faults import Isolate
from harrow.faults.schedule import ScheduledFault
from harrow.faults.spec import Fault
from harrow.faults.targets import all_brokers, follower, leader

from ..run_settings import TOPIC, RunSettings
from ..simulation import SimulationOptions
from .bug import Bug

SESSION_MS = 1_500
LAG_MS = 400
QUICK: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": LAG_MS,
}


def step(number: int, fault: Fault, at_ms: float, lasts_ms: float) -> ScheduledFault:
    """One fault at a time of its own."""
    return ScheduledFault(
        id=str(number), fault=fault, at_ms=round(at_ms), trigger="traffic", required=False,
        duration_ms=round(lasts_ms),
    )  # fmt: skip


def leader_stops_when_a_follower_joins(
    rng: random.Random, settings: RunSettings
) -> tuple[ScheduledFault, ...]:
    """Two elections around a follower that lacks committed records.

    A follower is cut off until it is outside of the ISR. What waited for it is committed then, and the leader dies
    before another follower knows that. Its heir stops when it is about to let the slow follower into the ISR.
    """
    end_ms = settings.seconds * 1_000
    at_ms = rng.uniform(200, 800)
    armed_ms = at_ms + rng.uniform(0.4, 0.9) * LAG_MS
    leader_dies = Failpoint(target=leader(TOPIC), point=BEFORE_APPEND, action="crash")
    heir_stops = Failpoint(target=all_brokers, point=BEFORE_ISR_WRITE, action="stop")
    return (
        step(
            1,
            Isolate(target=follower(TOPIC), heals_by="reset"),
            at_ms,
            rng.uniform(1.5, 2) * LAG_MS,
        ),
        step(2, leader_dies, armed_ms, end_ms),
        step(3, heir_stops, armed_ms + 20, end_ms),
    )


BUGS: tuple[Bug, ...] = (
    Bug(
        number=1,
        name="kip_101",
        known_as="KIP-101, first case",
        seen_as=frozenset({"lost-write"}),
        options=SimulationOptions(),
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
)
