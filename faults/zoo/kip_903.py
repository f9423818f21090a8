"""KIP-903: a replica that came back empty is taken into the ISR by what it had fetched before.

What was wrong: a follower reaches the leader's log end, and the leader asks for an ISR with it. Before that request
arrives, the follower dies, loses its disk and registers again. The request said nothing about registrations, so the
empty replica became a member of the ISR. When the leader dies, it may be elected. Since KIP-903 the request states
under which broker epochs the members fetched, and is refused when one of them has another.

Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: `RegistryIsrStore.checks`.
Source: KIP-903; Kafka's `ReplicationControlManager.validateAlterPartitionData`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from harrow.cluster.controller.registry_isr_store import RegistryIsrStore
from harrow.cluster.host.seam.failpoints import BEFORE_ISR_WRITE
from harrow.cluster.ids import BrokerEpoch, NodeId
from harrow.cluster.planting import Planter
from harrow.cluster.registry import Check

from .. import (
    began,
    expire_session,
    failpoint,
    follower,
    healed,
    isr_count,
    kill,
    leader,
    new_leader,
    pause,
    slow_link,
    took_effect,
    wipe,
)
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from .bug import Bug, InOrder
from .shared import (
    AVAILABLE,
    LAG,
    LAG_MS,
    ONE_BATCH_A_FETCH,
    ONE_PARTITION,
    QUICK,
    RUN,
    SESSION,
    SHORT_SESSION_MS,
    first_ms,
)

TITLE = "KIP-903: an ISR is written whichever registration its members fetched under"
HOLD_MS = 4_000
"""How long a broker is held at most: shorter than its session."""
OPTIONS = SimulationOptions(
    brokers=2,  # there is one follower, and it alone can be elected
    seconds=4.0,
    partitions=1,
    topic_config=AVAILABLE,
    config={**QUICK, **ONE_BATCH_A_FETCH},
)


def plant(planter: Planter) -> None:
    """Write an ISR under the condition of its version alone."""
    planter.replace_method(RegistryIsrStore, "checks", no_checks)


def no_checks(self: RegistryIsrStore, registrations: Mapping[NodeId, BrokerEpoch]) -> list[Check]:
    """No registration counts; the bug before KIP-841 needs that, too."""
    del self, registrations
    return []


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A follower that has left the ISR comes back, and loses its disk before the leader's late ISR write lands.

    Then it fetches slowly, and the leader is killed.
    """
    begin_ms, away_ms = rng.uniform(500, 1_000), rng.uniform(700, 1_000)
    late_ms = rng.uniform(200, 450)
    back_ms = begin_ms + away_ms
    wipe_ms = back_ms + rng.uniform(20, 0.8 * late_ms)  # a member of the ISR that is wiped loses records
    kill_ms = back_ms + late_ms + rng.uniform(150, 450)
    late = slow_link(leader(TOPIC, 0), peers="any")
    slow = slow_link(follower(TOPIC, 0))
    return (
        timed_step(1, begin_ms, pause(follower(TOPIC, 0)), away_ms),
        timed_step(2, back_ms - 100, late, late_ms + 60, peer="registry", delay_ms=round(late_ms)),
        timed_step(3, wipe_ms, wipe(follower(TOPIC, 0)), 0),
        timed_step(4, wipe_ms + 60, slow, 3_000, delay_ms=80),
        timed_step(5, kill_ms, kill(leader(TOPIC, 0)), 3 * SHORT_SESSION_MS),
    )


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A follower loses session and disk when the leader is about to write it into the ISR; then the leader dies.

    The leader is held before its write until the follower is back, empty.
    """
    joins = failpoint(BEFORE_ISR_WRITE, leader(TOPIC), "stop")
    back = (healed("3"), healed("4"))
    joined = (*back, healed("2"), isr_count(TOPIC, 0, 2))
    return (
        step_after(1, pause(follower(TOPIC)), wait_ms=first_ms(rng) + 500, until=(began("2"),)),
        step_after(2, joins, isr_count(TOPIC, 0, 1), until=back, duration_ms=HOLD_MS),
        step_after(3, wipe(follower(TOPIC)), healed("1"), took_effect("2"), duration_ms=0),
        step_after(4, expire_session(follower(TOPIC)), took_effect("3"), duration_ms=0, overlaps=True),
        step_after(5, kill(leader(TOPIC)), *joined, until=(new_leader(TOPIC, 0, "5"),)),
    )


BUG = Bug(
    number=9,
    module=__name__,
    title=TITLE,
    versions="before 3.5; with ZooKeeper all",
    needs=(
        "a follower that returns to the ISR and loses its disk meanwhile; a leader whose writes arrive late, and that "
        "then dies"
    ),
    seen_as=frozenset({"inconsistent-offsets", "lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
    in_order=InOrder(
        options=replace(
            RUN,
            replication_factor=2,  # the follower alone can be elected
            config={
                **ONE_PARTITION,
                **ONE_BATCH_A_FETCH,
                SESSION: 6_000,
                LAG: LAG_MS,
                "replica.fetch.wait.max.ms": 100,
            },
        ),
        steps=steps_by_event,
    ),
)
