"""Runs of a search that knows nothing about the bug: cluster, application, settings and faults are drawn from the seed.

Each run draws the size of its cluster and of its topic, its workload, whether brokers lose power, the settings of
brokers and clients, and then, as every simulation does, which kinds of faults take part (swarm testing; Groce et al.,
ISSTA 2012). What simulations draw by default hits leaders of the source, the controller and requests to Produce only;
here the seed also draws followers, coordinators, leaders of the output, requests of other APIs, errors of disks, and
places in the brokers' code.

The pool has only faults that a correct cluster survives, whenever they strike. What no Kafka cluster survives was
found by judging this pool on brokers without a bug, and is not in it:

wipe, damage_disk        with a second fault they take committed records away
a failed fsync           of a broker that does not flush each message it loses records; the last member of an ISR leads
                         with what is left (KIP-966)
power loss of all        after an unclean election: a truncation that was not synced yet comes back
transaction version 1    a late EndTxn ends the next transaction of the same epoch (KIP-890)
offsets that expire      a fault may leave a group without members while the clocks jump
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harrow.cluster.host.seam import failpoints as points
from harrow.faults.disk_faults import DiskError, PowerLoss
from harrow.faults.failpoint_faults import Failpoint
from harrow.faults.planning import WEIGHTS
from harrow.faults.request_faults import DelayRequest, FailResponse, RefuseRequest, RequestFault
from harrow.faults.runs import EXACTLY_ONCE, LEADER, ORDERS, SAME_BROKER, SINK, TOPIC, SimulationOptions
from harrow.faults.schedule import Schedule
from harrow.faults.spec import Fault
from harrow.faults.targets import (
    REGISTRY,
    Target,
    all_brokers,
    follower,
    group_coordinator,
    isr_member,
    leader,
    next_leader,
    one,
    txn_coordinator,
)

from ..run_settings import RunSettings, settings_of
from ..simulation import plan_seed
from ..simulation.transform_job import GROUP

WORKLOADS = (ORDERS, ORDERS, EXACTLY_ONCE)
POWER_LOSS_PART = 0.3
SWARM_WEIGHTS: Mapping[str, int] = {
    **WEIGHTS,
    "restart": 2,
    "half_open": 1,
    "throttle": 1,
    "expire_session": 1,
    "zombie_controller": 1,
    "elect_controller": 1,
    "crash_during_recovery": 1,
    "lose_response": 2,
    "lose_request": 2,
    "delay_request": 4,
    "duplicate_request": 1,
}
"""The mix of simulations, and faults of starts, of the controller and of single requests."""
RESENDS_PART = 0.2
RESENDS_WEIGHTS: Mapping[str, int] = {"reset": 2, "slow_link": 2, "pause": 1, "lose_response": 2, "delay_request": 1}
"""Of a producer that sends again: no broker restarts, because a correct broker forgets batches then, too."""
RESENDS_SECONDS = 4.0

# ------------------------------------------------------------------------------- cluster and clients

BROKERS = (3, 3, 3, 4, 5)
REPLICAS = (2, 3, 3, 3, 4)
"""With two, `min.insync.replicas` is 1."""
MIN_ISR = ("1", "2", "2")
SECONDS = (4.0, 6.0, 8.0)
PARTITIONS = (1, 1, 2, 3)
BATCHES_PER_S = (8, 12, 20)
PRODUCERS = (1, 1, 2, 5)
READS_FROM = (LEADER, LEADER, SAME_BROKER)
BROKER_SETTINGS: Sequence[tuple[float, Mapping[str, object]]] = (
    (0.25, {"replica.fetch.max.bytes": 1, "replica.fetch.response.max.bytes": 1}),
    (0.15, {"leader.imbalance.check.interval.seconds": 1, "leader.imbalance.per.broker.percentage": 0}),
    (0.15, {"leader.imbalance.check.interval.seconds": 2, "leader.imbalance.per.broker.percentage": 0}),
    (0.3, {"log.retention.check.interval.ms": 300}),
    (0.3, {"replica.high.watermark.checkpoint.interval.ms": 100}),
)
"""How likely each of these settings is; the later one counts."""
JOB_BROKER_SETTINGS: Sequence[tuple[float, Mapping[str, object]]] = (
    (0.3, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}),
    (0.3, {"group.initial.rebalance.delay.ms": 300}),
)
NO_MOVES = ("alter", "delete-records")
"""An operator who moves no leader."""
JOB_SETTINGS: Sequence[tuple[float, Mapping[str, Any]]] = (
    (0.4, {"operations": NO_MOVES}),
    (0.3, {"aborted_part": 0.45}),
    (0.2, {"transaction_timeout_ms": 300, "job_pause_ms": 1_000}),
)
"""Of the job and its operator; the last one: a member stops for longer than its transaction may last."""

# -------------------------------------------------------------------------------------------- faults

FAILPOINT_PART = 0.12
"""How many faults are at a place in the broker's code instead."""
FAILPOINT_ACTIONS = ("crash", "crash", "stop", "delay")
FAILPOINT_DELAY_MS = (50, 400, 1_500)
DISK_ERROR_PART = 0.04
"""How many faults are one failed operation of a disk instead."""
DISK_ERRORS = (("write", "*.log"), ("write", "*index"), ("write", "*.txnindex"))
"""Operation and files."""
DISK_ERRORS_OF_FLUSHED_LOGS = (*DISK_ERRORS, ("sync", "*.log"))
ALL_LOSE_POWER_PART = 0.3
"""How many power losses hit all brokers."""
NUMBERS = (1, 1, 2, 5, 20)
"""The which request, operation, or visit of a place in the code, is hit."""
REQUEST_DELAYS_MS = ((100, 400), (200, 1_500), (1_000, 3_000))
BETWEEN_BROKERS = frozenset({"LeaderAndIsr", "OffsetForLeaderEpoch", "WriteTxnMarkers"})
"""Requests that only brokers send here."""
OF_BROKERS = "broker *"
"""The client id of requests between brokers."""
ROLES: Mapping[str, Sequence[Target]] = {
    ORDERS: (one, follower(TOPIC), isr_member(TOPIC), next_leader(TOPIC)),
    EXACTLY_ONCE: (
        one,
        follower(TOPIC),
        leader(SINK),
        follower(SINK),
        group_coordinator(GROUP),
        txn_coordinator("job-1"),
        txn_coordinator("job-2"),
        txn_coordinator("job-3"),
    ),
}
"""What takes the place of a drawn broker without a role."""
APIS: Mapping[str, Sequence[str]] = {
    ORDERS: ("Produce", "Produce", "Fetch", "Fetch", "LeaderAndIsr", "OffsetForLeaderEpoch"),
    EXACTLY_ONCE: (
        "Produce",
        "Fetch",
        "LeaderAndIsr",
        "EndTxn",
        "WriteTxnMarkers",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "InitProducerId",
        "OffsetFetch",
        "JoinGroup",
    ),
}
"""Of which single requests are hit."""
LOG_POINTS = (
    points.BEFORE_APPEND,
    points.AFTER_APPEND,
    points.AFTER_FOLLOWER_APPEND,
    points.BEFORE_ISR_WRITE,
    points.AFTER_ISR_WRITE,
    points.BEFORE_LEADER,
    points.BEFORE_FOLLOWER,
    points.BEFORE_FOLLOWER_TRUNCATION,
    points.AFTER_FOLLOWER_TRUNCATION,
    points.BEFORE_STATE_WRITE,
    points.AFTER_STATE_WRITE,
)
POINTS: Mapping[str, Sequence[str]] = {
    ORDERS: LOG_POINTS,
    EXACTLY_ONCE: (
        *LOG_POINTS,
        points.BEFORE_PREPARE,
        points.AFTER_PREPARE,
        points.BEFORE_MARKER,
        points.AFTER_MARKER,
        points.BETWEEN_MARKERS,
        points.BEFORE_COMPLETE,
        points.AFTER_COMPLETE,
        points.BEFORE_TXN_OFFSETS,
        points.AFTER_TXN_OFFSETS,
        points.BEFORE_INIT,
        points.AFTER_OFFSETS,
        points.BEFORE_ACTIVE,
    ),
}
"""Places in the broker's code."""


