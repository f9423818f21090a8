"""`judge`: the verdict on one run folder.

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
from pathlib import Path
from typing import Any, Protocol

from harrow.cluster.errors import HarrowError

from .. import run_folder
from ..engines import INLINE, SPARK, Engine
from ..histories.group_states import read_group_rows, read_groups
from ..histories.layout import Layout, lay_out
from ..histories.origin import started_ns
from ..histories.program_ends import ProgramEnd, read_program_ends
from ..histories.recordings import Recording, recordings_of
from .busy_machine import machine_notes
from .causes.programs import deaths, quiet_ends
from .causes.recorded import causes_of_run
from .client_names import named_client
from .doubts import Doubts, count_doubts, empty_topics, partition_doubts
from .examples import shown_anomalies
from .fault_windows import FaultWindow, missed_faults, overlap_doubts, read_fault_windows
from .guarantees import derive, forbidden, parse, unjudged
from .known_anomalies import described
from .log_changes import log_changes
from .merged_results import MergedResults, merged
from .needs import unjudged_anomalies
from .partition_jobs import Replicas, plan_jobs
from .plans import PartitionJob, pack
from .progress.findings import ProgressFindings
from .promise_findings import PromiseFindings, read_findings
from .spark_client import SparkHandle
from .stuck_groups import STUCK_GROUP, GroupFindings, stuck_groups
from .traces import claims_of_brokers, judged_events, planted_bugs
from .unanswered import unanswered_requests
from .verdict import Anomaly, Status, Verdict
from .whole_taps import brokers_with_whole_taps

ONLY_OPERATIONS = (
    "a history from elsewhere has only what clients did: the logs of replicas, leaders, coordinators and groups were "
    "not judged"
)
"""A note of a verdict on a history from elsewhere."""


class PlanCollector(Protocol):
    """Has plans judged on Spark: a `SparkHandle`, or the `PlanQueries` of a session."""

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Return a result for each job of the plan."""
        ...


def judge(
    folder: str | Path, *, topics: Sequence[str], guarantee: str | None = None, spark: PlanCollector | None = None,
    replicas: Replicas | None = None, engine: Engine = SPARK, limit: int = 20,
    promised: PromiseFindings | None = None, number: int = 1,
) -> Verdict:  # fmt: skip
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
        folder, layout, topics=topics, guarantees=guarantees, spark=spark, replicas=replicas, engine=engine,
        limit=limit, began=began, promised=promised, number=number,
    )  # fmt: skip


def judge_laid_out(
    folder: str | Path, layout: Layout, *, topics: Sequence[str], guarantees: Sequence[str] | None = None,
    spark: PlanCollector | None = None, replicas: Replicas | None = None, engine: Engine = SPARK,
    limit: int = 20, began: float | None = None, promised: PromiseFindings | None = None, number: int = 1,
) -> Verdict:  # fmt: skip
    """Judge a history that is laid out already; `guarantees` are parsed, None derives them. `began`: its start time."""
    began = time.perf_counter() if began is None else began
    place = Path(folder).absolute()
    started = started_ns(place)
    times = run_folder.RunTimes(started)
    windows, fault_problems = read_fault_windows(place)
    events = judged_events(place)
    jobs, plan_problems = plan_jobs(
        place, layout, topics, replicas, windows or [], log_changes(events, topics), limit, times,
        brokers_with_whole_taps(place, events),
    )  # fmt: skip
    results, progress = _side_by_side(
        lambda: _run(layout.folder, jobs, spark or SparkHandle.of_run(place.parent), engine),
        lambda: _judge_progress(place, layout, topics, events, started),
        engine,
    )
    promised = promised or read_findings(place, topics, number=number) or PromiseFindings()
    groups = _judge_groups(place, windows or [])
    imported: dict[str, Any] = run_folder.read_run(place).get("imported", {})
    claims = [row for row in imported.get("claims", []) if row["topic"] in topics]
    claims += [*_claims_of_traces(events, topics, groups, windows or []), *progress.anomalies]
    found = merged(results, claims, promised)
    chosen, why = (guarantees, None) if guarantees is not None else promised.guarantees(*_derive(layout, found.counts))
    added = {name: tuple(names) for name, names in promised.added_guarantees.items()}
    added |= progress.guarantee
    chosen = list(dict.fromkeys([*chosen, *added]))
    not_allowed = forbidden(chosen).union(*added.values())
    found.counts["unacknowledged"] += sum(part.rows for topic in topics for part in layout.pending.get(topic, ()))
    doubts = Doubts(reasons=[*layout.problems, *fault_problems, *plan_problems], notes=imported.get("notes", []))
    doubts.add(partition_doubts(results, not_allowed, layout.clients, times, promised))
    doubts.add(count_doubts(found.counts, chosen, empty_topics(results, topics), promised))
    doubts.add(_doubts_of_promises(promised, not_allowed))
    doubts.add(Doubts(reasons=progress.doubts, notes=progress.notes))
    allowed_doubts = doubts.reasons if STUCK_GROUP in not_allowed else doubts.notes
    allowed_doubts += groups.doubts
    doubts.notes += machine_notes(events, _times(windows or []), times)
    doubts.add(Doubts(reasons=unjudged(chosen, added)))
    doubts.add(_doubts_of_needs(place, results, not_allowed, promised))
    if windows is not None:
        doubts.add(_doubts_of_faults(place, windows, found, topics, times))
    status, allowed = _status(found.anomaly_counts, chosen, not_allowed, doubts.reasons)
    ends = _program_ends(place, doubts, status, times)
    anomalies = _shown(found, place, layout.clients, not_allowed, jobs)
    verdict = Verdict(
        status=status, guarantees=tuple(chosen), guarantee_reason=why, operation_counts=dict(found.counts),
        anomaly_counts=dict(found.anomaly_counts), anomalies=anomalies,
        causes=causes_of_run(
            anomalies, place, topics, started_ns=started, facts=found.facts, clients=layout.clients, program_ends=ends
        ),
        reasons=tuple(doubts.reasons), notes=(*allowed, *doubts.notes), planted=planted_bugs(place), started_ns=started,
        added_guarantees=added, progress=tuple(progress.table), engine=engine,
        elapsed_ms=round((time.perf_counter() - began) * 1000, 1),
    )  # fmt: skip
    verdict.write(place / run_folder.numbered(run_folder.VERDICT, number))
    return verdict


