"""`judge`: the verdict on one run folder.

`judge` lays out the recorded history (`histories/layout.py`), plans one job for each topic-partition with its replicas'
logs, lets Spark run the kernels, and merges the results. Each topic-partition is judged exactly once. The verdict is
invalid when a forbidden anomaly was found, else unknown when something prevented judging, else valid. `judge` writes
`verdict.json` into the folder and reads no file outside it.

The verdict is unknown (L6) when nothing was acknowledged, or nothing was read; when a fault met no operation
(`fault_windows.py`); when a file or a log could not be read; when the replicas had not converged, or the ISR was not
full; when a check crashed.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from .. import run_folder
from ..histories.format import FINAL_READ_CLIENT
from ..histories.layout import Layout, PartitionFiles, lay_out
from ..histories.origin import started_ns
from ..promises.findings import PromiseFindings, read_findings
from .anomaly_kinds import described
from .causes.recorded import causes_of_run
from .client_names import named_client
from .doubts import count_doubts, empty_topics, partition_doubts
from .examples import shown_anomalies
from .fault_windows import FaultWindow, Traffic, overlap_doubts, read_fault_windows
from .guarantees import derive, forbidden, parse
from .log_changes import LogChanges, log_changes
from .plans import PartitionJob, pack
from .spark_client import SparkHandle
from .traces import judged_events, leadership_claims, planted_bugs
from .verdict import Status, Verdict

ROW_BYTES = 80
Replicas = Mapping[tuple[str, int], "PartitionReplicas | Sequence[int]"]


class PlanCollector(Protocol):
    """Has plans judged on Spark: a `SparkHandle`, or the `PlanQueries` of a session."""

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Return a result for each job of the plan."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """The brokers that have replicas of a partition, and those that were in the ISR when the run ended."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def judge(
    folder: str | Path, *, topics: Sequence[str], guarantee: str | None = None, spark: PlanCollector | None = None,
    replicas: Replicas | None = None, engine: Literal["spark", "local"] = "spark", limit: int = 20,
    promised: PromiseFindings | None = None,
) -> Verdict:  # fmt: skip
    """Judge `topics` of the run in `folder`.

    `guarantee`: "no-loss", "at-least-once", "exactly-once", "ordered", "best-effort" or several with commas; None
    derives it from the settings of the producers. `spark`: by default the Spark of this folder's run. `replicas`: node
    ids for each (topic, partition); by default every broker whose folder has the partition. `limit`: how many anomalies
    of each name and partition the verdict shows. `promised`: what the checks of the application's promises found, to be
    merged into the verdict; by default what the run folder keeps of them. `engine="local"` runs the kernels in this
    process, for their tests. Raises ConfigError for an unknown guarantee, and SparkError when Spark does not respond.
    """
    began = time.perf_counter()
    guarantees = parse(guarantee) if guarantee is not None else None
    layout = lay_out(Path(folder).absolute(), topics)
    return judge_laid_out(
        folder, layout, topics=topics, guarantees=guarantees, spark=spark, replicas=replicas, engine=engine,
        limit=limit, began=began, promised=promised,
    )  # fmt: skip


