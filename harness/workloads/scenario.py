"""One run of a small application under faults on real processes: what `harrow chaos` runs for each seed.

Owns: the variants (settings of the topic and of the producer, and the guarantee), the repertoires (which kinds of
fault may be drawn), `Scenario` (drawn from a seed, or read from a recorded schedule) and its run. A run counts only if
it had acknowledged records, a fault that overlapped traffic and, where a leader of the topic died, an election on the
topic; else its verdict is `unknown`, whatever the checks say.

    safe              acks=all, idempotent, min.insync.replicas=2: nothing may be lost, doubled or reordered
    acks-1            a leader acknowledges alone: a record may be lost with it (H2)
    unclean           unclean election, ISR down to one: acknowledged records may be lost (H3)
    no-idempotence    a retry after a lost response may append twice (H5), and out of order (H6)
    exactly-once      a consume-transform-produce job in three processes (`exactly_once/`): the output has each input
                      exactly once, no transaction is open, and each last stable offset is the high watermark (F3, L5)

At most one leader for each epoch is a check of the verdict itself (anomaly `two-leaders`, by the brokers' traces).
Liveness: `verify` finds the cluster converged within its bound after healing.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError
from harrow.cluster.events.partitions import PartitionLeader
from harrow.faults.planning import ALL_RANDOM, DEFAULT_RANDOM, check_drawable
from harrow.faults.runs import EXACTLY_ONCE, ORDERS, TOPIC
from harrow.faults.schedule import Schedule

from .. import run_folder
from ..backends.choice import HARROWS_BROKERS, LOCAL, BackendChoice
from ..backends.kinds import backend_words, new_source
from ..errors import VerdictError
from ..histories.trace_events import events_of_brokers
from ..run.harrow import Harrow, run_of
from ..run_settings import RunSettings, settings_of
from ..user_spark import HARROWS_OWN, UserSpark
from . import exactly_once
from .by_name import new_workload

if TYPE_CHECKING:
    from ..checks import Verdict

"""Kinds that end the broker's process."""
CALM_S = 0.7
BOUND_S = 120.0
"""How much longer than planned the faults of one run may take before it is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosVariant:
    """Settings of a run, and the guarantee that its verdict checks."""

    guarantee: str = "exactly-once,ordered"
    producer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    topic: Mapping[str, object] = field(default_factory=dict[str, object])
    cap: int | None = None
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """Broker settings."""
    workload: str = ORDERS
    """What its clients do, unless the caller names a workload."""
    must_be_valid: bool = False
    """Whether a seed that is not valid is a defect."""


VARIANTS: Mapping[str, ChaosVariant] = {
    "safe": ChaosVariant(must_be_valid=True),
    "acks-1": ChaosVariant(guarantee="no-loss", producer={"acks": 1, "enable.idempotence": False}),
    "unclean": ChaosVariant(
        guarantee="no-loss",
        topic={"unclean.leader.election.enable": True, "min.insync.replicas": 1},
        cap=3,  # all may be down at once, and a replica with an older log may start first
    ),
    "no-idempotence": ChaosVariant(
        producer={"enable.idempotence": False, "request.timeout.ms": 1000, "max.in.flight": 5}
    ),
    "exactly-once": ChaosVariant(
        guarantee="exactly-once", config=exactly_once.CONFIG, workload=EXACTLY_ONCE, must_be_valid=True
    ),
}


REPERTOIRES: Mapping[str, tuple[str, ...]] = {"usual": DEFAULT_RANDOM, "all": ALL_RANDOM}
"""Kinds of fault that may be drawn; each seed picks some of them (swarm)."""


def kinds_of(repertoire: str) -> tuple[str, ...]:
    """Return the kinds of a repertoire: a name of the table, or kinds with commas; ConfigError for an unknown kind."""
    if repertoire in REPERTOIRES:
        return REPERTOIRES[repertoire]
    kinds = tuple(word.strip() for word in repertoire.split(",") if word.strip())
    try:
        check_drawable(kinds or ("",))
    except ConfigError as error:
        raise ConfigError(f"{error}; or one of {', '.join(REPERTOIRES)}") from None
    return kinds


USUAL_BROKERS = 3
SEGMENT_BYTES_USUAL = 1 << 20
"""Simulations have smaller segments now and then."""


def cap_of(variant: ChaosVariant, repertoire: str, brokers: int) -> int | None:
    """Return how many brokers may be disturbed at once; None: as many as the topic's replicas allow.

    With every kind of fault less than half of them: a partition may be unavailable during a fault, and must recover.
    """
    if variant.cap is not None or repertoire == "usual":
        return variant.cap
    return max(1, (brokers - 1) // 2)


def partitions_of(variant: ChaosVariant, brokers: int) -> int:
    """Return how many partitions the topic has: every broker leads one, and each process of a job reads two."""
    if variant.workload == EXACTLY_ONCE:
        return max(2 * exactly_once.PROCESSES, brokers)
    return 2 if brokers == USUAL_BROKERS else brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosResult:
    """The result of one seed, or of one replayed schedule."""

    seed: int
    variant: str
    status: str
    acknowledged: int
    elections: int
    faults: int
    anomalies: Mapping[str, int]
    reasons: tuple[str, ...]
    seconds: float
    folder: str
    brokers: int = USUAL_BROKERS
    repertoire: str = "usual"
    kinds: Mapping[str, int] = field(default_factory=dict[str, int])
    """Faults that took effect, by kind."""

    def to_json(self) -> str:
        """One line of a ledger."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run: the cluster, the topic, the producer, the faults, and the guarantee that it is held to."""

    seed: int
    brokers: int
    partitions: int
    guarantee: str
    repeat: str
    """The command that runs it again."""
    topic: str = TOPIC
    replication_factor: int | None = None
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    topic_config: Mapping[str, object] = field(default_factory=dict[str, object])
    producer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    faults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `Harrow.chaos`."""
    plants: tuple[str, ...] = ()
    """Modules of planted bugs."""
    workload: str = ORDERS
    """What its clients do (`chaos_workloads.py`)."""
    clients: RunSettings = field(default_factory=RunSettings)
    """What a recorded schedule says of the clients of Harrow's own workloads."""
    needs_election: bool = False
    """Whether a run in which a leader died, and no other was elected, does not count."""
    variant: str = "safe"
    repertoire: str = "usual"
    converge_timeout_s: float | None = None
    """How long the verdict waits for the cluster to converge; None: as every verdict."""


