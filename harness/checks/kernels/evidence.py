"""Evidence of a cause: facts about lost and duplicated records that only the rows of a partition show.

`collect` runs after the checks, and looks for most facts (`checks/facts.py`) only on a partition with such anomalies.
`SequenceUsedAgain` is looked for on every partition, because only the application knows that records are missing.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ..facts import (
    AcknowledgedAndLost,
    AcknowledgedTwice,
    AppendedUnanswered,
    Fact,
    RemovedEarly,
    ResponseFailed,
    ResponseLost,
    SequenceUsedAgain,
)
from .early_removals import EarlyRemovals
from .findings import PartitionFindings
from .inputs import FLAG_LOST, LOG_APPEND_TIME, SEQUENCE, PartitionInputs

CLIENTS_MOST = 3
FACTS_MOST = 10
APART_NS = 3_000_000_000
"""Losses that are so far apart in time are two facts, because they have two causes."""


def collect(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Add the facts about the lost and the duplicated records to `findings.evidence`."""
    if not len(inputs.produced) or not inputs.logs:
        return
    if findings.anomaly_counts["lost-write"]:
        findings.evidence += _lost(inputs) if inputs.early is None else _removed_early(inputs, inputs.early)
    if findings.duplicate_offsets:
        findings.evidence += _duplicated(inputs, np.array(sorted(findings.duplicate_offsets), np.int64))
    findings.evidence += _sequences_used_again(inputs)


def _removed_early(inputs: PartitionInputs, early: EarlyRemovals) -> list[Fact]:
    """Return a fact for each broker: the segments that it removed, one after the other."""
    facts: list[Fact] = []
    for node in sorted({row.node for row in early.rows}):
        rows = [row for row in early.rows if row.node == node]
        first, end = max(rows[0].base, early.start), rows[-1].end
        inside = (pl.col("base_offset") >= first) & (pl.col("last_offset") < end)
        facts.append(
            RemovedEarly(
                topic=inputs.job.topic,
                partition=inputs.job.partition,
                broker=node,
                reason=rows[0].reason,
                records=int(inputs.acked_batches.filter(inside)["count"].sum()),
                first_ns=min(row.t_ns for row in rows),
                last_ns=max(row.t_ns for row in rows),
                first_offset=first,
                last_offset=end - 1,
            )
        )
    return facts


def _lost(inputs: PartitionInputs) -> list[Fact]:
    logs = inputs.log_batches
    rewritten = logs.filter((pl.col("attributes") & LOG_APPEND_TIME) != 0)["last_offset"].unique()
    kept = logs.select("last_offset", pl.col("crc").cast(pl.UInt32)).unique()
    lost = (
        inputs.acked_batches.filter(
            (pl.col("base_offset") >= max(inputs.low, inputs.job.cleaned_end))
            & ~pl.col("last_offset").is_in(rewritten.implode())
        )
        .join(kept, on=["last_offset", "crc"], how="anti")
        .sort("node", "acks", "completed_ns")
        .with_columns(
            (pl.col("completed_ns").diff() > APART_NS)
            .fill_null(value=False)
            .cum_sum()
            .over("node", "acks")
            .alias("part")
        )
        .group_by("node", "acks", "part")
        .agg(
            pl.col("count").sum().alias("records"),
            pl.col("completed_ns").min().alias("first_ns"),
            pl.col("completed_ns").max().alias("last_ns"),
            pl.col("base_offset").min().alias("first_offset"),
            pl.col("last_offset").max(),
        )
        .sort("records", "first_ns", "node", descending=[True, False, False])
        .head(FACTS_MOST)
        .drop("part")
        .rename({"node": "broker"})
    )
    topic, partition = inputs.job.topic, inputs.job.partition
    return [AcknowledgedAndLost(topic=topic, partition=partition, **row) for row in lost.iter_rows(named=True)]


