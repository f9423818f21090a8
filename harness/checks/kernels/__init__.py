"""Vectorised checks of one topic-partition: `judge_partition(job)` runs them all inside one Spark task.

Each check takes `Inputs` and writes into `Found`; a check that crashes is told in `unknown` and the others go on.
Nothing but the result's counts, doubts and first anomalies leaves the task.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import polars as pl

from ...histories.format import OperationFunction, OperationType
from . import batches, records, replicas
from .found import Found
from .inputs import FLAG_LOST, Files, Inputs, PartitionJob, chosen, load

CHECKS: tuple[Callable[[Inputs, Found], None], ...] = (
    replicas.convergence,
    records.lost_writes,
    records.lost_without_offset,
    records.inconsistent_offsets,
    records.duplicates,
    records.send_order,
    records.reading_order,
    batches.lost_batches,
    batches.inconsistent_batches,
    batches.duplicate_batches,
    batches.duplicate_records,
    batches.sequence_order,
    replicas.divergence,
    replicas.each_log,
)


def judge_task(jobs: Iterable[PartitionJob | Mapping[str, Any]]) -> Generator[dict[str, Any]]:
    """What is said of each of a task's topic-partitions, in their order."""
    files = Files()
    for job in jobs:
        yield judge_partition(job, files)


def judge_partition(
    job: PartitionJob | Mapping[str, Any], files: Files | None = None
) -> dict[str, Any]:
    """Everything that can be said of one topic-partition, as plain JSON; never raises."""
    job = job if isinstance(job, PartitionJob) else PartitionJob.from_dict(job)
    try:
        inputs = load(job, files or Files())
    except Exception:
        found = Found(job.topic, job.partition, job.limit)
        found.unknown.append(
            f"the rows of {job.topic}-{job.partition} could not be read: {traceback.format_exc()}"
        )
        return found.result()
    return judge_inputs(inputs).result()


def judge_inputs(inputs: Inputs) -> Found:
    """Every check on rows at hand."""
    job = inputs.job
    found = Found(job.topic, job.partition, job.limit)
    found.unknown += inputs.problems
    found.counts = figures(inputs)
    for check in CHECKS:
        try:
            check(inputs, found)
        except Exception:
            name = check.__name__.replace("_", " ")
            found.unknown.append(
                f"the check of {name} crashed on {job.topic}-{job.partition}: {traceback.format_exc()}"
            )
    return found


def figures(inputs: Inputs) -> dict[str, int]:
    """Counts for the verdict and for its rules about what makes it unknown."""
    sends, produced, acked = inputs.sends, inputs.produced, inputs.acked_batches
    outcome = sends["outcome"].to_numpy()
    reads = chosen(inputs.polls, inputs.polls["kind"].to_numpy() == OperationFunction.POLL)
    lost = (produced["flags"].to_numpy() & FLAG_LOST) != 0
    told_acks = acked["acks"].to_numpy()
    counts = {
        "acknowledged": int((outcome == OperationType.OK).sum()),
        "unacknowledged": int((outcome == OperationType.INFO).sum()),
        "failed": inputs.failed,
        "read": len(reads),
        "drained": 0 if inputs.final is None else len(inputs.final),
        "final_reads": int(inputs.final is not None),
        "batches_acknowledged": len(acked),
        "records_acknowledged_on_the_wire": int(acked["count"].sum()),
        "batches_delivered": len(inputs.fetched),
        "responses_lost": int(lost.sum()),
        "batches_without_producer_id": int((acked["producer_id"].to_numpy() < 0).sum()),
        "replica_logs": len(inputs.logs),
        "log_batches": sum(len(log) for log in inputs.logs.values()),
    }
    for acks, name in ((0, "batches_acks_0"), (1, "batches_acks_1"), (-1, "batches_acks_all")):
        counts[name] = int((told_acks == acks).sum())
    return {**counts, **_overlap(inputs, reads)}


def _overlap(inputs: Inputs, reads: pl.DataFrame) -> dict[str, int]:
    """How much was acknowledged before the first fault, and how much went on during one.

    A produced batch went on from the making of its newest record: before a paused or isolated leader it waits
    unread, and an outage shorter than the client's patience ends without any request having arrived in it.
    A timestamp older than the first request is the user's own (an event's time) and says nothing of this.
    """
    windows = inputs.job.windows
    if not windows:
        return {}
    begun = (
        pl.when(pl.col("created_ns") >= pl.col("invoked_ns").min())
        .then(pl.min_horizontal("created_ns", "invoked_ns"))
        .otherwise("invoked_ns")
    )
    spans = pl.concat(
        [
            inputs.sends.select("invoked_ns", pl.col("time_ns").alias("completed_ns")),
            reads.select("invoked_ns", pl.col("time_ns").alias("completed_ns")),
            inputs.produced.select(begun.alias("invoked_ns"), "completed_ns"),
            inputs.fetched.select("invoked_ns", "completed_ns"),
        ]
    )
    during = pl.any_horizontal(
        (pl.col("invoked_ns") <= end) & (pl.col("completed_ns") >= start) for start, end in windows
    )
    first = min(start for start, _ in windows)
    records_before = inputs.acked.filter(pl.col("time_ns") < first)
    batches_before = inputs.acked_batches.filter(pl.col("completed_ns") < first)
    return {
        "acknowledged_before_faults": len(records_before) + len(batches_before),
        "operations_during_faults": int(spans.select(during.sum()).item()) if len(spans) else 0,
    }
