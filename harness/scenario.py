"""The demo's scenario with random faults, for one seed: what `harrow chaos` runs again and again.

Owns: the variants (what is asked of the cluster and of the producer), the repertoires (which kinds of fault may be
drawn) and one run. A run counts only if it had acknowledged records, a fault that overlapped traffic and, with a
repertoire whose every kind may move a leader, an election on the topic; else its verdict is `unknown`, whatever
the checks say.

    safe              acks=all, idempotent, min.insync.replicas=2: nothing may be lost, doubled or reordered
    acks-1            a leader acknowledges alone: a record may be lost with it (H2)
    unclean           unclean election, ISR down to one: acknowledged records may be lost (H3)
    no-idempotence    a retry after a lost response may append twice (H5), and out of order (H6)

At most one leader for each epoch is a check of the verdict itself (anomaly `two-leaders`, by the brokers' traces);
liveness is that `verify` finds the cluster converged within its bound after healing.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harrow.faults.schedule import ALL_RANDOM, DEFAULT_RANDOM

from .errors import VerdictError
from .run import Harrow
from .workload import Workload

CALM_S = 0.7
BOUND_S = 120.0
"""Longest that the faults of one run may take before it is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What a run asks for, and which guarantee it is held to."""

    guarantee: str = "exactly-once,ordered"
    producer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    topic: Mapping[str, object] = field(default_factory=dict[str, object])
    cap: int | None = None


VARIANTS: Mapping[str, Variant] = {
    "safe": Variant(),
    "acks-1": Variant(guarantee="no-loss", producer={"acks": 1, "enable.idempotence": False}),
    "unclean": Variant(
        guarantee="no-loss",
        topic={"unclean.leader.election.enable": True, "min.insync.replicas": 1},
        cap=3,  # all may be away at once, and the wrong one may be back first
    ),
    "no-idempotence": Variant(
        producer={"enable.idempotence": False, "request.timeout.ms": 1000, "max.in.flight": 5}
    ),
}


REPERTOIRES: Mapping[str, tuple[str, ...]] = {"usual": DEFAULT_RANDOM, "all": ALL_RANDOM}
"""Kinds of fault that may be drawn; each seed picks some of them (swarm)."""
USUAL_BROKERS = 3


def cap_of(variant: Variant, repertoire: str, brokers: int) -> int | None:
    """Return how many brokers may be disturbed at once; None: as many as the topic's replicas allow.

    With every kind of fault less than half of them: a partition may stand still meanwhile, and must come back.
    """
    if variant.cap is not None or repertoire == "usual":
        return variant.cap
    return max(1, (brokers - 1) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one seed."""

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


def run_seed(
    seed: int,
    folder: Path,
    *,
    seconds: float,
    variant: str = "safe",
    spark: str = "",
    keep: bool = False,
    brokers: int = USUAL_BROKERS,
    repertoire: str = "usual",
) -> Outcome:
    """Run the scenario for one seed; never raises for what the cluster or the checks did."""
    chosen = VARIANTS[variant]
    begun = time.monotonic()
    status, totals, reasons, acknowledged = "unknown", dict[str, int](), list[str](), 0
    elections = faults = 0
    ran: Harrow | None = None
    repeat = repeat_command(seed, seconds, variant, brokers, repertoire)
    try:
        with Harrow(folder, seed=seed, brokers=brokers, spark=spark, repeat=repeat) as harrow:
            ran = harrow
            faults = _break(harrow, chosen, seconds, repertoire)
            try:
                verdict = harrow.verify(guarantee=chosen.guarantee)
            except VerdictError as error:
                verdict = error.verdict
            status, reasons = verdict.status.value, list(verdict.reasons)
            totals = {name: count for name, count in verdict.anomaly_counts.items() if count}
            acknowledged = int(verdict.operation_counts.get("acknowledged", 0))
            elections = count_elections(folder)
    except Exception as error:  # one seed's failure is that seed's, and said
        status, reasons = "unknown", [*reasons, f"{type(error).__name__}: {error}"]
    lacking = [
        w
        for w, n in (
            ("acknowledged record", acknowledged),
            # a slow link or a short absence of the registry alone need not move a leader
            ("election", elections or repertoire != "usual"),
            ("fault", faults),
        )
        if not n
    ]
    if lacking and status == "valid":
        status, reasons = "unknown", [*reasons, f"it does not count: no {', no '.join(lacking)}"]
    if ran is not None and status == "valid" and not keep:
        ran.remove_data()
    return Outcome(
        seed=seed, variant=variant, status=status, acknowledged=acknowledged, elections=elections, faults=faults,
        anomalies=totals, reasons=tuple(reasons), seconds=round(time.monotonic() - begun, 1), folder=str(folder),
        brokers=brokers, repertoire=repertoire, kinds=kinds_in_effect(folder),
    )  # fmt: skip


def repeat_command(seed: int, seconds: float, variant: str, brokers: int, repertoire: str) -> str:
    """Return what is typed to run this seed again."""
    command = f"harrow chaos --seed {seed} --seeds 1 --seconds {seconds:g} --variant {variant}"
    if (brokers, repertoire) != (USUAL_BROKERS, "usual"):
        command += f" --brokers {brokers} --faults {repertoire}"
    return command


def _break(harrow: Harrow, variant: Variant, seconds: float, repertoire: str) -> int:
    """Traffic, chaos, traffic; how many faults took effect."""
    # every broker leads something
    partitions = 2 if harrow.brokers == USUAL_BROKERS else harrow.brokers
    topic = harrow.topic("orders", partitions=partitions, config=variant.topic)
    pause = threading.Event()
    with Workload(harrow, topic, producer=dict(variant.producer)):
        pause.wait(CALM_S)
        cap = cap_of(variant, repertoire, harrow.brokers)
        with harrow.chaos(duration=seconds, cap=cap, kinds=REPERTOIRES[repertoire]) as chaos:
            bound = time.monotonic() + BOUND_S
            while chaos.running and time.monotonic() < bound:
                pause.wait(0.05)
        pause.wait(CALM_S)
    return chaos.effects


def count_elections(folder: Path) -> int:
    """Leaders of `orders` that began after the first one, by the brokers' traces."""
    found = 0
    for trace in folder.glob("cluster/*/trace.jsonl"):
        for line in trace.read_text().splitlines():
            if '"partition.leader"' in line:
                event = json.loads(line)
                found += event["topic"] == "orders" and event["leader_epoch"] > 0
    return found


def kinds_in_effect(folder: Path) -> dict[str, int]:
    """How many faults of each kind took effect, by the nemesis's log."""
    log = folder / "faults.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    rows = [json.loads(line) for line in lines]
    return dict(sorted(Counter(row["fault"] for row in rows if row["event"] == "effect").items()))