def _duplicated(inputs: PartitionInputs, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[Fact]:
    """Return what the taps and the logs show about the requests that appended these offsets."""
    copies = pl.DataFrame({"at": offsets}).sort("at")
    answered = _covering(copies, inputs.produced.filter(pl.col("base_offset") >= 0))
    failed = (pl.col("flags") & FLAG_LOST) != 0, pl.col("error") != 0
    of_responses = (
        answered.filter(failed[0] | failed[1])
        .group_by("node", "client", "error")
        .agg(
            pl.col("at").n_unique().alias("records"),
            (pl.col("producer_id") >= 0).all().alias("idempotent"),
            pl.col("completed_ns").min().alias("first_ns"),
            pl.col("completed_ns").max().alias("last_ns"),
        )
        .sort("first_ns", "node", "error")
        .rename({"node": "broker"})
    )
    topic, partition = inputs.job.topic, inputs.job.partition
    facts: list[Fact] = [
        ResponseFailed(topic=topic, partition=partition, error=error, **row)
        if (error := row.pop("error"))
        else ResponseLost(topic=topic, partition=partition, **row)
        for row in of_responses.iter_rows(named=True)
    ]
    silent = copies.filter(~pl.col("at").is_in(answered["at"].implode()))
    log = max(inputs.logs.values(), key=len)
    of_epochs = (
        _covering(silent, log)
        .group_by("leader_epoch")
        .agg(pl.col("at").n_unique().alias("records"), (pl.col("producer_id") >= 0).all().alias("idempotent"))
        .sort("leader_epoch")
    )
    facts += (AppendedUnanswered(topic=topic, partition=partition, **row) for row in of_epochs.iter_rows(named=True))
    if not facts and len(answered):
        completed = answered["completed_ns"].to_numpy()
        facts.append(
            AcknowledgedTwice(
                topic=topic,
                partition=partition,
                clients=answered["client"].unique().sort().head(CLIENTS_MOST).to_list(),
                records=len(copies),
                first_ns=int(completed.min()),
                last_ns=int(completed.max()),
            )
        )
    return facts


def _sequences_used_again(inputs: PartitionInputs) -> list[SequenceUsedAgain]:
    """Return which acknowledged batches are not those that the log has under their sequences, by client."""
    log = max(inputs.logs.values(), key=len)
    ends, stored_ms = log["last_offset"].to_numpy(), log["max_timestamp_ms"].to_numpy()
    asked = inputs.acked_batches
    at = np.minimum(np.searchsorted(ends, asked["last_offset"].to_numpy()), max(len(ends) - 1, 0))
    if not len(ends) or (stored_ms[at] == asked["max_timestamp_ms"].to_numpy()).all():
        return []
    own_time = (pl.col("attributes") & LOG_APPEND_TIME) == 0
    stored = log.filter(own_time).select(
        "last_offset",
        pl.col("max_timestamp_ms").alias("stored_ms"),
        *(pl.col(name).cast(asked.schema[name]) for name in SEQUENCE),
    )
    again = (
        asked.filter(pl.col("producer_id") >= 0)
        .join(stored, on=["last_offset", *SEQUENCE], how="inner")
        .filter(pl.col("stored_ms") != pl.col("max_timestamp_ms"))
        .sort("completed_ns")
        .group_by("node", "client", maintain_order=True)
        .agg(
            pl.len().alias("batches"),
            pl.col("count").sum().alias("records"),
            pl.col("producer_id", "base_sequence", "base_offset").first(),
            pl.col("completed_ns").min().alias("first_ns"),
            pl.col("completed_ns").max().alias("last_ns"),
        )
        .head(FACTS_MOST)
        .rename({"node": "broker"})
    )
    topic, partition = inputs.job.topic, inputs.job.partition
    return [SequenceUsedAgain(topic=topic, partition=partition, **row) for row in again.iter_rows(named=True)]


def _covering(copies: pl.DataFrame, batches: pl.DataFrame) -> pl.DataFrame:
    """Return the batches that contain the offsets `at`, one row for each such offset."""
    sorted_batches = batches.sort("base_offset")
    return copies.join_asof(sorted_batches, left_on="at", right_on="base_offset", strategy="backward").filter(
        pl.col("last_offset") >= pl.col("at")
    )
