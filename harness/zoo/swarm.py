"""Runs of a search that knows nothing about the bug: application, settings and faults are all drawn from the seed.

Each run draws its workload, whether brokers lose power, the producer's settings, and then, as every simulation does,
which kinds of faults take part (swarm testing; Groce et al., ISSTA 2012). What simulations draw by default hits leaders
of the source, the controller and requests to Produce only; here the seed also draws followers, coordinators, leaders of
the output, requests of other APIs, and places in the brokers' code.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harrow.faults.failpoint_faults import Failpoint
from harrow.faults.planning import WEIGHTS
from harrow.faults.request_faults import RequestFault
from harrow.faults.schedule import Schedule
from harrow.faults.spec import Fault
from harrow.faults.targets import (
    REGISTRY,
    Target,
    follower,
    group_coordinator,
    isr_member,
    leader,
    one,
    txn_coordinator,
)

from ..run_settings import EXACTLY_ONCE, ORDERS, SINK, TOPIC
from ..simulation import SimulationOptions, plan_seed
from ..simulation.transform_job import GROUP

WORKLOADS = (ORDERS, ORDERS, EXACTLY_ONCE)
POWER_LOSS_PART = 0.3
SWARM_WEIGHTS: Mapping[str, int] = {
    **WEIGHTS,
    "lose_response": 2,
    "lose_request": 2,
    "delay_request": 2,
}
"""The mix of simulations, and faults of single requests."""
RESENDS_PART = 0.2
RESENDS_WEIGHTS: Mapping[str, int] = {
    "reset": 2, "slow_link": 2, "pause": 1, "lose_response": 2, "delay_request": 1
}  # fmt: skip
"""Of a producer that sends again: no broker restarts, because a correct broker forgets batches then, too."""
RESENDS_SECONDS = 4.0
FAILPOINT_PART = 0.08
"""How many faults are at a place in the broker's code instead."""
FAILPOINT_ACTIONS = ("crash", "crash", "delay")
FAILPOINT_DELAY_MS = (50, 400, 1_500)
NUMBERS = (1, 1, 2, 5, 20)
"""The which request, or the which visit of a place in the code, is hit."""
ROLES: Mapping[str, Sequence[Target]] = {
    ORDERS: (one, follower(TOPIC), isr_member(TOPIC)),
    EXACTLY_ONCE: (
        one, follower(TOPIC), leader(SINK), follower(SINK), group_coordinator(GROUP),
        txn_coordinator("job-1"), txn_coordinator("job-2"), txn_coordinator("job-3"),
    ),
}  # fmt: skip
"""What takes the place of a drawn broker without a role."""
APIS: Mapping[str, Sequence[str]] = {
    ORDERS: ("Produce", "Produce", "Fetch", "LeaderAndIsr"),
    EXACTLY_ONCE: (
        "Produce", "Fetch", "LeaderAndIsr", "EndTxn", "WriteTxnMarkers", "AddPartitionsToTxn",
        "AddOffsetsToTxn", "TxnOffsetCommit", "InitProducerId", "OffsetFetch", "JoinGroup",
    ),
}  # fmt: skip
"""Of which single requests are hit."""
POINTS: Mapping[str, Sequence[str]] = {
    ORDERS: (
        "log.after-append", "log.after-follower-append", "log.before-append",
        "partition.before-isr-write",
    ),
    EXACTLY_ONCE: (
        "log.after-follower-append", "partition.before-isr-write", "transaction.after-prepare",
        "transaction.before-prepare", "transaction.before-marker", "transaction.after-marker",
        "transaction.between-markers", "transaction.before-complete", "transaction.after-complete",
        "transaction.before-offsets", "transaction.after-offsets", "transaction.before-init",
    ),
}  # fmt: skip
"""Places in the broker's code."""


def drawn_options(seed: int) -> SimulationOptions:
    """What the run of one seed does, whichever bug is planted."""
    rng = random.Random(f"{seed}/swarm")  # noqa: S311 - not cryptography
    workload = rng.choice(WORKLOADS)
    power_loss = rng.random() < POWER_LOSS_PART
    if workload == ORDERS and rng.random() < RESENDS_PART:
        return SimulationOptions(
            workload=workload, resends=True, seconds=RESENDS_SECONDS, weights=RESENDS_WEIGHTS
        )
    return SimulationOptions(workload=workload, power_loss=power_loss, weights=SWARM_WEIGHTS)


def plan_swarm(seed: int, plants: tuple[str, ...] = ()) -> Schedule:
    """Draw one run."""
    options = drawn_options(seed)
    schedule = plan_seed(seed, replace(options, plants=plants))
    rng = random.Random(f"{seed}/swarm-faults")  # noqa: S311 - not cryptography
    steps = tuple(
        replace(step, fault=varied_fault(step.fault, rng, options)) for step in schedule.steps
    )
    return replace(schedule, steps=steps)


def varied_fault(fault: Fault, rng: random.Random, options: SimulationOptions) -> Fault:
    """Return the fault, or one of the same kind with a drawn role or request, or one at a place in the code."""
    if isinstance(fault, RequestFault):
        return replace(fault, api=rng.choice(APIS[options.workload]), nth=rng.choice(NUMBERS))
    if fault.target == REGISTRY:
        return fault
    if not options.resends and rng.random() < FAILPOINT_PART:
        action = rng.choice(FAILPOINT_ACTIONS)
        return Failpoint(
            target=fault.target, point=rng.choice(POINTS[options.workload]), action=action,
            nth=rng.choice(NUMBERS), delay_ms=rng.choice(FAILPOINT_DELAY_MS) if action == "delay" else 0,
        )  # fmt: skip
    if fault.target == one:
        return replace(fault, target=rng.choice(ROLES[options.workload]))
    return fault
