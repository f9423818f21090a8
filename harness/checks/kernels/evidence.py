"""Evidence of a cause: facts about lost and duplicated records that only the rows of a partition show.

`collect` runs after the checks, and looks for most facts only on a partition with such anomalies. Each fact is a plain
row for `checks/causes/`, with `fact`, `topic`, `partition`, `records`, and times of the monotonic clock (`first_ns`,
`last_ns`):

* `acknowledged-and-lost` (`broker`, `acks`, `first_offset`, `last_offset`): this broker acknowledged batches which no
  replica's log has, without a pause of `APART_NS`;
* `removed-early` (`broker`, `reason`, `first_offset`, `last_offset`): this broker removed a segment too early;
* `response-lost` (`broker`, `client`, `idempotent`): this broker appended records which the log has twice, and the
  response did not reach the client;
* `response-failed` (`broker`, `client`, `error`, `idempotent`): the same, and the response that reached the client had
  this error code: a fault put it there after the append (`fail_response`);
* `appended-unanswered` (`leader_epoch`, `idempotent`): records which the log has twice were appended in this leader
  epoch, and no broker answered the request;
* `acknowledged-twice` (`clients`): records which the log has twice, each copy of which was acknowledged;
* `sequence-used-again` (`broker`, `client`, `batches`; `producer_id`, `base_sequence`, `base_offset` of the first):
  batches that were acknowledged, and instead of which the log has others under the same sequences, with other
  timestamps. Looked for on every partition, because only the application knows that records are missing.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ..log_changes import Removal
from .batches import log_batches
from .findings import PartitionFindings, Row
from .inputs import FLAG_LOST, LOG_APPEND_TIME, SEQUENCE, PartitionInputs

CLIENTS_MOST = 3
FACTS_MOST = 10
APART_NS = 3_000_000_000
"""Losses that are so far apart in time are two facts, because they have two causes."""


def collect(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Add the facts about the lost and the duplicated records to `findings.evidence`."""
    if not len(inputs.produced) or not inputs.logs:
        return
    facts: list[Row] = []
    if findings.anomaly_counts["lost-write"]:
        facts += _lost(inputs) if inputs.early is None else _removed_early(inputs, inputs.early)
    if findings.duplicate_offsets:
        facts += _duplicated(inputs, np.array(sorted(findings.duplicate_offsets), np.int64))
    facts += _sequences_used_again(inputs)
    place = {"topic": inputs.job.topic, "partition": inputs.job.partition}
    findings.evidence += [{**place, **fact} for fact in facts]


def _removed_early(inputs: PartitionInputs, row: Removal) -> list[Row]:
    records = inputs.acked_batches.filter((pl.col("base_offset") >= row.base) & (pl.col("last_offset") < row.end))[
        "count"
    ].sum()
    return [
        {
            "fact": "removed-early",
            "broker": row.node,
            "reason": row.reason,
            "records": int(records),
            "first_ns": row.t_ns,
            "last_ns": row.t_ns,
            "first_offset": row.base,
            "last_offset": row.end - 1,
        }
    ]


def _lost(inputs: PartitionInputs) -> list[Row]:
    logs = log_batches(inputs)
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
    return [{"fact": "acknowledged-and-lost", **row} for row in lost.iter_rows(named=True)]


def _duplicated(inputs: PartitionInputs, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[Row]:
    """Return what the taps and the logs show about the requests that appended these offsets."""
    copies = pl.DataFrame({"at": offsets}).sort("at")
    answered = _covering(copies, inputs.produced.filter(pl.col("base_offset") >= 0))
    failed = (pl.col("flags") & FLAG_LOST) != 0, pl.col("error") != 0
    facts = [
        {"fact": "response-failed" if row["error"] else "response-lost", **row}
        for row in answered.filter(failed[0] | failed[1])
        .group_by("node", "client", "error")
        .agg(
            pl.col("at").n_unique().alias("records"),
            (pl.col("producer_id") >= 0).all().alias("idempotent"),
            pl.col("completed_ns").min().alias("first_ns"),
            pl.col("completed_ns").max().alias("last_ns"),
        )
        .sort("first_ns", "node", "error")
        .rename({"node": "broker"})
        .iter_rows(named=True)
    ]
    silent = copies.filter(~pl.col("at").is_in(answered["at"].implode()))
    log = max(inputs.logs.values(), key=len)
    facts += [
        {"fact": "appended-unanswered", **row}
        for row in _covering(silent, log)
        .group_by("leader_epoch")
        .agg(pl.col("at").n_unique().alias("records"), (pl.col("producer_id") >= 0).all().alias("idempotent"))
        .sort("leader_epoch")
        .iter_rows(named=True)
    ]
    if not facts and len(answered):
        clients = answered["client"].unique().sort().head(CLIENTS_MOST).to_list()
        first, last = answered["completed_ns"].min(), answered["completed_ns"].max()
        facts.append(
            {"fact": "acknowledged-twice", "clients": clients, "records": len(copies)}
            | {"first_ns": first, "last_ns": last}
        )
    return facts


def _sequences_used_again(inputs: PartitionInputs) -> list[Row]:
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
    return [{"fact": "sequence-used-again", **row} for row in again.iter_rows(named=True)]


def _covering(copies: pl.DataFrame, batches: pl.DataFrame) -> pl.DataFrame:
    """Return the batches that contain the offsets `at`, one row for each such offset."""
    sorted_batches = batches.sort("base_offset")
    return copies.join_asof(sorted_batches, left_on="at", right_on="base_offset", strategy="backward").filter(
        pl.col("last_offset") >= pl.col("at")
    )
