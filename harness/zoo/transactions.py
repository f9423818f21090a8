"""Bugs of producers, transactions and groups, and what makes each of them visible."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from harrow.faults.network_faults import Reset
from harrow.faults.process_faults import Kill
from harrow.faults.request_faults import delay_request
from harrow.faults.schedule import ScheduledFault
from harrow.faults.schedule import timed_step as step
from harrow.faults.targets import leader, txn_coordinator

from ..run_settings import CLASSIC, EXACTLY_ONCE, SINK, RunSettings
from ..simulation import SimulationOptions
from .bug import Bug

SHORT_JOB = SimulationOptions(
    workload=EXACTLY_ONCE,
    brokers=3,
    seconds=3.0,
    partitions=2,
    batches=40,
    weights={"reset": 2, "slow_link": 2, "pause": 1},
)
"""The application of transactions, shorter than that of `harrow simulate` and with faults that move few leaders."""
NO_JOB_EVENTS = ("alter", "delete-records")
"""An operator who moves no leader."""


def late_requests(
    api: str, delay_ms: tuple[int, int], rng: random.Random, settings: RunSettings
) -> Sequence[ScheduledFault]:
    """Every 300 ms on average, one request of the job to each broker is served late."""
    count = int(settings.seconds / 0.3)
    return [
        step(number, rng.uniform(0, 900 * settings.seconds), delay_request(api, delay_ms=delay_ms, client="job-*"), 250)
        for number in range(1, count + 1)
    ]


def late_produces(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """Batches arrive later than a client of transaction version 1 waits for them."""
    return late_requests("Produce", (450, 1_200), rng, settings)


def late_ends(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """EndTxn arrives later than its sender waits for the response."""
    return late_requests("EndTxn", (650, 1_100), rng, settings)


def dying_coordinators(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """Coordinators of the job's transactions are killed, one after another."""
    session_ms = settings.session_ms
    at_ms, steps = rng.uniform(0.3, 0.8) * 1_000, list[ScheduledFault]()
    while at_ms < 900 * settings.seconds:
        coordinator = txn_coordinator(f"job-{rng.randint(1, 3)}")
        steps.append(step(len(steps) + 1, at_ms, Kill(target=coordinator), round(0.5 * session_ms)))
        at_ms += session_ms * rng.uniform(1.2, 1.8)
    return steps


def late_markers(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """Markers are served late, and connections break meanwhile, so that the coordinator sends them again."""
    at_ms, steps = rng.uniform(0.3, 0.6) * 1_000, list[ScheduledFault]()
    while at_ms < 900 * settings.seconds:
        late = delay_request("WriteTxnMarkers", delay_ms=(250, 500), client="broker *")
        broken = Reset(target=leader(SINK, rng.randrange(settings.partitions)))
        steps.append(step(len(steps) + 1, at_ms, late, 150))
        steps.append(step(len(steps) + 1, at_ms + rng.uniform(100, 200), broken, 0))
        at_ms += rng.uniform(300, 500)
    return steps


BUGS: tuple[Bug, ...] = (
    Bug(
        number=17,
        name="kafka_5494",
        known_as="KAFKA-5494",
        seen_as=frozenset({"duplicate"}),
        # a producer that lost a response sends again; a restarted broker forgets batches without the bug, too
        options=SimulationOptions(seconds=4.0, resends=True, weights={"reset": 2, "slow_link": 2, "pause": 1}),
    ),
    Bug(number=18, name="kafka_9807", known_as="KAFKA-9807", seen_as=frozenset({"aborted-read"}), options=SHORT_JOB),
    Bug(number=19, name="kafka_5376", known_as="KAFKA-5376", seen_as=frozenset({"aborted-read"}), options=SHORT_JOB),
    Bug(
        number=20,
        name="kafka_6119",
        known_as="KAFKA-6119",
        seen_as=frozenset({"missing-output"}),
        options=replace(
            SHORT_JOB,
            config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50},
            job={"transaction_timeout_ms": 300, "job_pause_ms": 1_000, "operations": NO_JOB_EVENTS},
        ),
    ),
    Bug(
        number=21,
        name="kip_890_part_1",
        known_as="KIP-890, part 1",
        seen_as=frozenset({"stuck-lso", "duplicate-output"}),
        options=replace(SHORT_JOB, job={"transaction_version": 1, "operations": NO_JOB_EVENTS}),
        steps=late_produces,
    ),
    Bug(
        number=22,
        name="kip_890_part_2",
        known_as="KIP-890, part 2",
        seen_as=frozenset({"duplicate-output", "missing-output"}),
        options=replace(SHORT_JOB, partitions=3, batches=80, job={"operations": NO_JOB_EVENTS, "aborted_part": 0.5}),
        steps=late_ends,
    ),
    Bug(
        number=23,
        name="kafka_10080",
        known_as="KAFKA-10080",
        seen_as=frozenset({"stuck-lso", "missing-output", "duplicate-output"}),
        options=replace(
            SHORT_JOB, partitions=3, batches=120, config={"zookeeper.session.timeout.ms": 600}, job={"operations": ()}
        ),
        steps=dying_coordinators,
    ),
    Bug(
        number=24,
        name="kafka_17507",
        known_as="KAFKA-17507",
        seen_as=frozenset({"committed-offset-regression", "duplicate-output", "missing-output"}),
        options=replace(SHORT_JOB, seconds=5.0, batches=60, job={"operations": NO_JOB_EVENTS, "aborted_part": 0.4}),
    ),
    Bug(
        number=25,
        name="kafka_13636",
        known_as="KAFKA-13636",
        seen_as=frozenset({"committed-offset-regression", "duplicate-output"}),
        options=replace(
            SHORT_JOB,
            batches=30,
            config={
                "offsets.retention.minutes": 1,
                "offsets.retention.check.interval.ms": 100,
                "group.initial.rebalance.delay.ms": 300,
            },
            job={"group_protocol": CLASSIC, "operations": ("alter",), "job_outage_ms": 2_000, "clock_jump_ms": 90_000},
        ),
    ),
    Bug(
        number=36,
        name="kafka_19446",
        known_as="KAFKA-19446",
        seen_as=frozenset({"missing-output", "duplicate-output", "stuck-lso"}),
        options=replace(SHORT_JOB, partitions=3, batches=80, job={"operations": (), "aborted_part": 0.4}),
        steps=late_markers,
    ),
)
