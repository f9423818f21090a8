"""One simulated run from its start to its verdict.

Owns: `run_schedule`, `run_seed`, `SimulationResult`. A run is a function of a schedule and of its `run`
(`RunSettings`): brokers and the registry on a virtual clock; an idempotent producer and a consumer that speak the real
protocol to them; the nemesis of `harrow.faults` on the virtual loop. Then every fault is healed, every record must be
acknowledged, replicated and read within `LIVENESS_MS` of virtual time, and `checks.py` judges.

The recorded schedule (`SimulationResult.schedule`) repeats the run byte for byte: its trace has the same sha256.

Verdicts: `valid`; `invalid` with its anomalies; `unknown` where the run proves nothing: no fault took effect, no record
was acknowledged after the first fault, or the nemesis could not run a required step.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harrow.cluster.broker import preload
from harrow.cluster.errors import ConfigError, CorruptLogError
from harrow.cluster.events.partitions import PartitionLeader
from harrow.cluster.ids import TopicPartition
from harrow.cluster.invariants import InvariantViolation
from harrow.cluster.replication.partition import Partition
from harrow.cluster.simulation import SimulatedCluster
from harrow.faults.clock_faults import ClockFault
from harrow.faults.fault_rows import SCHEMA_VERSION as FAULTS_SCHEMA_VERSION
from harrow.faults.fault_rows import Row
from harrow.faults.nemesis import Nemesis
from harrow.faults.outside import OutsideFault
from harrow.faults.runs import EXACTLY_ONCE, READS_FROM, SHARES, SIMULATED_WORKLOADS, SINK, SimulationOptions
from harrow.faults.schedule import Schedule

from ..backends.simulated.replicas import leader_of_equal_replicas, replicas_of
from ..backends.simulated.system import SimulatedSystem, drive
from ..checks.log_changes import LogChanges
from ..checks.oracle_of_removals import untapped
from ..histories.memory import MemoryHistory
from ..run_settings import RunSettings, settings_of
from .checks import (
    FoundAnomaly,
    acknowledged_values,
    changes_of,
    check_trace,
    judge_partition,
    legal_start,
    log_rows,
    read_finally,
    registry_agrees,
    registry_view,
)
from .coverage import Coverage, coverage_of
from .events import FAULT_EVENTS, RunBegan, RunEnded
from .planning import plan_seed
from .share_workload import SharesWorkload
from .transform_workload import TransformWorkload
from .workload import SimulatedWorkload

KINDS: Mapping[str, type[SimulatedWorkload]] = {EXACTLY_ONCE: TransformWorkload, SHARES: SharesWorkload}
"""The workloads beside `orders`."""
TOPIC_MS = 10_000
HEALING_MS = 120_000
LIVENESS_MS = 30_000
"""Virtual time after healing within which the cluster must converge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The result of one simulated run."""

    seed: int
    status: str
    anomalies: tuple[FoundAnomaly, ...]
    reasons: tuple[str, ...]
    """Why it is unknown."""
    losses: tuple[FoundAnomaly, ...]
    """What is missing or twice because of an unclean election that the topic allows: legal, and named."""
    planted: tuple[str, ...]
    """Planted bugs, as `module: title`."""
    acknowledged: int
    faults: tuple[str, ...]
    """Faults that took effect, by label, in order."""
    kinds: Mapping[str, int]
    """How many of each kind took effect."""
    elections: int
    converged_ms: int
    """Virtual time from healing to convergence; -1: the cluster did not converge."""
    turns: int
    trace_sha256: str
    schedule: Schedule = field(default_factory=Schedule)
    """The resolved schedule, which replays this run."""
    fault_rows: tuple[Row, ...] = ()
    """What `faults.jsonl` holds of a real run."""
    trace: str = ""
    coverage: Coverage | None = None
    """What the run reached; None where the caller does not want it."""

    def to_json(self) -> str:
        """One line for a ledger, without trace, rows and schedule."""
        names = (
            "seed",
            "status",
            "planted",
            "anomalies",
            "reasons",
            "losses",
            "acknowledged",
            "faults",
            "kinds",
            "elections",
            "converged_ms",
            "turns",
            "trace_sha256",
        )
        return json.dumps({name: getattr(self, name) for name in names}, separators=(",", ":"))


def run_seed(seed: int, options: SimulationOptions | None = None, *, keep_trace: bool = False) -> SimulationResult:
    """Plan and run one seed; the same options and seed give the same result, its trace included."""
    return run_schedule(plan_seed(seed, options or SimulationOptions()), keep_trace=keep_trace)


def run_schedule(schedule: Schedule, *, keep_trace: bool = False, keep_coverage: bool = False) -> SimulationResult:
    """Run a schedule as its `run` describes; ConfigError for a setting that a simulation does not support."""
    settings = settings_of(schedule)
    if not settings.idempotent:
        raise ConfigError("idempotent=false: simulated producers are idempotent; replay it on real processes")
    if settings.workload not in SIMULATED_WORKLOADS:
        raise ConfigError(
            f"workload {settings.workload!r}: a simulation has {', '.join(SIMULATED_WORKLOADS)}; "
            "replay it on real processes"
        )
    if settings.producers < 1 or settings.reads_from not in READS_FROM:
        raise ConfigError(
            f"producers={settings.producers}, reads_from={settings.reads_from!r}: expected a producer, "
            f"and {' or '.join(READS_FROM)}"
        )
    outside = [step.fault for step in schedule.steps if isinstance(step.fault, OutsideFault)]
    if outside:
        raise ConfigError(f"{outside[0]} hits something outside of the cluster; replay it on real processes")
    preload()
    # reference counts free almost everything of a run; its cycles are collected once, at its end
    collecting = gc.isenabled()
    gc.disable()
    try:
        with SimulatedCluster(
            brokers=settings.brokers, seed=settings.seed, config=settings.config, plants=settings.plants
        ) as cluster:
            run = SimulatedRun(schedule, settings, cluster)
            result = run.run(keep_trace=keep_trace)
            if not keep_coverage:
                return result
            return replace(result, coverage=coverage_of(cluster.world.trace.events, result.schedule))
    finally:
        if collecting:
            gc.enable()


class SimulatedRun:
    """One run on a cluster that was made for it."""

    def __init__(self, schedule: Schedule, settings: RunSettings, cluster: SimulatedCluster) -> None:
        self._planned = schedule
        self._settings = settings
        self._cluster = cluster
        self._rows: list[Row] = []

    def run(self, *, keep_trace: bool) -> SimulationResult:
        """Start the cluster, inject faults, heal, judge."""
        cluster, settings = self._cluster, self._settings
        cluster.world.record_event(RunBegan(seed=settings.seed, config=cluster.config))
        cluster.start()
        workload = KINDS.get(settings.workload, SimulatedWorkload)(cluster, settings)
        assert cluster.run_until(lambda: workload.ready, TOPIC_MS), "the topic was never created"
        nemesis = Nemesis(SimulatedSystem(cluster), self._planned, write=self._write)
        drive(cluster, nemesis)
        try:
            converged_ms = self._break_and_heal(workload, nemesis)
        except InvariantViolation as violation:
            # the cluster stopped in the middle of an event, so its logs are not judged
            converged_ms = -1
            anomalies = [*workload.anomalies, ("invariant-violated", str(violation))]
        else:
            anomalies = list(workload.anomalies)
            if converged_ms < 0:
                anomalies.append(("not-converged", describe_cluster(cluster, workload)))
                anomalies += [("stuck-group", line) for line in workload.moving_groups()]
                anomalies += [("stuck-lso", line) for line in workload.hanging()]
            try:
                anomalies += self._judge(workload)
            except CorruptLogError as error:
                # a replica's log that cannot be read is not judged further
                anomalies.append(("corrupt-batch", str(error)))
        return self._result(workload, nemesis, anomalies, converged_ms, keep_trace=keep_trace)

    def _break_and_heal(self, workload: SimulatedWorkload, nemesis: Nemesis) -> int:
        """Run the workload under faults, heal, and return the virtual milliseconds until convergence; -1: never."""
        cluster, settings = self._cluster, self._settings
        workload.begin()
        cluster.run_for(settings.seconds * 1_000)
        nemesis.stop()
        workload.calm()
        cluster.run_until(lambda: nemesis.over, HEALING_MS)
        healed_ms = cluster.world.loop.now_ms
        converged = cluster.run_until(lambda: has_converged(cluster, workload, settings), LIVENESS_MS)
        return cluster.world.loop.now_ms - healed_ms if converged else -1

    def _write(self, row: Row) -> None:
        world = self._cluster.world
        t_ns = world.loop.now_ns
        assert not self._rows or self._rows[-1]["t_ns"] <= t_ns, f"the clock went back to {t_ns}: {self._rows[-1]}"
        self._rows.append({"t_ns": t_ns, "schema_version": FAULTS_SCHEMA_VERSION, **row})
        # a skipped step is not in the recorded schedule, so it is not in the trace
        if row["event"] != "skipped":
            fields = {name: value for name, value in row.items() if name not in ("event", "targets")}
            world.record_event(FAULT_EVENTS[row["event"]](**fields, targets=tuple(row["targets"])))

    def _judge(self, workload: SimulatedWorkload) -> list[FoundAnomaly]:
        cluster, settings = self._cluster, self._settings
        final_read = MemoryHistory(drained=True)
        found: list[FoundAnomaly] = list(check_trace(cluster.world.trace, settings.topic))
        changes = self._changes()
        for number in range(settings.partitions):
            tp = TopicPartition(settings.topic, number)
            replicas = replicas_of(cluster, tp)
            low, changed = 0, changes.get(tp, LogChanges())
            sent = untapped(workload.history.completions(*tp), settings.acks)
            for replica in replicas:
                if replica.is_leader:
                    low = legal_start(replica.low, changed, sent)
                    read_finally(final_read, tp, replica.data, low, replica.high)
            logs = {replica.node: log_rows(replica.data, f"{tp} of broker {replica.node}") for replica in replicas}
            epochs = {
                replica.node: [(entry.epoch, entry.start_offset) for entry in replica.log.epochs.entries()]
                for replica in replicas
            }
            found += judge_partition(
                tp, workload.history, final_read, logs, settings.guarantee, low, epochs, changed, sent
            )
            if isinstance(workload, TransformWorkload):
                sink = TopicPartition(SINK, number)
                workload.judge(
                    number,
                    replicas,
                    replicas_of(cluster, sink),
                    acknowledged_values(workload.history, tp, workload.offered),
                    changes.get(sink, LogChanges()),
                )
        if isinstance(workload, SharesWorkload):
            found += workload.judge_group()
        return found + (workload.findings.anomalies if isinstance(workload, TransformWorkload) else [])

    def _changes(self) -> dict[tuple[str, int], LogChanges]:
        """Return what the brokers changed in their logs legally, by topic and partition."""
        settings = self._settings
        clocks = any(isinstance(step.fault, ClockFault) for step in self._planned.steps)
        topics = (settings.topic, SINK)
        return changes_of(self._cluster.world.trace, topics, wrong_clocks=clocks or settings.clock_jump_ms > 0)

    def _result(
        self,
        workload: SimulatedWorkload,
        nemesis: Nemesis,
        anomalies: list[FoundAnomaly],
        converged_ms: int,
        *,
        keep_trace: bool,
    ) -> SimulationResult:
        world, producer = self._cluster.world, workload.producer
        reasons = self._doubts(workload, nemesis)
        status = "invalid" if anomalies else "unknown" if reasons else "valid"
        elections = sum(isinstance(row.event, PartitionLeader) for row in world.trace.events)
        world.record_event(
            RunEnded(status=status, anomalies=tuple(anomalies), turns=world.loop.turns, acknowledged=producer.acked)
        )
        text = world.trace.text()
        losses = workload.findings.losses if isinstance(workload, TransformWorkload) else ()
        effects = [row for row in self._rows if row["event"] == "effect"]
        return SimulationResult(
            seed=self._settings.seed,
            status=status,
            anomalies=tuple(anomalies),
            reasons=tuple(reasons),
            losses=tuple(losses),
            planted=tuple(map(str, self._cluster.plants)),
            acknowledged=producer.acked,
            faults=tuple(row["label"] for row in effects),
            kinds=dict(sorted(Counter(row["fault"] for row in effects).items())),
            elections=elections,
            converged_ms=converged_ms,
            turns=world.loop.turns,
            trace_sha256=hashlib.sha256(text.encode()).hexdigest(),
            schedule=nemesis.schedule,
            fault_rows=tuple(self._rows),
            trace=text if keep_trace else "",
        )

    def _doubts(self, workload: SimulatedWorkload, nemesis: Nemesis) -> list[str]:
        first_ns = next((row["t_ns"] for row in self._rows if row["event"] == "effect"), None)
        if first_ns is None:
            return [*nemesis.problems, "no fault took effect"]
        last_ns = workload.producer.last_acked_ns
        if last_ns is None or last_ns < first_ns:
            return [*nemesis.problems, "nothing was acknowledged after the first fault"]
        return list(nemesis.problems)


def has_converged(cluster: SimulatedCluster, workload: SimulatedWorkload, settings: RunSettings) -> bool:
    """Whether every record is acknowledged and read, and every replica is in sync and at the log end.

    The registry must have the same leaders and ISRs: else no leader could change its ISR any more.
    """
    if not workload.done or not all(process.ready for process in cluster.processes()):
        return False
    leaders: dict[TopicPartition, Partition] = {}
    for topic in workload.topics:
        for number in range(settings.partitions):
            tp = TopicPartition(topic, number)
            leader = leader_of_equal_replicas(cluster, tp)
            if leader is None:
                return False
            end = leader.log.log_end_offset
            if workload.consumer.positions.get(tp, end) != end:
                return False
            leaders[tp] = leader
    return registry_agrees(cluster, leaders)


def describe_cluster(cluster: SimulatedCluster, workload: SimulatedWorkload) -> str:
    """Describe a cluster that did not converge."""
    lines = [f"{process.name} {process.state}" for process in cluster.processes()]
    lines += [f"pending {len(batches.pending)} {batches.broken}" for batches in workload.producer.partitions]
    lines += workload.left_open()
    lines.append(f"read to {list(workload.consumer.positions.values())}")
    for node, rows in cluster.states().items():
        lines += [
            f"broker {node}: {row['topic']}-{row['partition']} leader {row['leader']} epoch {row['leader_epoch']} "
            f"isr {row['isr']} leo {row['leo']} hw {row['hw']}"
            for row in rows
            if not row["topic"].startswith("__")
        ]
    lines += [
        f"registry: {tp} leader {view.leader} epoch {view.leader_epoch} isr {list(view.isr)}"
        for tp, view in registry_view(cluster).partitions()
        if not tp.topic.startswith("__")
    ]
    return "; ".join(lines)
