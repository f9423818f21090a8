"""`judge`: the verdict on one run folder.

Each step makes a value (`judged_run.py`): read → judge → merge → guarantees → doubts (`run_doubts.py`) → verdict.

`judge` lays out the recorded history (`histories/layout.py`), plans one job for each topic-partition with its replicas'
logs (`partition_jobs.py`), lets Spark run the kernels, and merges the results (`merged_results.py`). Each
topic-partition is judged exactly once. The verdict is invalid when a forbidden anomaly was found, else unknown when
something prevented judging, else valid. `judge` writes `verdict.json` into the folder and reads no file outside it.

The verdict is unknown (L6) when nothing was acknowledged, or nothing was read; when a fault met no operation
(`fault_windows.py`); when a file or a log could not be read; when the replicas had not converged, or the ISR was not
full; when a check crashed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from harrow.cluster.errors import HarrowError

from .. import run_folder
from ..engines import INLINE, SPARK, Engine
from ..histories.group_states import read_group_rows, read_groups
from ..histories.layout import Layout, lay_out
from ..histories.program_ends import ProgramEnd, read_program_ends
from .causes.programs import deaths, quiet_ends
from .causes.recorded import causes_of_run
from .doubts import Doubts
from .examples import shown_anomalies
from .guarantees import parse
from .judged_run import HeldTo, RunFindings, RunToJudge
from .known_anomalies import described
from .merged_results import MergedResults, merged
from .partition_jobs import Replicas, plan_jobs
from .plans import PartitionJob, pack
from .progress.findings import ProgressFindings
from .promise_findings import PromiseFindings, read_findings
from .rows import AnomalyRow, PartitionResult
from .run_doubts import doubts_of_run
from .spark_client import SparkHandle
from .stuck_groups import GroupFindings, stuck_groups
from .traces import claims_of_brokers, planted_bugs
from .unanswered import unanswered_requests
from .verdict import Anomaly, Status, Verdict


class PlanCollector(Protocol):
    """Has plans judged on Spark: a `SparkHandle`, or the `PlanQueries` of a session."""

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Return a result for each job of the plan, as plain JSON."""
        ...


def judge(
    folder: str | Path,
    *,
    topics: Sequence[str],
    guarantee: str | None = None,
    spark: PlanCollector | None = None,
    replicas: Replicas | None = None,
    engine: Engine = SPARK,
    limit: int = 20,
    promised: PromiseFindings | None = None,
    number: int = 1,
) -> Verdict:
    """Judge `topics` of the run in `folder`.

    `guarantee`: "no-loss", "at-least-once", "exactly-once", "ordered", "best-effort" or several with commas; None
    derives it from the settings of the producers. `spark`: by default the Spark of this folder's run. `replicas`: node
    ids for each (topic, partition); by default every broker whose folder has the partition. `limit`: how many anomalies
    of each name and partition the verdict shows. `promised`: what the checks of the application's promises found, to be
    merged into the verdict; by default what the run folder keeps of them. `engine`: `spark` or `inline` (`..engines`).
    `number`: of the verdict among those on this run, from 1 up; its file is named after it (`run_folder.numbered`).
    Raises ConfigError for an unknown guarantee, and SparkError when Spark does not respond.
    """
    began = time.perf_counter()
    guarantees = parse(guarantee) if guarantee is not None else None
    layout = lay_out(Path(folder).absolute(), topics)
    return judge_laid_out(
        folder,
        layout,
        topics=topics,
        guarantees=guarantees,
        spark=spark,
        replicas=replicas,
        engine=engine,
        limit=limit,
        began=began,
        promised=promised,
        number=number,
    )


