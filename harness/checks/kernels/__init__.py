"""Vectorised checks of one topic-partition: `judge_partition(job)` runs all of them inside a Spark task.

* `inputs.py`, `loading.py`: `PartitionInputs`, the rows that the checks read, and how they are read; `memory.py`:
  whether they fit into the memory that is free;
* `records.py`, `batches.py`, `replicas.py`: the checks of recorded operations, of taps, and of replicas' logs;
* `overlap.py`: when clients worked on the partition, and which faults their operations met;
* `leaders.py`: leaders that were elected without committed records;
* `removals.py`, `early_removals.py`, `incarnations.py`: what Kafka removed legally, what was removed too early, and the
  doubts that this leaves; `compacted_replicas.py`: what compaction left in each replica;
* `send_order.py`: the order of recorded sends, and what has no known order;
* `origins.py`: records that no client sent, or that a send which failed has sent, or that were read before they were;
* `unsent_batches.py`: batches of the log that no request has, or only requests that were refused;
* `real_time.py`: records whose offsets are not in the order in which they were acknowledged and sent;
* `rewinds.py`: readers after transactions that were aborted, or of which the outcome is unknown;
* `ends_of_reads.py`: acknowledged records that no reader reached;
* `refusals.py`: sends that brokers refused, and that are not in the log;
* `identical_records.py`, `client_epochs.py`: duplicates of producers that did not record their operations, and
  duplicates that the client made;
* `quick.py`: fast tests that a partition has no anomaly;
* `log_transactions.py`, `transactions.py`: transactions of the log with the coordinator's decisions, and their checks;
* `watermarks.py`: high watermarks, last stable offsets and log start offsets that move backwards for clients;
* `shares.py`, `share_rows.py`: records that share groups got too often, twice at a time, or never;
* `groups.py`: committed offsets and the owners of the partition;
* `resent_records.py`: records that were sent again while their first send was in doubt;
* `foreign_commits.py`: offsets that were committed for a group that does not read the partition;
* `evidence.py`: facts about the cause of what was found;
* `findings.py`: `PartitionFindings`, the result.

Each check reads `PartitionInputs` and writes into `PartitionFindings`. A check that crashes adds a doubt to
`PartitionFindings.unknown`, and the other checks run nevertheless. Only the counts, the doubts and the first anomalies
leave the task.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from ...histories.format import OperationFunction, OperationType
from ..plans import PartitionJob
from ..rows import PartitionResult
from . import (
    batches,
    compacted_replicas,
    ends_of_reads,
    evidence,
    foreign_commits,
    groups,
    identical_records,
    leaders,
    origins,
    overlap,
    real_time,
    records,
    refusals,
    removals,
    replicas,
    resent_records,
    rewinds,
    send_order,
    shares,
    transactions,
    unknown_coordinators,
    unsent_batches,
    watermarks,
)
from .findings import PartitionFindings
from .inputs import FLAG_LOST, PartitionInputs, chosen
from .loading import Files, in_groups, load
from .memory import TooLargeError, room_for

CHECKS: tuple[Callable[[PartitionInputs, PartitionFindings], None], ...] = (
    replicas.convergence,
    records.lost_writes,
    records.lost_without_offset,
    records.inconsistent_offsets,
    records.duplicates,
    send_order.send_order,
    records.reading_order,
    rewinds.after_transactions,
    real_time.real_time_order,
    real_time.batches_in_real_time_order,
    origins.origins_of_records,
    origins.reads_before_sends,
    unsent_batches.batches_without_request,
    batches.lost_batches,
    batches.inconsistent_batches,
    batches.duplicate_batches,
    identical_records.duplicate_records,
    batches.sequence_order,
    transactions.committed_reads,
    transactions.torn_transactions,
    transactions.stuck,
    groups.owners,
    groups.regressions,
    groups.beyond_the_end,
    foreign_commits.commits_for_other_groups,
    resent_records.records_sent_again,
    unknown_coordinators.without_tap,
    watermarks.regressions_of_a_leader,
    watermarks.regressions_between_leaders,
    shares.share_groups,
    ends_of_reads.beyond_the_reads,
    removals.below_the_low_watermark,
    removals.below_the_cleaned_offset,
    refusals.refused_sends,
    overlap.unread_records,
    replicas.divergence,
    replicas.each_log,
    replicas.epoch_caches,
    leaders.incomplete_leaders,
    compacted_replicas.last_values,
    evidence.collect,  # last: it looks at what the checks found
)


def judge_task(jobs: Iterable[Mapping[str, Any]]) -> Generator[dict[str, Any]]:
    """Return the result of each topic-partition of a task as plain JSON; `jobs` are plain JSON too."""
    return (result.to_json() for result in judge_jobs([PartitionJob.from_dict(job) for job in jobs]))


def judge_jobs(jobs: Sequence[PartitionJob]) -> Generator[PartitionResult]:
    """Return the result of each topic-partition, in the order of the jobs."""
    files = Files()
    for group in in_groups(jobs):
        files.hold(group)
        for job in group:
            yield judge_partition(job, files)


def judge_partition(job: PartitionJob, files: Files | None = None) -> PartitionResult:
    """Return what is found in one topic-partition. Never raises: a crash becomes a doubt."""
    try:
        with room_for(job):
            return judge_inputs(load(job, files or Files())).result()
    except TooLargeError as error:
        reason = str(error)
    except Exception:
        reason = f"the rows of {job.topic}-{job.partition} could not be read: {traceback.format_exc()}"
    findings = PartitionFindings(job.topic, job.partition, job.limit)
    findings.unknown.append(reason)
    return findings.result()


def judge_inputs(inputs: PartitionInputs) -> PartitionFindings:
    """Run every check on rows in memory."""
    job = inputs.job
    findings = PartitionFindings(job.topic, job.partition, job.limit)
    findings.unknown += inputs.problems
    findings.operation_counts = operation_counts(inputs)
    findings.traffic = overlap.traffic(inputs)
    if inputs.job.windows:
        met = 0 if findings.traffic is None else findings.traffic.met_any
        findings.operation_counts["operations_during_faults"] = met
    for check in CHECKS:
        try:
            check(inputs, findings)
        except Exception:
            name = check.__name__.replace("_", " ")
            findings.unknown.append(
                f"the check of {name} crashed on {job.topic}-{job.partition}: {traceback.format_exc()}"
            )
    return findings


def operation_counts(inputs: PartitionInputs) -> dict[str, int]:
    """Count the judged operations, batches and logs; the verdict shows them, and derives doubts from them."""
    sends, produced, acked = inputs.sends, inputs.produced, inputs.acked_batches
    outcome = sends["outcome"].to_numpy()
    reads = chosen(inputs.polls, inputs.polls["kind"].to_numpy() == OperationFunction.POLL)
    lost = (produced["flags"].to_numpy() & FLAG_LOST) != 0
    acks_of_batches = acked["acks"].to_numpy()
    counts = {
        "acknowledged": int((outcome == OperationType.OK).sum()),
        "unacknowledged": int((outcome == OperationType.INFO).sum()),
        "failed": len(inputs.failed_sends),
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
    ended = counts["acknowledged"] + counts["unacknowledged"]
    assert ended == len(sends), f"{len(sends)} sends, of which {ended} are ok or info"
    for acks, name in ((0, "batches_acks_0"), (1, "batches_acks_1"), (-1, "batches_acks_all")):
        counts[name] = int((acks_of_batches == acks).sum())
    if inputs.job.windows:
        counts["acknowledged_before_faults"] = overlap.acknowledged_before_faults(inputs)
    return counts