def drawn_scenario(
    seed: int,
    *,
    seconds: float,
    variant: str,
    brokers: int,
    repertoire: str,
    plants: Sequence[str] = (),
    workload: str | None = None,
) -> Scenario:
    """Return the scenario of one seed, with random faults. `workload`: by default the variant's."""
    chosen = VARIANTS[variant]
    repeat = repeat_command(seed, seconds, variant, brokers, repertoire, plants, workload)
    workload = workload or chosen.workload
    return Scenario(
        seed=seed,
        brokers=brokers,
        guarantee=chosen.guarantee,
        variant=variant,
        repertoire=repertoire,
        repeat=repeat,
        plants=tuple(plants),
        partitions=partitions_of(chosen, brokers),
        config=chosen.config,
        topic_config=chosen.topic,
        producer=chosen.producer,
        workload=workload,
        faults={"duration": seconds, "cap": cap_of(chosen, repertoire, brokers), "kinds": kinds_of(repertoire)},
        # a slow link or a short absence of the registry alone need not move a leader; a job also meets coordinators
        needs_election=repertoire == "usual" and workload == ORDERS,
    )


def recorded_scenario(schedule: Schedule, repeat: str) -> Scenario:
    """Return the scenario of a schedule file: on the cluster that it describes; ConfigError where it does not."""
    settings = settings_of(schedule)
    config = dict(settings.config)
    if any("power-loss" in step.fault.capabilities() for step in schedule.steps):
        config["harrow.power.loss"] = True
    producer: dict[str, Any] = {
        "acks": settings.acks,
        "enable.idempotence": settings.idempotent,
        "max.in.flight": settings.in_flight,
        "request.timeout.ms": settings.request_timeout_ms,
    }
    segment_bytes = int(str(config.get("internal.segment.bytes", SEGMENT_BYTES_USUAL)))
    if segment_bytes < SEGMENT_BYTES_USUAL:
        # a batch that is larger than a segment is refused, and librdkafka then takes a new epoch and may send twice
        producer["batch.size"] = segment_bytes // 2
    return Scenario(
        seed=settings.seed,
        brokers=settings.brokers,
        partitions=settings.partitions,
        topic=settings.topic,
        replication_factor=settings.replication_factor,
        config=config,
        topic_config=settings.topic_config,
        guarantee=settings.guarantee,
        repeat=repeat,
        faults={"schedule": schedule},
        repertoire="recorded",
        producer=producer,
        plants=tuple(settings.plants),
        workload=settings.workload,
        clients=settings,
    )