def _side_by_side(
    judge_jobs: Callable[[], list[dict[str, Any]]], judge_progress: Callable[[], ProgressFindings], engine: Engine
) -> tuple[list[dict[str, Any]], ProgressFindings]:
    """Return the results of both; while Spark works, this process waits, so a thread judges the progress meanwhile.

    Inline, a second thread would save nothing. Both would import modules at the same time, which pytest may rewrite:
    CPython 3.11 then raises SystemError, "AST constructor recursion depth mismatch" (python/cpython#106905).
    """
    if engine == INLINE:
        return judge_jobs(), judge_progress()
    with ThreadPoolExecutor(1) as beside:
        going = beside.submit(judge_progress)
        return judge_jobs(), going.result()


def _judge_progress(
    place: Path, layout: Layout, topics: Sequence[str], events: Sequence[dict[str, Any]], started: int
) -> ProgressFindings:  # fmt: skip
    """Return who stood still; nothing is read for a run without faults and without `recovers_within`."""
    if not ((place / run_folder.FAULTS).exists() or run_folder.read_run(place).get("progress")):
        return ProgressFindings()
    from .progress.reading import judge_or_doubt

    return judge_or_doubt(place, layout, topics, events, started_ns=started)


def _program_ends(place: Path, doubts: Doubts, status: Status, times: run_folder.RunTimes) -> list[ProgramEnd]:
    """Return how the programs ended; one that had died is the first reason of unknown, and a note of valid."""
    try:
        ends = read_program_ends(place)
    except HarrowError as error:
        doubts.notes.append(str(error))
        return []
    if status is Status.UNKNOWN:
        doubts.reasons[:0] = [*deaths(ends, times), *quiet_ends(ends, times)]
    elif status is Status.VALID:
        doubts.notes[:0] = deaths(ends, times)
    return ends


def _shown(
    found: MergedResults, place: Path, clients: Sequence[str], not_allowed: frozenset[str], jobs: Sequence[PartitionJob]
) -> tuple[Anomaly, ...]:  # fmt: skip
    """Return the anomalies that the verdict shows, with names of clients and what was written."""
    for row in found.anomalies:
        row["explanation"] = named_client(row["explanation"], clients)
    logs = {(job.topic, job.partition): job.logs for job in jobs}
    return shown_anomalies(found.anomalies, folder=place, clients=clients, not_allowed=not_allowed, logs=logs)