def judge_laid_out(
    folder: str | Path,
    layout: Layout,
    *,
    topics: Sequence[str],
    guarantees: Sequence[str] | None = None,
    spark: PlanCollector | None = None,
    replicas: Replicas | None = None,
    engine: Engine = SPARK,
    limit: int = 20,
    began: float | None = None,
    promised: PromiseFindings | None = None,
    number: int = 1,
) -> Verdict:
    """Judge a history that is laid out already; `guarantees` are parsed, None derives them. `began`: its start time."""
    began = time.perf_counter() if began is None else began
    run = RunToJudge.read(Path(folder).absolute(), layout, topics)
    jobs, plan_problems = plan_jobs(run, replicas, limit)
    results, progress = _side_by_side(
        lambda: _run(layout.folder, jobs, spark or SparkHandle.of_run(run.folder.parent), engine),
        lambda: _judge_progress(run),
        engine,
    )
    promised = promised or read_findings(run.folder, topics, number=number) or PromiseFindings()
    found = _merged(run, results, progress, promised)
    held_to = HeldTo.of(guarantees, run, found)
    doubts = doubts_of_run(run, found, held_to, plan_problems)
    verdict = _verdict(run, found, held_to, doubts, jobs)
    verdict = replace(verdict, engine=engine, elapsed_ms=round((time.perf_counter() - began) * 1000, 1))
    verdict.write(run.folder / run_folder.numbered(run_folder.VERDICT, number))
    return verdict


def _merged(
    run: RunToJudge, results: Sequence[PartitionResult], progress: ProgressFindings, promised: PromiseFindings
) -> RunFindings:
    """Return the findings of all checks: kernels, traces, groups, progress, promises, and a history from elsewhere."""
    groups = _judge_groups(run)
    imported = [AnomalyRow.from_json(row) for row in run.imported.get("claims", [])]
    claims = [row for row in imported if row.topic in run.topics]
    claims += [*_claims_of_traces(run, groups), *progress.anomalies]
    found = merged(results, claims, promised)
    found.counts["unacknowledged"] += run.unacknowledged
    return RunFindings(results=results, progress=progress, groups=groups, promised=promised, merged=found)


def _verdict(
    run: RunToJudge, found: RunFindings, held_to: HeldTo, doubts: Doubts, jobs: Sequence[PartitionJob]
) -> Verdict:
    """Return the verdict without its engine and its time."""
    counts, clients = found.merged.anomaly_counts, run.layout.clients
    status, allowed = _status(counts, held_to, doubts.reasons)
    ends = _program_ends(run, doubts, status)
    assert status is not Status.VALID or not doubts.reasons, f"valid, though {doubts.reasons}"
    assert status is not Status.UNKNOWN or doubts.reasons, "the verdict is unknown without a reason"
    anomalies = _shown(found.merged, run, held_to.forbidden, jobs)
    started, facts = run.times.started_ns, found.merged.facts
    causes = causes_of_run(
        anomalies, run.folder, run.topics, started_ns=started, facts=facts, clients=clients, program_ends=ends
    )
    return Verdict(
        status=status,
        guarantees=tuple(held_to.guarantees),
        guarantee_reason=held_to.reason,
        operation_counts=dict(found.merged.counts),
        anomaly_counts=dict(counts),
        anomalies=anomalies,
        causes=causes,
        reasons=tuple(doubts.reasons),
        notes=(*allowed, *doubts.notes),
        planted=planted_bugs(run.folder),
        started_ns=started,
        added_guarantees=dict(held_to.added),
        progress=tuple(found.progress.table),
    )


def _side_by_side(
    judge_jobs: Callable[[], list[PartitionResult]], judge_progress: Callable[[], ProgressFindings], engine: Engine
) -> tuple[list[PartitionResult], ProgressFindings]:
    """Return the results of both; while Spark works, this process waits, so a thread judges the progress meanwhile.

    Inline, a second thread would save nothing. Both would import modules at the same time, which pytest may rewrite:
    CPython 3.11 then raises SystemError, "AST constructor recursion depth mismatch" (python/cpython#106905).
    """
    if engine == INLINE:
        return judge_jobs(), judge_progress()
    with ThreadPoolExecutor(1) as beside:
        going = beside.submit(judge_progress)
        return judge_jobs(), going.result()