def drawn_options(seed: int) -> SimulationOptions:
    """What the run of one seed does, whichever bug is planted."""
    rng = random.Random(f"{seed}/swarm")  # noqa: S311 - not cryptography
    workload = rng.choice(WORKLOADS)
    resends = workload == ORDERS and rng.random() < RESENDS_PART
    brokers, replicas = rng.choice(BROKERS), rng.choice(REPLICAS)
    seconds = RESENDS_SECONDS if resends else rng.choice(SECONDS)
    drawn = SimulationOptions(
        workload=workload,
        brokers=brokers,
        replication_factor=min(brokers, replicas),
        partitions=rng.choice(PARTITIONS),
        seconds=seconds,
        batches=round(seconds * rng.choice(BATCHES_PER_S)),
        topic_config={"min.insync.replicas": "1" if replicas == 2 else rng.choice(MIN_ISR)},
        config=drawn_settings(rng, BROKER_SETTINGS),
        weights=SWARM_WEIGHTS,
    )
    if resends:
        return replace(drawn, resends=True, weights=RESENDS_WEIGHTS)
    drawn = replace(drawn, power_loss=rng.random() < POWER_LOSS_PART)
    if workload == ORDERS:
        return replace(drawn, producers=rng.choice(PRODUCERS), reads_from=rng.choice(READS_FROM))
    config = {**drawn.config, **drawn_settings(rng, JOB_BROKER_SETTINGS)}
    return replace(drawn, config=config, job=drawn_settings(rng, JOB_SETTINGS))


