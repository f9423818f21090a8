"""Checks on replicas: the logs of one partition on every broker, after healing (L3).

LogMatching over the range that all replicas have: the same offset and leader epoch, so the same bytes (CRC) and
the same borders of batches. Of each log: CRC good, offsets contiguous, leader epochs never going back. Replicas
that end at different offsets, or not at the high watermark, have not converged: unknown, though a difference in
what they share is still invalid. Logs are taken to be uncompacted.
"""

from __future__ import annotations

import polars as pl

from .batches import converged, log_batches
from .found import Found, Row, batches
from .inputs import Inputs


def convergence(inputs: Inputs, found: Found) -> None:
    """Whether the replicas can be judged as equals; else why not."""
    if not inputs.logs:
        return
    place = f"{inputs.job.topic}-{inputs.job.partition}"
    ends = {
        node: int(log["last_offset"][-1]) + 1 if len(log) else 0
        for node, log in sorted(inputs.logs.items())
    }
    told = ", ".join(f"broker {node} at {end}" for node, end in ends.items())
    if not converged(inputs):
        found.unknown.append(f"replicas of {place} had not converged: log ends differ ({told})")
    elif inputs.high is not None and any(end not in {inputs.high, 0} for end in ends.values()):
        found.unknown.append(
            f"replicas of {place} had not converged: {told}, high watermark {inputs.high}"
        )
    elif (
        inputs.high is not None
        and any(end == 0 != inputs.high for end in ends.values())
        and inputs.low == 0
    ):
        found.unknown.append(
            f"replicas of {place} are empty, but the high watermark is {inputs.high}"
        )


def _of(inputs: Inputs, offset: int) -> list[Row]:
    rows: list[Row] = []
    for node, log in sorted(inputs.logs.items()):
        there = log.filter((pl.col("base_offset") <= offset) & (pl.col("last_offset") >= offset))
        rows += batches(there.with_columns(pl.lit(node).alias("node")), "in the log")
    return rows


def divergence(inputs: Inputs, found: Found) -> None:
    """replica-divergence: different batches under one offset, or one replica lacks what others have."""
    filled = [log for log in inputs.logs.values() if len(log)]
    if len(filled) < 2:
        return
    start = max(int(log["base_offset"][0]) for log in filled)
    end = min(int(log["last_offset"][-1]) for log in filled)
    same = ["crc", "last_offset", "leader_epoch"]
    bad = (
        log_batches(inputs)
        .filter((pl.col("last_offset") >= start) & (pl.col("base_offset") <= end))
        .group_by("base_offset")
        .agg(
            pl.col("node").n_unique().alias("replicas"), *(pl.col(name).n_unique() for name in same)
        )
        .filter(
            (pl.col("replicas") != len(filled))
            | pl.any_horizontal(pl.col(name) > 1 for name in same)
        )
        .sort("base_offset")
    )

    def tell(row: Row) -> tuple[list[int], list[Row], str]:
        if row["replicas"] != len(filled):
            text = f"a batch begins here on {row['replicas']} of {len(filled)} replicas"
        else:
            different = [name.replace("_", " ") for name in same if row[name] > 1]
            text = f"replicas differ in {', '.join(different)}"
        return [row["base_offset"]], _of(inputs, row["base_offset"]), text

    found.many("replica-divergence", bad, tell)


def each_log(inputs: Inputs, found: Found) -> None:
    """corrupt-batch, log-gap, epoch-regression: what one log shows by itself."""
    for node, log in sorted(inputs.logs.items()):
        named = log.with_columns(
            pl.lit(node, pl.Int32).alias("node"),
            pl.col("last_offset").shift(1).alias("before"),
            pl.col("leader_epoch").shift(1).alias("epoch_before"),
        )

        def show(row: Row, text: str) -> tuple[list[int], list[Row], str]:
            return (
                [row["base_offset"]],
                _of(inputs, row["base_offset"]),
                f"on broker {row['node']}: {text}",
            )

        found.many(
            "corrupt-batch",
            named.filter(~pl.col("crc_good")),
            lambda row: show(row, "CRC does not match"),
        )
        found.many(
            "log-gap",
            named.filter(pl.col("base_offset") != pl.col("before") + 1),
            lambda row: show(row, f"offset {row['base_offset']} follows {row['before']}"),
        )
        found.many(
            "epoch-regression",
            named.filter(pl.col("leader_epoch") < pl.col("epoch_before")),
            lambda row: show(row, f"epoch {row['leader_epoch']} follows {row['epoch_before']}"),
        )
