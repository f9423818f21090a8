"""The plan of a simulated seed: its settings and its schedule, drawn from its number.

The options that all seeds of a series share are `SimulationOptions` (`faults/runs.py`). The schedule that `plan_seed`
returns holds everything that a run needs: a changed draw here changes new seeds, and no stored schedule.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harrow.faults.network_faults import Isolate
from harrow.faults.planning import POWER_LOSS_WEIGHT, WEIGHTS, overlapping_schedule
from harrow.faults.process_faults import Kill
from harrow.faults.runs import EXACTLY_ONCE, GROUP_PROTOCOLS, SHARES, SINK, TOPIC, SimulationOptions
from harrow.faults.schedule import Schedule, ScheduledFault, timed_step
from harrow.faults.targets import follower, leader

from ..run_settings import RunSettings

IN_FLIGHT = (1, 3, 5)
POWER_LOSS_PART = 0.5
"""How many seeds of the workload `exactly-once` have power losses."""
UNCLEAN_PART = 0.35
"""How many of its seeds have unclean elections of the output."""
JOB_OPERATIONS = ("alter", "alter", "delete-records", "delete-output", "elect", "reassign")
UNCLEAN_OPERATIONS = (*JOB_OPERATIONS, "elect-unclean", "elect-unclean")
UNCLEAN_START = (0.1, 0.35)
"""When the faults that cause an unclean election begin, as parts of the seed's duration."""
BEHIND_MS = 300
"""How long a follower is outside of the ISR before the members of the ISR are killed."""
DETECTED_MS: Mapping[str, int] = {"zookeeper.session.timeout.ms": 1_000, "replica.lag.time.max.ms": 1_000}
"""The longest such settings of a seed with unclean elections: in its duration all of its faults must be detected."""
TOPIC_CONFIG: Mapping[str, str] = {"min.insync.replicas": "2"}


def plan_seed(seed: int, options: SimulationOptions) -> Schedule:
    """Draw one seed: the schedule, with everything that its run needs."""
    power = random.Random(f"{seed}/power").random()  # noqa: S311 - not cryptography
    if options.workload == EXACTLY_ONCE and power < POWER_LOSS_PART:
        options = replace(options, power_loss=True)
    job = drawn_job(random.Random(f"{seed}/job"), options)  # noqa: S311 - not cryptography
    config = drawn_config(random.Random(f"{seed}/config"), options)  # noqa: S311 - not cryptography
    if job.get("unclean_sink"):
        config |= {name: min(int(str(config[name])), most) for name, most in DETECTED_MS.items()}
    settings = RunSettings(
        seed=seed,
        brokers=options.brokers,
        seconds=options.seconds,
        config=config,
        topic=TOPIC,
        partitions=options.partitions,
        replication_factor=min(options.replication_factor, options.brokers),
        topic_config={**TOPIC_CONFIG, **options.topic_config},
        acks=options.acks,
        in_flight=drawn_in_flight(seed, options),
        resends=options.resends,
        batches=options.batches,
        plants=options.plants,
        workload=options.workload,
        keys=options.keys,
        producers=options.producers,
        reads_from=options.reads_from,
        **job,
    )
    weights = dict(WEIGHTS if options.weights is None else options.weights)
    if options.power_loss:
        weights["power_loss"] = POWER_LOSS_WEIGHT
    drawn = overlapping_schedule(
        seed,
        duration_ms=round(options.seconds * 1_000),
        brokers=options.brokers,
        topics=[TOPIC],
        weights=weights,
        session_ms=settings.session_ms,
    )
    if settings.unclean_sink:
        rng = random.Random(f"{seed}/unclean")  # noqa: S311 - not cryptography
        drawn = replace(drawn, steps=with_unclean_election(drawn.steps, rng, settings))
    return replace(drawn, run=settings.to_json())


def drawn_in_flight(seed: int, options: SimulationOptions) -> int:
    """Return how many batches the producer of one seed has in flight at most."""
    if options.in_flight is not None:
        return options.in_flight
    return random.Random(f"{seed}/in-flight").choice(IN_FLIGHT)  # noqa: S311 - not cryptography


def drawn_job(rng: random.Random, options: SimulationOptions) -> dict[str, Any]:
    """What `RunSettings` says of the job and the operator of one seed."""
    if options.workload != EXACTLY_ONCE:
        return {}
    protocol = rng.choice(GROUP_PROTOCOLS)
    # with a planted bug there are no invariants, which see unclean elections
    unclean = rng.random() < UNCLEAN_PART and not options.plants
    return {
        "group_protocol": protocol,
        "unclean_sink": unclean,
        "operations": UNCLEAN_OPERATIONS if unclean else JOB_OPERATIONS,
        **options.job,
    }


