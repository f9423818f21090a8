"""Sends that brokers refused: whether the log has them, and whether they can have been sent again (L6).

A tap shows a refused batch, and not whether the client sent its records again in other batches. A batch is resolved
when a batch with the same producer id, producer epoch and base sequence, or with the same CRC, was appended. Attempts
with the same sequence, or with the same timestamps, count once.

Many clients and applications give a record a new timestamp when they send it again, so a refused record that the log
has not with its timestamp may be any record that was appended later. What is known: the records of one batch are
different ones. So at least as many are lacking as the batch has more records than

* the final read has with timestamps of the batch, without those that were acknowledged to clients of another name, or
* were appended later for the same client, in this partition (here) or in others of the topic (`checks/refused.py`).

A batch that was refused because its transaction cannot be committed any more is left out: no reader of committed data
expects its records, and the application must send them in another transaction. Recorded sends whose outcome is unknown
may explain what is lacking.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationType
from ...histories.segments import CONTROL
from ..refused import FENCED, NO_COMMIT
from ..rows import Appended, LackingSends, Refused
from .findings import PartitionFindings
from .inputs import LOG_APPEND_TIME, SEQUENCE, PartitionInputs

SENT = ["client", "base_timestamp_ms", "max_timestamp_ms", "count"]


def refused_sends(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Note what was refused, and for each client what cannot have been sent again here; and what was appended."""
    findings.appended = _appended(inputs)
    if not inputs.produced["error"].to_numpy().any():
        return
    refused = _unresolved(inputs)
    if not len(refused) or inputs.final is None:
        return
    refused = pl.concat(_with_accounted(inputs, of_client) for of_client in refused.partition_by("client"))
    unseen = refused.with_columns((pl.col("count").cast(pl.Int64) - pl.col("by_time")).alias("missing")).filter(
        pl.col("missing") > 0
    )
    if not len(unseen):
        return
    unsure = int((inputs.sends["outcome"] == OperationType.INFO).sum()) + len(inputs.pending)
    lacking = (
        unseen.with_columns(
            (pl.col("count").cast(pl.Int64) - pl.max_horizontal("by_time", "later") - unsure).alias("lacking")
        )
        .filter(pl.col("lacking") > 0)
        .sort("lacking", descending=True, maintain_order=True)
        .unique("client", keep="first", maintain_order=True)
    )
    findings.refused = Refused(
        batches=int(unseen["attempts"].sum()),
        clients=sorted(unseen["client"].unique().to_list()),
        errors=sorted(unseen["error"].explode().unique().to_list()),
        lacking=[
            LackingSends(client, records, since_ns, sorted(errors))
            for client, records, since_ns, errors in lacking.sort("client")
            .select("client", "lacking", "completed_ns", "error")
            .iter_rows()
        ],
    )


def _appended(inputs: PartitionInputs) -> list[Appended]:
    """Return what was appended for each client."""
    produced = inputs.produced
    if not len(produced):
        return []
    base, client, count, ended = (
        produced[name].to_numpy() for name in ("base_offset", "client", "count", "completed_ns")
    )
    there = base >= 0
    found: list[Appended] = []
    for number in np.unique(client[there]).tolist():
        own = there & (client == number)
        found.append(Appended(number, int(count[own].sum()), int(ended[own].max())))
    return found


def _unresolved(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the refused batches of which no batch of the same identity was appended, a row for the same records."""
    produced = inputs.produced.filter(pl.col("count") > 0)
    is_appended = (pl.col("error") == 0) | (pl.col("base_offset") >= 0)
    refused = produced.filter(~is_appended & ~pl.col("error").is_in(NO_COMMIT))
    fenced = (pl.col("error") == FENCED) & pl.col("producer_id").is_in(_transactional(inputs))
    refused = refused.filter(~fenced)
    if not len(refused):
        return refused
    appended = produced.filter(is_appended)
    sequenced = appended.filter(pl.col("producer_id") >= 0).select(SEQUENCE).unique()
    refused = refused.join(sequenced, on=SEQUENCE, how="anti").join(
        appended.select("crc").unique(), on="crc", how="anti"
    )
    with_sequence = refused.filter(pl.col("producer_id") >= 0).sort("completed_ns")
    once = with_sequence.unique(["client", *SEQUENCE], keep="first", maintain_order=True)
    return (
        pl.concat([once, refused.filter(pl.col("producer_id") < 0)])
        .group_by(SENT)
        .agg(
            pl.col("error").unique(),
            pl.col("completed_ns").min(),
            pl.col("created_ns").min(),
            pl.len().alias("attempts"),
        )
        .sort(SENT)
    )


def _transactional(inputs: PartitionInputs) -> list[int]:
    """Return the producer ids that have markers in the logs."""
    found: set[int] = set()
    for log in inputs.logs.values():
        found.update(log.filter((pl.col("attributes") & CONTROL) != 0)["producer_id"].to_list())
    return sorted(found)


def _with_accounted(inputs: PartitionInputs, refused: pl.DataFrame) -> pl.DataFrame:
    """Add how many records in the log have the batch's timestamps (`by_time`) or were appended later (`later`)."""
    assert inputs.final is not None
    client = refused["client"][0]
    appended = inputs.produced.filter(pl.col("base_offset") >= 0)
    others = _within(inputs.final["offset"].to_numpy(), appended.filter(pl.col("client") != client))
    stamps = np.sort(inputs.final["timestamp_ms"].to_numpy()[~others])
    base, last = (refused[name].to_numpy() for name in ("base_timestamp_ms", "max_timestamp_ms"))
    by_time = np.searchsorted(stamps, last, "right") - np.searchsorted(stamps, base, "left")
    mine = appended.filter(pl.col("client") == client).sort("completed_ns")
    so_far = np.concatenate([[0], np.cumsum(mine["count"].to_numpy().astype(np.int64))])
    before = np.searchsorted(mine["completed_ns"].to_numpy(), refused["completed_ns"].to_numpy(), "left")
    later = so_far[-1] - so_far[before]
    by_time = np.where(_timestamps_identify(inputs, refused), by_time, 0)
    return refused.with_columns(pl.Series("by_time", by_time), pl.Series("later", later))


def _timestamps_identify(inputs: PartitionInputs, refused: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return for each refused batch whether the timestamps in the log say which records are its own."""
    stamped = any(bool((log["attributes"].to_numpy() & LOG_APPEND_TIME).any()) for log in inputs.logs.values())
    clock: npt.NDArray[np.bool_] = refused["created_ns"].to_numpy() >= inputs.job.started_ns
    return clock & (not (stamped or inputs.low > 0 or inputs.job.cleaned_end))


def _within(offsets: npt.NDArray[np.int64], batches: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return for each offset whether one of the batches has it."""
    ranges = batches.select("base_offset", "last_offset").sort("base_offset")
    if not len(ranges):
        return np.zeros(len(offsets), np.bool_)
    at = np.searchsorted(ranges["base_offset"].to_numpy(), offsets, "right") - 1
    return (at >= 0) & (ranges["last_offset"].cum_max().to_numpy()[at] >= offsets)