def judge_laid_out(
    folder: str | Path, layout: Layout, *, topics: Sequence[str], guarantees: Sequence[str] | None = None,
    spark: PlanCollector | None = None, replicas: Replicas | None = None, engine: Literal["spark", "local"] = "spark",
    limit: int = 20, began: float | None = None, promised: PromiseFindings | None = None,
) -> Verdict:  # fmt: skip
    """Judge a history that is laid out already; `guarantees` are parsed, None derives them. `began`: its start time."""
    began = time.perf_counter() if began is None else began
    place = Path(folder).absolute()
    started = started_ns(place)
    times = run_folder.RunTimes(started)
    windows, fault_problems = read_fault_windows(place)
    events = judged_events(place)
    jobs, reasons = _plan(
        place, layout, topics, replicas, windows or [], log_changes(events, topics), limit, times
    )
    results = _run(layout.folder, jobs, spark or SparkHandle.of_run(place.parent), engine)
    counts: Counter[str] = Counter()
    anomaly_counts: Counter[str] = Counter()
    traffic = Traffic()
    facts: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = leadership_claims(events, set(topics))
    anomaly_counts.update(row["name"] for row in found)
    for result in results:
        counts.update(result["operation_counts"])
        anomaly_counts.update(result["anomaly_counts"])
        found += result["anomalies"]
        traffic.add(result.get("traffic", {}))
        facts += result.get("evidence", ())
    promised = promised or read_findings(place, topics) or PromiseFindings()
    found = _with_promises(promised, counts, anomaly_counts, found)
    chosen, why = (
        (guarantees, None)
        if guarantees is not None
        else promised.guarantees(*_derive(layout, counts))
    )
    not_allowed = forbidden(chosen)
    counts["unacknowledged"] += sum(
        part.rows for topic in topics for part in layout.pending.get(topic, ())
    )
    doubts = partition_doubts(results, not_allowed, layout.clients, times, promised)
    doubts.add(count_doubts(counts, chosen, empty_topics(results, topics), promised))
    reasons = [*layout.problems, *fault_problems, *reasons, *doubts.reasons]
    reasons += [*promised.reasons, *promised.doubts_about(not_allowed)]
    if windows is not None:
        if windows and not counts["acknowledged_before_faults"]:
            reasons.append("nothing was acknowledged before the first fault")
        reasons += overlap_doubts(windows, traffic, topics, times)
    status, notes = _status(anomaly_counts, chosen, reasons)
    notes += [*promised.notes, *doubts.notes]
    for row in found:
        row["explanation"] = named_client(row["explanation"], layout.clients)
    anomalies = shown_anomalies(
        found, folder=place, clients=layout.clients, not_allowed=not_allowed,
        logs={(job.topic, job.partition): job.logs for job in jobs},
    )  # fmt: skip
    verdict = Verdict(
        status=status, guarantees=tuple(chosen), guarantee_reason=why, operation_counts=dict(counts),
        anomaly_counts=dict(anomaly_counts), anomalies=anomalies,
        causes=causes_of_run(
            anomalies, place, topics, started_ns=started, facts=facts, clients=layout.clients
        ),
        reasons=tuple(reasons), notes=tuple(notes), planted=planted_bugs(place), started_ns=started,
        elapsed_ms=round((time.perf_counter() - began) * 1000, 1),
    )  # fmt: skip
    verdict.write(place / run_folder.VERDICT)
    return verdict


def _plan(
    folder: Path, layout: Layout, topics: Sequence[str], replicas: Replicas | None, windows: list[FaultWindow],
    changes: Mapping[tuple[str, int], LogChanges], limit: int, times: run_folder.RunTimes,
) -> tuple[list[PartitionJob], list[str]]:  # fmt: skip
    """Return one job for each topic-partition of the history, the brokers' folders and `replicas`, and the doubts."""
    reasons: list[str] = []
    data = run_folder.replica_folders(folder)
    stored = _stored_logs(data, topics)
    places = (
        {place for place in layout.partitions if place[1] >= 0} | set(stored) | set(replicas or ())
    )
    own_clients = [n for n, name in enumerate(layout.clients) if name == FINAL_READ_CLIENT]
    jobs: list[PartitionJob] = []
    for topic, partition in sorted(place for place in places if place[0] in topics):
        logs = stored.get((topic, partition), {})
        if replicas is not None and (topic, partition) in replicas:
            assigned = replicas[topic, partition]
            if not isinstance(assigned, PartitionReplicas):
                assigned = PartitionReplicas(replicas=tuple(assigned), isr=tuple(assigned))
            if set(assigned.isr) != set(assigned.replicas):
                reasons.append(
                    f"the ISR of {topic}-{partition} is not full: it has brokers {sorted(assigned.isr)}, "
                    f"expected {sorted(assigned.replicas)}"
                )
            logs = {node: _log_folder(data, node, topic, partition) for node in assigned.replicas}
        changed = changes.get((topic, partition), LogChanges())
        files = layout.partitions.get((topic, partition)) or PartitionFiles(
            topic=topic, partition=partition
        )
        jobs.append(
            PartitionJob(
                topic=topic, partition=partition, ops=files.ops, pending=layout.pending.get(topic, []),
                batches=files.batches, logs={str(node): path for node, path in sorted(logs.items())},
                windows=[(window.start_ns, window.end_ns) for window in windows], started_ns=times.started_ns,
                own_clients=own_clients, created_ns=changed.created_ns, cleaned_end=changed.cleaned_end,
                deleted_heads={str(node): base for node, base in changed.deleted_heads.items()}, limit=limit,
                size=files.rows * ROW_BYTES + sum(map(_size, logs.values())),
            )
        )  # fmt: skip
    missing = sorted(set(topics) - {job.topic for job in jobs})
    reasons += [
        f"the run folder has no operation and no log of topic {topic!r}" for topic in missing
    ]
    return jobs, reasons


