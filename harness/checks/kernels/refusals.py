"""Sends that brokers refused, and that are not in the log: does the application know it? (L6)

A tap shows a refused batch, and not whether the client sent its records again in other batches. The records keep their
timestamps, so a refused batch is accounted for when

* a batch with the same producer id, producer epoch and base sequence, or with the same CRC, was appended;
* else when the final read has as many records with timestamps between the batch's base and max timestamp, without
  those that were acknowledged to clients of another name.

A batch that was refused because its transaction cannot be committed any more is left out: no reader of committed data
expects its records, and the application must send them in another transaction.

Where timestamps cannot identify records (the broker set them, the application gave its own, retention or compaction
removed records) the records that were appended later for the same client are counted instead. What is then lacking may
be explained by recorded sends whose outcome is unknown: the history accounts for them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationType
from ..segments import CONTROL
from .findings import PartitionFindings
from .inputs import LOG_APPEND_TIME, PartitionInputs

NO_COMMIT = (48, 49, 90, 120)
"""INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, TRANSACTION_ABORTABLE: see the head."""
FENCED = 47
"""INVALID_PRODUCER_EPOCH: for a transactional producer, that another has taken over and aborted its transaction."""
SENT = ["client", "base_timestamp_ms", "max_timestamp_ms", "count"]


def refused_sends(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Note how many records were refused and are not in the log, with the clients and the errors."""
    refused = _unresolved(inputs)
    if not len(refused) or inputs.final is None:
        return
    refused = pl.concat(
        _with_accounted(inputs, of_client) for of_client in refused.partition_by("client")
    )
    lacking = refused.with_columns(
        (pl.col("count").cast(pl.Int64) - pl.col("accounted")).alias("missing")
    ).filter(pl.col("missing") > 0)
    unsure = int((inputs.sends["outcome"] == OperationType.INFO).sum()) + len(inputs.pending)
    times = lacking.select("base_timestamp_ms", "max_timestamp_ms", "missing").rows()
    records = _together(times) - unsure
    if records > 0:
        findings.refused = {
            "records": records,
            "clients": sorted(lacking["client"].unique().to_list()),
            "errors": sorted(lacking["error"].explode().unique().to_list()),
        }


def _unresolved(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the refused batches of which no batch of the same identity was appended, a row for the same records."""
    produced = inputs.produced.filter(pl.col("count") > 0)
    refused = produced.filter(~pl.col("error").is_in([0, *NO_COMMIT]))
    fenced = (pl.col("error") == FENCED) & pl.col("producer_id").is_in(_transactional(inputs))
    refused = refused.filter(~fenced)
    if not len(refused):
        return refused
    appended = produced.filter(pl.col("error") == 0)
    identity = ["producer_id", "producer_epoch", "base_sequence"]
    sequenced = appended.filter(pl.col("producer_id") >= 0).select(identity).unique()
    return (
        refused.join(sequenced, on=identity, how="anti")
        .join(appended.select("crc").unique(), on="crc", how="anti")
        .group_by(SENT)
        .agg(pl.col("error").unique(), pl.col("completed_ns").min(), pl.col("created_ns").min())
        .sort(SENT)
    )


def _transactional(inputs: PartitionInputs) -> list[int]:
    """Return the producer ids that have markers in the logs."""
    found: set[int] = set()
    for log in inputs.logs.values():
        found.update(log.filter((pl.col("attributes") & CONTROL) != 0)["producer_id"].to_list())
    return sorted(found)


def _with_accounted(inputs: PartitionInputs, refused: pl.DataFrame) -> pl.DataFrame:
    """Add to the refused batches of one client how many records in the log may be theirs (`accounted`)."""
    assert inputs.final is not None
    client = refused["client"][0]
    appended = inputs.produced.filter((pl.col("error") == 0) & (pl.col("base_offset") >= 0))
    others = _within(inputs.final["offset"].to_numpy(), appended.filter(pl.col("client") != client))
    stamps = np.sort(inputs.final["timestamp_ms"].to_numpy()[~others])
    base, last = (refused[name].to_numpy() for name in ("base_timestamp_ms", "max_timestamp_ms"))
    by_time = np.searchsorted(stamps, last, "right") - np.searchsorted(stamps, base, "left")
    mine = appended.filter(pl.col("client") == client).sort("completed_ns")
    so_far = np.concatenate([[0], np.cumsum(mine["count"].to_numpy().astype(np.int64))])
    before = np.searchsorted(
        mine["completed_ns"].to_numpy(), refused["completed_ns"].to_numpy(), "left"
    )
    accounted = np.where(
        _timestamps_identify(inputs, refused), by_time, so_far[-1] - so_far[before]
    )
    return refused.with_columns(pl.Series("accounted", accounted))


def _timestamps_identify(inputs: PartitionInputs, refused: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return for each refused batch whether the timestamps in the log say which records are its own."""
    stamped = any(
        bool((log["attributes"].to_numpy() & LOG_APPEND_TIME).any()) for log in inputs.logs.values()
    )
    clock: npt.NDArray[np.bool_] = refused["created_ns"].to_numpy() >= inputs.job.started_ns
    return clock & (not (stamped or inputs.low > 0 or inputs.job.cleaned_end))


def _within(offsets: npt.NDArray[np.int64], batches: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return for each offset whether one of the batches has it."""
    ranges = batches.select("base_offset", "last_offset").sort("base_offset")
    if not len(ranges):
        return np.zeros(len(offsets), np.bool_)
    at = np.searchsorted(ranges["base_offset"].to_numpy(), offsets, "right") - 1
    return (at >= 0) & (ranges["last_offset"].cum_max().to_numpy()[at] >= offsets)


def _together(lacking: list[tuple[int, int, int]]) -> int:
    """Return how many records are lacking at least: batches whose times overlap may have had the same records."""
    total, end, most = 0, -(2**63), 0
    for base, last, missing in sorted(lacking):
        if base > end:
            total, most = total + most, 0
        end, most = max(end, last), max(most, missing)
    return total + most