def _judge_progress(run: RunToJudge) -> ProgressFindings:
    """Return who stood still; nothing is read for a run without faults and without `recovers_within`."""
    if not ((run.folder / run_folder.FAULTS).exists() or run_folder.read_run(run.folder).get("progress")):
        return ProgressFindings()
    from .progress.reading import judge_or_doubt

    return judge_or_doubt(run.folder, run.layout, run.topics, run.events, started_ns=run.times.started_ns)


def _program_ends(run: RunToJudge, doubts: Doubts, status: Status) -> list[ProgramEnd]:
    """Return how the programs ended; one that had died is the first reason of unknown, and a note of valid."""
    try:
        ends = read_program_ends(run.folder)
    except HarrowError as error:
        doubts.notes.append(str(error))
        return []
    if status is Status.UNKNOWN:
        doubts.reasons[:0] = [*deaths(ends, run.times), *quiet_ends(ends, run.times)]
    elif status is Status.VALID:
        doubts.notes[:0] = deaths(ends, run.times)
    return ends


def _shown(
    found: MergedResults, run: RunToJudge, not_allowed: frozenset[str], jobs: Sequence[PartitionJob]
) -> tuple[Anomaly, ...]:
    """Return the anomalies that the verdict shows, with names of clients and what was written."""
    logs = {(job.topic, job.partition): job.logs for job in jobs}
    return shown_anomalies(
        found.anomalies, folder=run.folder, clients=run.layout.clients, not_allowed=not_allowed, logs=logs
    )


def _claims_of_traces(run: RunToJudge, groups: GroupFindings) -> list[AnomalyRow]:
    """Return the anomalies of leaders, controllers, groups and requests that wait."""
    late = unanswered_requests(run.events, run.fault_times, groups.timeouts_ms)
    brokers = claims_of_brokers(run.events, set(run.topics))
    return [*brokers, *groups.anomalies, *late]


def _judge_groups(run: RunToJudge) -> GroupFindings:
    """Return the groups that are stuck; a file that cannot be read is a doubt."""
    try:
        end = read_groups(run.folder)
        rows = read_group_rows(run.folder) if end is not None else []
    except (HarrowError, OSError) as error:
        return GroupFindings(doubts=[str(error)])
    found = stuck_groups(rows, end, run.fault_times)
    for row in rows:
        found.timeouts_ms[row.group] = max(row.timeout_ms, found.timeouts_ms.get(row.group, 0))
    return found


def _run(folder: Path, jobs: list[PartitionJob], spark: PlanCollector, engine: Engine) -> list[PartitionResult]:
    """Return the result of each job; a job without a result of Spark becomes a doubt."""
    planned = {(job.topic, job.partition) for job in jobs}
    assert len(planned) == len(jobs), "a topic-partition was planned twice"
    if not jobs:
        return []
    if engine == INLINE:
        from .kernels import judge_jobs

        return list(judge_jobs(jobs))
    plan = folder / "plan.json"
    plan.write_text(json.dumps(pack(jobs)))
    results = [PartitionResult.from_json(found) for found in spark.collect(plan)]
    judged = {(result.topic, result.partition) for result in results}
    assert len(judged) == len(results), "a topic-partition was judged twice"
    assert judged <= planned, judged - planned
    missing = [job for job in jobs if (job.topic, job.partition) not in judged]
    for job in missing:
        doubt = f"{job.topic}-{job.partition} was not judged: Spark returned no result for it"
        results.append(PartitionResult(unknown=[doubt]))
    return results


def _status(anomaly_counts: Counter[str], held_to: HeldTo, reasons: list[str]) -> tuple[Status, list[str]]:
    """Return the status of the verdict, and notes on anomalies that the guarantees allow."""
    broken = [name for name in anomaly_counts if name in held_to.forbidden]
    listed = ", ".join(held_to.guarantees)
    allowed = [
        f"{described(name, count)}; {listed} allows this"
        for name, count in anomaly_counts.items()
        if name not in held_to.forbidden
    ]
    if broken:
        return Status.INVALID, allowed
    return (Status.UNKNOWN if reasons else Status.VALID), allowed