def _log_folder(data: Mapping[int, Sequence[Path]], node: int, topic: str, partition: int) -> str:
    """Where a replica's log is; where no data folder of its broker holds it, where the first one would."""
    name = f"{topic}-{partition}"
    places = [folder / name for folder in data.get(node, [Path(f"broker-{node}")])]
    return str(next((place for place in places if place.is_dir()), places[0]))


def _stored_logs(
    data: Mapping[int, Sequence[Path]], topics: Sequence[str]
) -> dict[tuple[str, int], dict[int, str]]:
    """Return the folder of each partition's log by broker, for all brokers' data folders."""
    stored: dict[tuple[str, int], dict[int, str]] = {}
    for node, folder in ((node, folder) for node, folders in data.items() for folder in folders):
        for log in folder.iterdir() if folder.is_dir() else ():
            topic, dash, number = log.name.rpartition("-")
            if dash and number.isdigit() and topic in topics and log.is_dir():
                stored.setdefault((topic, int(number)), {})[node] = str(log)
    return stored


def _size(folder: str) -> int:
    if not os.path.isdir(folder):
        return 0
    # a check reads headers and CRCs only: a byte of a segment costs less than a byte of history
    return (
        sum(entry.stat().st_size for entry in os.scandir(folder) if entry.name.endswith(".log"))
        // 4
    )


def _run(
    folder: Path, jobs: list[PartitionJob], spark: PlanCollector, engine: str
) -> list[dict[str, Any]]:
    """Return the result of each job; a job without a result of Spark becomes a doubt."""
    planned = {(job.topic, job.partition) for job in jobs}
    assert len(planned) == len(jobs), "a topic-partition was planned twice"
    if not jobs:
        return []
    if engine == "local":
        from .kernels import judge_task

        return list(judge_task(jobs))
    plan = folder / "plan.json"
    plan.write_text(json.dumps(pack(jobs)))
    results = spark.collect(plan)
    judged = {(row["topic"], row["partition"]) for row in results}
    assert len(judged) == len(results), "a topic-partition was judged twice"
    assert judged <= planned, judged - planned
    missing = [job for job in jobs if (job.topic, job.partition) not in judged]
    for job in missing:
        doubt = f"{job.topic}-{job.partition} was not judged: Spark returned no result for it"
        results.append(
            {"operation_counts": {}, "anomaly_counts": {}, "anomalies": [], "unknown": [doubt]}
        )
    return results


def _derive(layout: Layout, counts: Counter[str]) -> tuple[list[str], str]:
    if layout.taps and counts["batches_acknowledged"]:
        acks = [
            ack for ack, name in ((0, "0"), (1, "1"), (-1, "all")) if counts[f"batches_acks_{name}"]
        ]
        return derive(acks, [not counts["batches_without_producer_id"]])
    return derive(
        [acks for acks, _ in layout.producers], [idempotent for _, idempotent in layout.producers]
    )


def _with_promises(
    promised: PromiseFindings, counts: Counter[str], anomaly_counts: Counter[str], found: list[dict[str, Any]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Add what the checks of promises found, in place of the anomalies that they judge better."""
    for name in promised.replaces:
        anomaly_counts.pop(name, None)
    counts.update(promised.operation_counts)
    anomaly_counts.update(promised.anomaly_counts)
    return [row for row in found if row["name"] not in promised.replaces] + list(promised.anomalies)


def _status(
    anomaly_counts: Counter[str], guarantees: Sequence[str], reasons: list[str]
) -> tuple[Status, list[str]]:
    """Return the status of the verdict, and notes on anomalies that the guarantees allow."""
    not_allowed = forbidden(guarantees)
    broken = [name for name in anomaly_counts if name in not_allowed]
    listed = ", ".join(guarantees)
    allowed = [
        f"{described(name, count)}; {listed} allows this"
        for name, count in anomaly_counts.items()
        if name not in not_allowed
    ]
    if broken:
        return Status.INVALID, allowed
    return (Status.UNKNOWN if reasons else Status.VALID), allowed
