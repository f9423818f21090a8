"""Histories of what leaders say of their logs, judged by the kernels."""

from __future__ import annotations

from typing import Any

import polars as pl
from harrow.harness.checks.kernels import watermarks
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import BATCH_SCHEMA, OPS_SCHEMA, WATERMARK_SCHEMA, arrange
from harrow.harness.checks.plans import PartitionJob

Row = dict[str, Any]
Anomalies = set[tuple[str, tuple[int, ...]]]
FETCHED, LISTED = 1, 2


def row(
    now: int,
    epoch: int,
    high: int,
    *,
    node: int = 1,
    kind: int = FETCHED,
    stable: int | None = None,
    start: int = 0,
    lasts: int = 0,
    topic_id: int = 0,
) -> Row:
    """One response, whose request was read at `now`."""
    return {
        "kind": kind,
        "client": 0,
        "leader_epoch": epoch,
        "topic_id": topic_id,
        "high_watermark": high,
        "last_stable_offset": (high if kind == FETCHED else -1) if stable is None else stable,
        "log_start_offset": start if kind == FETCHED else -1,
        "invoked_ns": now,
        "completed_ns": now + lasts,
        "node": node,
    }


def kernels_find(rows: list[Row], unclean_epochs: tuple[int, ...] = ()) -> PartitionFindings:
    """Run the kernels of watermarks."""
    job = PartitionJob(topic="t", partition=0, limit=1000, unclean_epochs=list(unclean_epochs))
    ops, batches = pl.DataFrame(schema=OPS_SCHEMA), pl.DataFrame(schema=BATCH_SCHEMA)
    inputs = arrange(job, ops, ops, batches, {}, [])
    inputs.watermarks = pl.DataFrame(rows, schema=WATERMARK_SCHEMA)
    findings = PartitionFindings("t", 0, 1000)
    watermarks.regressions_of_a_leader(inputs, findings)
    watermarks.regressions_between_leaders(inputs, findings)
    return findings


def anomalies_of(findings: PartitionFindings) -> Anomalies:
    """The anomalies as the oracle names them."""
    shown = findings.result().anomalies
    return {(found.name, tuple(sorted(found.offsets))) for found in shown}
