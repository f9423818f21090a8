"""realtime-order: the log order of acknowledged records contradicts the order in which they were sent (L1).

A broker appends a record at the end of the log, so a record whose send began after another record was acknowledged has
the higher offset: whichever clients sent them, also with retries, idempotence and transactions, because an
acknowledgement follows the append, and an append follows the begin of its send. Both records must be in the final read
at their offsets: after a loss the offsets are given again, legally with acks=1. Times are of one clock
(`histories/format.py`); a history without the begin of its sends has none that contradicts.

The taps show the same of batches, also of clients without recorders: a broker read the request of a batch after the
response for another batch was ready. The retry of an idempotent batch gets the offset of the first attempt, which is
legal. So such a batch counts from its first attempt on, and only where the tap of every leader has a row for each
attempt (`PartitionJob.whole_taps`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationType
from . import quick
from .findings import Description, PartitionFindings, batch_rows, operation_rows
from .inputs import BATCH_SCHEMA, OPS_SCHEMA, SEQUENCE, PartitionInputs

NAME = "realtime-order"
IDENTITY = ["offset", "key_hash", "value_hash"]
BATCH = ["last_offset", "crc"]
Column = npt.NDArray[np.int64]


class LateSend(NamedTuple):
    """A send that began too late for its offset."""

    offset: int
    invoked_ns: int


class LateBatch(NamedTuple):
    """A batch of which the request was read too late for its offset."""

    base_offset: int
    invoked_ns: int


def real_time_order(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """realtime-order: a record's send began after a record with a higher offset was acknowledged."""
    if inputs.final is None or quick.in_real_time_order(inputs):
        return
    kept = (
        inputs.sends.filter((pl.col("outcome") == OperationType.OK) & (pl.col("offset") >= 0))
        .join(inputs.final.select(IDENTITY), on=IDENTITY, how="semi")
        .sort("offset", "time_ns", "op")
    )
    offset, invoked, time = (kept[name].to_numpy() for name in ("offset", "invoked_ns", "time_ns"))
    if not len(offset):
        return
    bad = _sent_too_late(offset, invoked, time)

    def describe(row: LateSend) -> Description:
        first = int(np.count_nonzero(offset <= row.offset))
        at = first + int(np.argmin(time[first:]))
        pair = kept.filter(pl.col("offset").is_in([row.offset, int(offset[at])]))
        text = (
            f"the send of the record at offset {row.offset} began {_ms(row.invoked_ns - int(time[at]))} after "
            f"the record at offset {offset[at]} was acknowledged, expected a higher offset than that"
        )
        return [row.offset, int(offset[at])], operation_rows(pair.select(*OPS_SCHEMA)), text

    found = kept.filter(pl.Series("bad", bad)).unique("offset", keep="first", maintain_order=True)
    findings.add_each(NAME, found, LateSend, describe)


def _sent_too_late(offset: Column, invoked: Column, time: Column) -> npt.NDArray[np.bool_]:
    """Return which were sent after one with a higher offset was acknowledged; `offset` ascends."""
    assert len(offset) == len(invoked) == len(time), (len(offset), len(invoked), len(time))
    assert (np.diff(offset) >= 0).all(), "offsets are searched and do not ascend"
    earliest = np.minimum.accumulate(time[::-1])[::-1]
    following = np.searchsorted(offset, offset, "right")  # the first with a higher offset
    inside = following < len(offset)
    bad = np.zeros(len(offset), np.bool_)
    bad[inside] = earliest[following[inside]] < invoked[inside]
    return bad


def batches_in_real_time_order(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """realtime-order of batches that no recorded send accounts for."""
    if _responded_in_order(inputs):
        return
    kept = _timed_batches(inputs)
    if len(kept) < 2:
        return
    offset, invoked, time = (kept[name].to_numpy() for name in ("base_offset", "invoked_ns", "completed_ns"))
    bad = kept.filter(pl.Series(_sent_too_late(offset, invoked, time)))
    known = inputs.acknowledged_by_offset().offset
    first = np.searchsorted(known, bad["base_offset"].to_numpy(), "left")
    beyond = np.searchsorted(known, bad["last_offset"].to_numpy(), "right")

    def describe(row: LateBatch) -> Description:
        later = kept.filter(pl.col("base_offset") > row.base_offset).sort("completed_ns", "base_offset")
        other = later["base_offset"][0]
        pair = inputs.produced.join(kept.select(BATCH), on=BATCH, how="semi").filter(
            pl.col("base_offset").is_in([row.base_offset, other])
        )
        after = _ms(row.invoked_ns - later["completed_ns"][0])
        text = (
            f"a broker read the request with the batch at offset {row.base_offset} {after} after the response for "
            f"the batch at offset {other} was ready, expected a higher offset than that"
        )
        return [row.base_offset, other], batch_rows(pair, "produced"), text

    findings.add_each(NAME, bad.filter(pl.Series(first == beyond)), LateBatch, describe)


def _responded_in_order(inputs: PartitionInputs) -> bool:
    """Whether no request was read after a response with a higher offset was ready, which is usual."""
    columns: list[Column] = [inputs.produced[name].to_numpy() for name in ("base_offset", "invoked_ns", "completed_ns")]
    offset = columns[0]
    rows = np.flatnonzero(offset >= 0)
    rows = rows[np.argsort(offset[rows], kind="stable")]
    return not len(rows) or not _sent_too_late(*(column[rows] for column in columns)).any()


def _timed_batches(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the batches that are in the final read as a tap saw them, by offset.

    `invoked_ns`: a broker read the first request with the batch, or 0 where an earlier request may have no row.
    `completed_ns`: the last response for it was ready.
    """
    produced = inputs.produced
    if inputs.final is None or not inputs.logs:
        return pl.DataFrame(schema=BATCH_SCHEMA)
    first = produced.group_by(SEQUENCE).agg(pl.col("invoked_ns").min().alias("first_ns"))
    each = inputs.job.taps_of_all_leaders
    began = pl.when(pl.col("producer_id") < 0).then("invoked_ns").otherwise(pl.col("first_ns") if each else 0)
    return (
        produced.filter((pl.col("error") == 0) & (pl.col("base_offset") >= 0))
        .join(_agreed(inputs), on=BATCH, how="semi")
        .join(inputs.final.select("offset"), left_on="base_offset", right_on="offset", how="semi")
        .join(first, on=SEQUENCE, how="left")
        .group_by(BATCH)
        .agg(
            pl.col("base_offset").min(),
            began.min().alias("invoked_ns"),
            pl.col("completed_ns").max(),
            pl.col("count").max().alias("records"),
        )
        .sort("base_offset", "last_offset", "crc")
    )


def _agreed(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the batches of the logs of which no replica has another version."""
    logs = inputs.log_batches.select("last_offset", pl.col("crc").cast(pl.UInt32)).unique()
    return logs.filter(pl.len().over("last_offset") == 1)


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.3f} ms"