def run_seed(
    seed: int,
    folder: Path,
    *,
    seconds: float,
    variant: str = "safe",
    spark: UserSpark = HARROWS_OWN,
    keep: bool = False,
    brokers: int = USUAL_BROKERS,
    repertoire: str = "usual",
    plants: Sequence[str] = (),
    backend: BackendChoice = HARROWS_BROKERS,
    workload: str | None = None,
) -> ChaosResult:
    """Run the scenario for one seed; never raises for what the cluster or the checks did."""
    scenario = drawn_scenario(
        seed, seconds=seconds, variant=variant, brokers=brokers, repertoire=repertoire, plants=plants, workload=workload
    )
    if backend != HARROWS_BROKERS:
        scenario = replace(scenario, repeat=f"{scenario.repeat} {backend_words(backend)}")
    return run_scenario(scenario, folder, spark=spark, keep=keep, backend=backend)


def run_scenario(
    scenario: Scenario,
    folder: Path,
    *,
    spark: UserSpark = HARROWS_OWN,
    keep: bool = False,
    backend: BackendChoice = HARROWS_BROKERS,
) -> ChaosResult:
    """Run one scenario; never raises for what the cluster or the checks did."""
    begun = time.monotonic()
    status, totals, reasons, acknowledged = "unknown", dict[str, int](), list[str](), 0
    elections = faults = 0
    must_elect = scenario.needs_election
    ran: Harrow | None = None
    try:
        with Harrow(
            folder,
            seed=scenario.seed,
            brokers=scenario.brokers,
            config=scenario.config,
            spark=spark,
            repeat=scenario.repeat,
            plants=scenario.plants,
            clusters=new_source(backend),
            converge_timeout_s=scenario.converge_timeout_s,
        ) as harrow:
            ran = harrow
            faults, verdict, unfinished = _break_and_judge(harrow, scenario)
            status, reasons = verdict.status.value, [*verdict.reasons, *unfinished]
            totals = {name: count for name, count in verdict.anomaly_counts.items() if count}
            if unfinished:
                status, totals["unfinished"] = "invalid", len(unfinished)
            acknowledged = _acknowledged(verdict)
            elections = count_elections(folder, scenario.topic)
            if harrow.backend != LOCAL:  # its brokers write no trace
                elections = leader_epochs(harrow, scenario.topic)
            must_elect = scenario.needs_election and leader_died(folder, scenario.topic)
    except Exception as error:  # the failure of one run is reported as that run's result
        status, reasons = "unknown", [*reasons, f"{type(error).__name__}: {error}"]
    lacking = [
        what
        for what, count in (
            ("acknowledged record", acknowledged),
            ("election", elections or not must_elect),
            ("fault", faults),
        )
        if not count
    ]
    if lacking and status == "valid":
        status, reasons = "unknown", [*reasons, f"it does not count: no {', no '.join(lacking)}"]
    if ran is not None and status == "valid" and not keep:
        run_of(ran).remove_data()
    return ChaosResult(
        seed=scenario.seed,
        variant=scenario.variant,
        status=status,
        acknowledged=acknowledged,
        elections=elections,
        faults=faults,
        anomalies=totals,
        reasons=tuple(reasons),
        seconds=round(time.monotonic() - begun, 1),
        folder=str(folder),
        brokers=scenario.brokers,
        repertoire=scenario.repertoire,
        kinds=kinds_in_effect(folder),
    )