def with_unclean_election(
    steps: Sequence[ScheduledFault], rng: random.Random, settings: RunSettings
) -> tuple[ScheduledFault, ...]:
    """Add faults that leave a follower of the sink as the only live replica, although it is not in the ISR.

    The follower is isolated until it is outside of the ISR. Then the leader is killed, and its successor when there is
    one. The follower is back before they are. A short run ends before the last of them begin; those are left out.
    """
    session_ms, lag_ms = settings.session_ms, settings.lag_ms
    partition = rng.randrange(settings.partitions)
    at_ms = round(settings.seconds * 1_000 * rng.uniform(*UNCLEAN_START))
    kill_ms = at_ms + round(1.5 * lag_ms) + BEHIND_MS
    last_ms = kill_ms + round(1.3 * session_ms)
    heads = (
        (at_ms, Isolate(target=follower(SINK, partition), clients=False), last_ms - at_ms + 50),
        (kill_ms, Kill(target=leader(SINK, partition)), last_ms - kill_ms + 3 * session_ms),
        (last_ms, Kill(target=leader(SINK, partition)), 3 * session_ms),
    )
    added = [
        timed_step(f"unclean-{number}", at, fault, lasts_ms)
        for number, (at, fault, lasts_ms) in enumerate(heads, 1)
        if at < 1_000 * settings.seconds
    ]
    return tuple(sorted((*steps, *added), key=lambda step: step.at_ms))


def drawn_config(rng: random.Random, options: SimulationOptions) -> dict[str, object]:
    """Broker settings of one seed: timeouts around each other, small segments now and then."""
    config: dict[str, object] = {
        "zookeeper.session.timeout.ms": rng.choice((600, 1_000, 1_500)),
        "replica.lag.time.max.ms": rng.choice((400, 1_000, 2_500)),
        "replica.high.watermark.checkpoint.interval.ms": rng.choice((200, 1_000, 5_000)),
        "internal.segment.bytes": rng.choice((1_500, 6_000, 1 << 20)),
        "log.index.size.max.bytes": 4_096,  # mapped whole for each segment: 10 MiB of zeroes by default
        "replica.fetch.wait.max.ms": rng.choice((100, 400)),
        "default.replication.factor": 3,
        "harrow.trace.hw.interval.ms": 1_000,
    }
    if options.power_loss:
        config["log.flush.interval.messages"] = 1
    if options.workload == EXACTLY_ONCE:
        config |= drawn_transaction_config(rng)
    if options.workload == SHARES:
        config |= drawn_share_config(rng)
    return {**config, **options.config}


def drawn_transaction_config(rng: random.Random) -> dict[str, object]:
    """Settings of one seed for transactions and groups: small internal topics, compaction now and then."""
    return {
        "transaction.state.log.num.partitions": 2,
        "transaction.state.log.min.isr": 2,
        "transaction.state.log.segment.bytes": rng.choice((1_500, 1 << 20)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": rng.choice((200, 1_000)),
        "offsets.topic.num.partitions": 2,
        "offsets.topic.segment.bytes": rng.choice((1_500, 1 << 20)),
        "group.min.session.timeout.ms": 500,
        "group.consumer.min.session.timeout.ms": 500,
        "group.consumer.session.timeout.ms": 1_500,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 300,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.backoff.ms": rng.choice((200, 1_500)),
        "log.cleaner.min.cleanable.ratio": rng.choice((0.01, 0.5)),
        "log.cleaner.dedupe.buffer.size": 1 << 20,
        "log.retention.check.interval.ms": 500,
        "request.timeout.ms": 3_000,
    }


def drawn_share_config(rng: random.Random) -> dict[str, object]:
    """Settings of one seed for a share group: short locks and sessions, states that are stored whole now and then."""
    return {
        "group.share.record.lock.duration.ms": 1_000,
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.delivery.count.limit": rng.choice((2, 3, 5)),
        "group.share.partition.max.record.locks": rng.choice((100, 2_000)),
        "group.share.min.session.timeout.ms": 500,
        "group.share.session.timeout.ms": 1_500,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.heartbeat.interval.ms": 300,
        "group.share.initialize.retry.interval.ms": rng.choice((500, 15_000)),  # below LIVENESS_MS
        "share.coordinator.state.topic.num.partitions": 2,
        "share.coordinator.state.topic.segment.bytes": rng.choice((1_500, 1 << 20)),
        "share.coordinator.state.topic.prune.interval.ms": rng.choice((300, 300_000)),
        "share.coordinator.cold.partition.snapshot.interval.ms": rng.choice((700, 300_000)),
        "share.coordinator.write.timeout.ms": rng.choice((800, 5_000)),
        "offsets.topic.num.partitions": 2,
        "request.timeout.ms": 3_000,
    }
