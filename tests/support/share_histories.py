"""Histories of share groups, judged by the kernels: rows with short names, and what the kernels find in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
from harrow.harness.checks.kernels import shares
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import BATCH_SCHEMA, OPS_SCHEMA, SHARE_SCHEMA, arrange
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.layout import DRAINED

Row = dict[str, Any]
ACQUIRED, ACCEPTED, RELEASED, REJECTED, RENEWED, EXPIRED, ARCHIVED, LOADED, COPIED = range(1, 10)
GROUP, SECOND = 9, 1_000_000_000
LOCK_S = 30


def shared(
    kind: int,
    at: float,
    first: int,
    last: int | None = None,
    *,
    member: int = 1,
    count: int = 0,
    epoch: int = 1,
    node: int = 1,
    error: int = 0,
    lock: float | None = None,
    lasts: float = 0.001,
    flags: int = 0,
) -> Row:
    """A row that was written `at` seconds, of a request that came `lasts` earlier. `lock`: when it ends; 0: not known.

    An acquired record has a lock of `LOCK_S` unless `lock` says otherwise, and the delivery count 1.
    """
    timeless = kind in (EXPIRED, ARCHIVED, LOADED, COPIED)
    if lock is None:
        lock = at + LOCK_S if kind in (ACQUIRED, RENEWED) else 0
    return {
        "kind": kind,
        "flags": flags,
        "error": error,
        "group": GROUP,
        "member": 0 if timeless else member,
        "client": 0 if timeless else member,
        "leader_epoch": epoch,
        "delivery_count": count or int(kind == ACQUIRED),
        "first_offset": first,
        "last_offset": (first - 1 if kind == LOADED else first) if last is None else last,
        "invoked_ns": round((at if timeless else at - lasts) * SECOND),
        "completed_ns": round(at * SECOND),
        "lock_until_ns": round(lock * SECOND),
        "node": node,
    }


def kernels_find(
    rows: Sequence[Row],
    visible: Iterable[int] = (),
    *,
    limit: int = 5,
    claimed: bool = False,
    resets: Sequence[float] = (),
) -> PartitionFindings:
    """Judge the rows of one group; `visible`: the offsets of the final read."""
    job = PartitionJob(
        topic="t",
        partition=0,
        limit=10_000,
        delivery_limit=limit,
        consuming_groups=[GROUP] if claimed else [],
        share_resets=[round(at * SECOND) for at in resets],
    )
    seen = sorted(visible)
    final = [_final(OperationFunction.POLL, offset) for offset in seen]
    bounds = _final(OperationFunction.BOUNDS, seen[-1] + 1 if seen else 0)
    ops, batches = pl.DataFrame([*final, bounds], schema=OPS_SCHEMA), pl.DataFrame(schema=BATCH_SCHEMA)
    inputs = arrange(job, ops, pl.DataFrame(schema=OPS_SCHEMA), batches, {}, [])
    inputs.shares = pl.DataFrame(list(rows), schema=SHARE_SCHEMA)
    findings = PartitionFindings("t", 0, 10_000)
    shares.share_groups(inputs, findings)
    return findings


def anomalies_of(findings: PartitionFindings) -> set[tuple[str, int]]:
    """The anomalies as the oracle names them, one for each record."""
    return {
        (found.name, offset)
        for found in findings.result().anomalies
        for offset in range(found.offsets[0], found.offsets[0] + found.records)
    }


def doubts_of(findings: PartitionFindings) -> set[str]:
    """What the doubts are about."""
    return {doubt.about for doubt in findings.doubts}


def _final(kind: OperationFunction, offset: int) -> Row:
    zeros = dict.fromkeys(OPS_SCHEMA, 0)
    return {**zeros, "kind": int(kind), "outcome": int(OperationType.OK), "offset": offset, "source": DRAINED}