def _claims_of_traces(
    events: Sequence[dict[str, Any]], topics: Sequence[str], groups: GroupFindings, windows: Sequence[FaultWindow]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the anomalies of leaders, controllers, groups and requests that wait."""
    late = unanswered_requests(events, _times(windows), groups.timeouts_ms)
    return [*claims_of_brokers(events, set(topics)), *groups.anomalies, *late]


def _judge_groups(place: Path, windows: Sequence[FaultWindow]) -> GroupFindings:
    """Return the groups that are stuck; a file that cannot be read is a doubt."""
    try:
        end = read_groups(place)
        rows = read_group_rows(place) if end is not None else []
    except (HarrowError, OSError) as error:
        return GroupFindings(doubts=[str(error)])
    found = stuck_groups(rows, end, _times(windows))
    for row in rows:
        found.timeouts_ms[row["group"]] = max(row["timeout_ms"], found.timeouts_ms.get(row["group"], 0))
    return found


def _times(windows: Sequence[FaultWindow]) -> list[tuple[int, int]]:
    return [(window.start_ns, window.end_ns) for window in windows]


def _doubts_of_promises(promised: PromiseFindings, not_allowed: frozenset[str]) -> Doubts:
    reasons = [*promised.reasons, *promised.doubts_about(not_allowed)]
    return Doubts(reasons=reasons, notes=list(promised.notes))


def _doubts_of_needs(
    place: Path, results: Sequence[dict[str, Any]], not_allowed: frozenset[str], promised: PromiseFindings
) -> Doubts:  # fmt: skip
    """Return which forbidden anomalies could not be judged, because their evidence is not in the run folder."""
    if run_folder.read_run(place).get("imported") and not run_folder.missing_data(place):
        return Doubts(notes=[ONLY_OPERATIONS])
    partitions: dict[tuple[str, int], frozenset[Recording]] = {}
    for result in results:
        if "topic" in result:
            counts = result["operation_counts"]
            kinds = {Recording.FINAL_READ} if counts.get("final_reads") else set[Recording]()
            if counts.get("replica_logs"):
                kinds |= {Recording.LOG, Recording.REPLICA_LOGS}
            partitions[result["topic"], result["partition"]] = frozenset(kinds)
    found = unjudged_anomalies(not_allowed, recordings_of(place), partitions, replaced=promised.replaces)
    return Doubts(reasons=found.reasons, notes=found.notes)


def _doubts_of_faults(
    place: Path, windows: Sequence[FaultWindow], found: MergedResults, topics: Sequence[str],
    times: run_folder.RunTimes,
) -> Doubts:  # fmt: skip
    """Return whether the faults met operations: on the judged topics, or of any client of the run."""
    missed = missed_faults(windows, found.traffic)
    early = bool(found.counts["acknowledged_before_faults"]) or not windows
    touched: set[str] = set()
    try:
        if missed or not early:
            from .touched import (  # numpy, which few verdicts need here
                acknowledged_before,
                touched_faults,
            )

            touched = touched_faults(place, missed, times.started_ns)
            early = early or acknowledged_before(place, windows[0].start_ns)
    except (HarrowError, OSError) as error:
        return Doubts(reasons=[str(error)])
    reasons = overlap_doubts(windows, found.traffic, topics, times, touched)
    if not early:
        reasons = ["nothing was acknowledged before the first fault", *reasons]
    return Doubts(reasons=reasons)


def _run(folder: Path, jobs: list[PartitionJob], spark: PlanCollector, engine: Engine) -> list[dict[str, Any]]:
    """Return the result of each job; a job without a result of Spark becomes a doubt."""
    planned = {(job.topic, job.partition) for job in jobs}
    assert len(planned) == len(jobs), "a topic-partition was planned twice"
    if not jobs:
        return []
    if engine == INLINE:
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
        results.append({"operation_counts": {}, "anomaly_counts": {}, "anomalies": [], "unknown": [doubt]})
    return results


def _derive(layout: Layout, counts: Counter[str]) -> tuple[list[str], str]:
    if layout.taps and counts["batches_acknowledged"]:
        acks = [ack for ack, name in ((0, "0"), (1, "1"), (-1, "all")) if counts[f"batches_acks_{name}"]]
        return derive(acks, [not counts["batches_without_producer_id"]])
    return derive([acks for acks, _ in layout.producers], [idempotent for _, idempotent in layout.producers])


def _status(
    anomaly_counts: Counter[str], guarantees: Sequence[str], not_allowed: frozenset[str], reasons: list[str]
) -> tuple[Status, list[str]]:  # fmt: skip
    """Return the status of the verdict, and notes on anomalies that the guarantees allow."""
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