def drawn_settings(rng: random.Random, settings: Sequence[tuple[float, Mapping[str, Any]]]) -> dict[str, Any]:
    """Draw each of the settings with its probability."""
    drawn: dict[str, Any] = {}
    for part, values in settings:
        if rng.random() < part:
            drawn |= values
    return drawn


def plan_swarm(seed: int, plants: tuple[str, ...] = ()) -> Schedule:
    """Draw one run."""
    options = drawn_options(seed)
    schedule = plan_seed(seed, replace(options, plants=plants))
    rng = random.Random(f"{seed}/swarm-faults")  # noqa: S311 - not cryptography
    settings = settings_of(schedule)
    steps = tuple(replace(step, fault=varied_fault(step.fault, rng, settings)) for step in schedule.steps)
    return replace(schedule, steps=steps)


def varied_fault(fault: Fault, rng: random.Random, settings: RunSettings) -> Fault:
    """Return the fault, one of the same kind with a drawn role or request, or one of a disk or a place in the code."""
    if isinstance(fault, RequestFault):
        return varied_request(fault, rng, settings)
    if fault.target == REGISTRY:
        return fault
    if settings.resends:
        return with_role(fault, rng, settings)
    draw = rng.random()
    if draw < FAILPOINT_PART:
        action = rng.choice(FAILPOINT_ACTIONS)
        return Failpoint(
            target=rng.choice((fault.target, all_brokers)),
            point=rng.choice(POINTS[settings.workload]),
            action=action,
            nth=rng.choice(NUMBERS),
            delay_ms=rng.choice(FAILPOINT_DELAY_MS) if action == "delay" else 0,
        )
    if draw < FAILPOINT_PART + DISK_ERROR_PART:
        errors = DISK_ERRORS_OF_FLUSHED_LOGS if settings.flushes else DISK_ERRORS
        operation, path = rng.choice(errors)
        topic = rng.choice((TOPIC, SINK) if settings.workload == EXACTLY_ONCE else (TOPIC,))
        return DiskError(
            target=leader(topic), operation=operation, path=f"*/{topic}-*/{path}", nth=rng.choice(NUMBERS), count=1
        )
    may_hit_all = isinstance(fault, PowerLoss) and not settings.unclean_sink
    if may_hit_all and rng.random() < ALL_LOSE_POWER_PART:
        return replace(fault, target=all_brokers)
    return with_role(fault, rng, settings)


def varied_request(fault: RequestFault, rng: random.Random, settings: RunSettings) -> RequestFault:
    """Return a fault of the same kind of another request."""
    api = rng.choice(APIS[settings.workload])
    if isinstance(fault, FailResponse | RefuseRequest):
        api = str(fault.api)  # its error is one of this API
    from_brokers = api in BETWEEN_BROKERS or (api == "Fetch" and rng.random() < 0.5)
    target = all_brokers if rng.random() < 0.5 else rng.choice(ROLES[settings.workload])
    changed = replace(
        fault, api=api, nth=rng.choice(NUMBERS), target=target, client=OF_BROKERS if from_brokers else "*"
    )
    if isinstance(changed, DelayRequest):
        return replace(changed, delay_ms=rng.choice(REQUEST_DELAYS_MS))
    return changed


def with_role(fault: Fault, rng: random.Random, settings: RunSettings) -> Fault:
    """Return the fault on a drawn role, where it has none."""
    if fault.target != one:
        return fault
    return replace(fault, target=rng.choice(ROLES[settings.workload]))
