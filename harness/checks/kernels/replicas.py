"""Checks of replicas: the logs of one partition on every broker, after healing (L3).

* LogMatching over the range that all replicas have: batches with the same offset and leader epoch have the same bytes
  (CRC) and the same bounds.
* In each log: the CRC of every batch is correct, offsets are contiguous, and leader epochs never decrease.
* The leader epoch cache of each log gives every batch the leader epoch that the batch has. Followers and consumers ask
  it where an epoch ends, so a wrong entry makes them truncate what is committed.
* Replicas whose logs end at different offsets, or not at the high watermark, have not converged: the verdict is
  unknown. A difference in the common range is invalid nevertheless.

Below the cleaned offset a log may have gaps, and the cleaners of two replicas may not have come equally far
(`removals.py`): there the replicas are not compared.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from ..rows import OperationRow
from .findings import Description, PartitionFindings, batch_rows
from .inputs import PartitionInputs
from .quick_batches import epochs_agree, same_logs, whole_log


class Differing(NamedTuple):
    """How many replicas have a batch with a base offset, and how many different values these batches have."""

    base_offset: int
    replicas: int
    crc: int
    last_offset: int
    leader_epoch: int


class LogBatch(NamedTuple):
    """A batch of a log, with the last offset and the leader epoch of the batch before it."""

    node: int
    base_offset: int
    before: int
    leader_epoch: int
    epoch_before: int


class WrongEpoch(NamedTuple):
    """A batch, and the leader epoch that the cache gives it."""

    base_offset: int
    leader_epoch: int
    cached: int


def convergence(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Add a doubt unless all replicas' logs end at the high watermark."""
    if not inputs.logs:
        return
    place = f"{inputs.job.topic}-{inputs.job.partition}"
    ends = _ends(inputs)
    listed = ", ".join(f"broker {node} at {end}" for node, end in ends.items())
    if len(set(ends.values())) > 1:
        findings.unknown.append(f"replicas of {place} had not converged: log end offsets differ ({listed})")
    elif inputs.high is not None and any(end not in {inputs.high, 0} for end in ends.values()):
        findings.unknown.append(
            f"replicas of {place} had not converged: log end offsets are {listed}, "
            f"expected the high watermark {inputs.high}"
        )
    elif inputs.high is not None and any(end == 0 != inputs.high for end in ends.values()) and inputs.low == 0:
        findings.unknown.append(
            f"some replicas of {place} are empty ({listed}), but the high watermark is {inputs.high}"
        )


def _ends(inputs: PartitionInputs) -> dict[int, int]:
    """Return the log end offset of each replica."""
    return {
        node: int(log["last_offset"][-1]) + 1 if len(log) else inputs.log_ends.get(node, 0)
        for node, log in sorted(inputs.logs.items())
    }


def _batches_at(inputs: PartitionInputs, offset: int) -> list[OperationRow]:
    """Return the batch with this offset in each replica's log."""
    rows: list[OperationRow] = []
    for node, log in sorted(inputs.logs.items()):
        there = log.filter((pl.col("base_offset") <= offset) & (pl.col("last_offset") >= offset))
        rows += batch_rows(there.with_columns(pl.lit(node).alias("node")), "in the log")
    return rows


def divergence(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """replica-divergence: replicas have different batches at the same offset, or a replica lacks a batch."""
    filled = [log for log in inputs.logs.values() if len(log)]
    if len(filled) < 2 or same_logs(inputs):
        return
    start = max(inputs.job.cleaned_end, *(int(log["base_offset"][0]) for log in filled))
    end = min(int(log["last_offset"][-1]) for log in filled)
    same = ["crc", "last_offset", "leader_epoch"]
    bad = (
        inputs.log_batches.filter((pl.col("last_offset") >= start) & (pl.col("base_offset") <= end))
        .group_by("base_offset")
        .agg(pl.col("node").n_unique().alias("replicas"), *(pl.col(name).n_unique() for name in same))
        .filter((pl.col("replicas") != len(filled)) | pl.any_horizontal(pl.col(name) > 1 for name in same))
        .sort("base_offset")
    )

    def describe(row: Differing) -> Description:
        if row.replicas != len(filled):
            text = f"only {row.replicas} of {len(filled)} replicas have a batch with base offset {row.base_offset}"
        else:
            values = dict(zip(same, (row.crc, row.last_offset, row.leader_epoch), strict=True))
            different = [name.replace("_", " ") for name, count in values.items() if count > 1]
            text = f"the replicas' batches at offset {row.base_offset} differ in {', '.join(different)}"
        return [row.base_offset], _batches_at(inputs, row.base_offset), text

    findings.add_each("replica-divergence", bad, Differing, describe)


def each_log(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """corrupt-batch, log-gap and epoch-regression: anomalies within the log of a single replica."""
    for node, log in sorted(inputs.logs.items()):
        if whole_log(log, inputs.job.cleaned_end):
            continue
        named = log.with_columns(
            pl.lit(node, pl.Int32).alias("node"),
            pl.col("last_offset").shift(1).alias("before"),
            pl.col("leader_epoch").shift(1).alias("epoch_before"),
        )

        def describe(row: LogBatch, text: str) -> Description:
            return (
                [row.base_offset],
                _batches_at(inputs, row.base_offset),
                f"in the log of broker {row.node}, {text}",
            )

        findings.add_each(
            "corrupt-batch",
            named.filter(~pl.col("crc_good")),
            LogBatch,
            lambda row: describe(row, f"the CRC of the batch at offset {row.base_offset} does not match its bytes"),
        )
        findings.add_each(
            "log-gap",
            named.filter(
                (pl.col("base_offset") != pl.col("before") + 1)
                & ((pl.col("base_offset") > inputs.job.cleaned_end) | (pl.col("base_offset") <= pl.col("before")))
            ),
            LogBatch,
            lambda row: describe(
                row,
                f"a batch with base offset {row.base_offset} follows offset {row.before}, "
                f"expected base offset {row.before + 1}",
            ),
        )
        findings.add_each(
            "epoch-regression",
            named.filter(pl.col("leader_epoch") < pl.col("epoch_before")),
            LogBatch,
            lambda row: describe(
                row,
                f"a batch with leader epoch {row.leader_epoch} follows leader epoch {row.epoch_before}, "
                "expected the same or a higher epoch",
            ),
        )


def epoch_caches(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """epoch-cache-mismatch: the leader epoch cache of a log gives a batch another epoch than the batch has.

    Only when the replicas have converged: before, a broker may be in the middle of a truncation. What lies below the
    first entry is not judged, because DeleteRecords and retention move that entry inside a batch.
    """
    if len(set(_ends(inputs).values())) != 1:
        return
    for node, entries in sorted(inputs.epochs.items()):
        log = inputs.logs[node]
        if not entries or not len(log) or epochs_agree(log, entries):
            continue
        cache = pl.DataFrame(entries, schema={"cached": pl.Int64, "start": pl.Int64}, orient="row")
        wrong = (
            log.sort("base_offset")
            .join_asof(cache.sort("start"), left_on="base_offset", right_on="start", strategy="backward")
            .filter(pl.col("cached") != pl.col("leader_epoch"))
        )

        def describe(row: WrongEpoch, node: int = node) -> Description:
            text = (
                f"the leader epoch cache of broker {node} says that offset {row.base_offset} has leader epoch "
                f"{row.cached}, but the batch there has {row.leader_epoch}"
            )
            return [row.base_offset], _batches_at(inputs, row.base_offset), text

        findings.add_each("epoch-cache-mismatch", wrong, WrongEpoch, describe)