def repeat_command(
    seed: int,
    seconds: float,
    variant: str,
    brokers: int,
    repertoire: str,
    plants: Sequence[str] = (),
    workload: str | None = None,
) -> str:
    """Return the command that runs this seed again; `workload`: where it is not the variant's."""
    command = f"harrow chaos --seed {seed} --seeds 1 --seconds {seconds:g} --variant {variant}"
    if (brokers, repertoire) != (USUAL_BROKERS, "usual"):
        command += f" --brokers {brokers} --faults {repertoire}"
    options = [f"--plant {name}" for name in plants]
    if workload is not None:
        options.append(f"--workload {workload}")
    return " ".join([command, *options])


def _break_and_judge(harrow: Harrow, scenario: Scenario) -> tuple[int, Verdict, list[str]]:
    """Traffic, chaos, traffic, verdict; how many faults took effect, the verdict, and what did not finish."""
    topic = harrow.topic(
        scenario.topic,
        partitions=scenario.partitions,
        replication_factor=scenario.replication_factor,
        config=scenario.topic_config,
    )
    workload = new_workload(scenario.workload, harrow, topic, scenario.producer, scenario.clients)
    with workload:
        effects = _break(harrow, scenario)
    try:
        verdict = workload.judge(scenario.guarantee)
    except VerdictError as error:
        verdict = error.verdict
    return effects, verdict, list(getattr(workload, "problems", ()))


def _acknowledged(verdict: Verdict) -> int:
    """Return how many records were acknowledged, by the recorders or else by the taps."""
    counts = verdict.operation_counts
    return int(counts.get("acknowledged", 0) or counts.get("records_acknowledged_on_the_wire", 0))


def _break(harrow: Harrow, scenario: Scenario) -> int:
    """Let the workload run, inject faults, and let it run again; how many faults took effect."""
    pause = threading.Event()
    pause.wait(CALM_S)
    arguments = dict(scenario.faults)
    if "kinds" in arguments:
        arguments["kinds"] = run_of(harrow).possible_kinds(arguments["kinds"])
    recorded: Schedule | None = arguments.get("schedule")
    if recorded is not None and not recorded.steps:  # a search asks whether it fails without faults, too
        return 0
    with harrow.chaos(**arguments) as chaos:
        bound = time.monotonic() + BOUND_S + float(scenario.faults.get("duration") or 0)
        while chaos.running and time.monotonic() < bound:
            pause.wait(0.05)
    pause.wait(CALM_S)
    return chaos.effects


def leader_epochs(harrow: Harrow, topic: str) -> int:
    """Return the sum of the leader epochs of a topic's partitions: how often a leader was elected after the first."""
    return sum(view.leader_epoch for view in harrow.cluster.describe().topics[topic].values())


def leader_died(folder: Path, topic: str) -> bool:
    """Whether a fault ended the process of a leader of the topic: only then is an election certain.

    A leader that is paused or cut off remains the leader until its session ends, and a broker that plays another role
    need not lead a partition of the topic.
    """
    recorded = folder / run_folder.SCHEDULE
    steps = Schedule.from_json(recorded.read_text()).steps if recorded.exists() else ()
    return any(
        step.fired_ms is not None
        and step.fault.ends_process
        and (step.fault.target.role, step.fault.target.topic) == ("leader", topic)
        for step in steps
    )


def count_elections(folder: Path, topic: str = TOPIC) -> int:
    """Leaders of a topic that were elected after the first, by the brokers' traces."""
    elected = (traced.event for traced in events_of_brokers(folder, (PartitionLeader,)))
    return sum(event.topic == topic and event.leader_epoch > 0 for event in elected)


def kinds_in_effect(folder: Path) -> dict[str, int]:
    """How many faults of each kind took effect, by the nemesis's log."""
    log = folder / run_folder.FAULTS
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    rows = [json.loads(line) for line in lines]
    return dict(sorted(Counter(row["fault"] for row in rows if row["event"] == "effect").items()))
