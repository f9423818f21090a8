"""duplicate, for producers that did not record their operations: records that are identical to the last bit (L1, L6).

Duplicates of recorded operations are in `records.py`.

Identical means key, value and timestamp. Two such records may be two legal sends within a millisecond, so there must be
evidence of a retry:

* without idempotence: a copy was appended, and its acknowledgement was not delivered; a later copy was acknowledged, or
  none was. If more than one copy was acknowledged the application itself sends identical records.
* with idempotence: the copies are in batches of the same producer id and different producer epochs, and the copy with
  the lower epoch was not acknowledged. The client sent a batch in doubt again under its next epoch, where no broker can
  recognise it (`client_epochs.py`).

Records of aborted transactions are left out: an application sends them again in its next transaction.

Where a batch has the same key, value and timestamp twice, the application sends identical records, and a copy proves
nothing. What is left without evidence is a doubt.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from .batches import sequenced_batches
from .client_epochs import describe_epochs
from .findings import DUPLICATION, Description, PartitionFindings, operation_rows
from .inputs import PartitionInputs
from .quick import repeated_values

VALUE = ["key_hash", "value_hash"]
RECORD = [*VALUE, "timestamp_ms"]
BATCH = ["base_offset", "producer_id", "producer_epoch"]


class Identical(NamedTuple):
    """How many records are identical, and where they are."""

    copies: int
    offset: list[int]


def duplicate_records(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Report identical records with evidence of a retry, and a doubt about the others."""
    if inputs.final is None or not len(inputs.produced) or not len(repeated_values(inputs)):
        return
    known = inputs.sends.select(VALUE).unique()
    unrecorded = inputs.visible().join(known, on=VALUE, how="anti")
    several = unrecorded.group_by(RECORD).len().filter(pl.col("len") > 1)
    if not len(several):
        return
    copies = _with_batches(inputs, unrecorded.join(several.select(RECORD), on=RECORD, how="semi"))
    groups = _groups(copies)
    if not len(groups):
        return
    repeated = (
        copies.filter(pl.col("base_offset") >= 0)
        .group_by([*RECORD, "base_offset"])
        .len()
        .filter(pl.col("len") > 1)
        .select(VALUE)
        .unique()
    )
    distinct = groups.join(repeated, on=VALUE, how="anti")
    wrong = distinct.filter(pl.col("retried") | pl.col("bumped")).sort("first")
    findings.duplicate_offsets.update(wrong["offset"].explode().to_list() if len(wrong) else ())
    findings.add_each("duplicate", wrong, Identical, lambda row: _describe(inputs, copies, row))
    doubtful = len(groups) - len(wrong)
    if doubtful:
        place = f"{inputs.job.topic}-{inputs.job.partition}"
        findings.doubt(
            DUPLICATION,
            f"{doubtful} records of {place} are in the log several times, identical to the last bit, and not all "
            "copies were acknowledged: whether a retry or the application wrote them cannot be judged; give each "
            "record an id and name it, verify(…, record_id=…)",
        )


def _with_batches(inputs: PartitionInputs, records: pl.DataFrame) -> pl.DataFrame:
    """Add to each record its batch, and whether it was acknowledged, sequenced, or neither (`loose`)."""
    records = records.sort("offset")
    offsets = records["offset"].to_numpy()
    batches = inputs.log_batches if inputs.logs else inputs.acked_batches
    batches = batches.select(*BATCH, "last_offset").unique("base_offset", keep="first").sort("base_offset")
    there = records.join_asof(batches, left_on="offset", right_on="base_offset", coalesce=False, check_sortedness=False)
    inside = (pl.col("last_offset") >= pl.col("offset")).fill_null(value=False)
    there = there.with_columns(pl.when(inside).then(pl.col(name)).otherwise(-1) for name in BATCH)
    acked = covered(offsets, inputs.acked_batches)
    sequenced = covered(offsets, sequenced_batches(inputs)) if inputs.logs else np.zeros(len(offsets), np.bool_)
    return there.with_columns(
        pl.Series("acked", acked), pl.Series("sequenced", sequenced), pl.Series("loose", ~acked & ~sequenced)
    )


def _groups(copies: pl.DataFrame) -> pl.DataFrame:
    """Return the identical records of which a copy may be a retry; `retried` and `bumped` are the evidence."""
    highest = pl.col("producer_epoch").max().over([*RECORD, "producer_id"])
    bumped = pl.col("sequenced") & ~pl.col("acked") & (pl.col("producer_epoch") < highest)
    loose, acked = pl.col("loose"), pl.col("acked")
    first_loose, last_acked = (pl.col("offset").filter(loose).min(), pl.col("offset").filter(acked).max())
    return (
        copies.with_columns(bumped.alias("bumped"))
        .group_by(RECORD)
        .agg(
            pl.col("offset"),
            pl.len().alias("copies"),
            pl.col("offset").min().alias("first"),
            loose.any().alias("loose"),
            pl.col("bumped").any(),
            (loose.any() & (acked.sum() <= 1) & (first_loose < last_acked).fill_null(value=True)).alias("retried"),
        )
        .filter(pl.col("loose") | pl.col("bumped"))
    )


def _describe(inputs: PartitionInputs, copies: pl.DataFrame, row: Identical) -> Description:
    same = copies.filter(pl.col("offset").is_in(row.offset))
    text = (
        f"{row.copies} records are identical to the last bit, timestamp included, and not all of them were acknowledged"
    )
    epochs = describe_epochs(inputs, row.offset) or ("a retry was appended again",)
    return row.offset, operation_rows(same, "final read"), (text, ": ", *epochs)


def covered(
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]], ranges: pl.DataFrame
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each offset whether a batch of `ranges` has it."""
    ranges = ranges.select("base_offset", "last_offset").sort("base_offset")
    if not len(ranges):
        return np.zeros(len(offsets), np.bool_)
    at = np.searchsorted(ranges["base_offset"].to_numpy(), offsets, "right") - 1
    reach = ranges["last_offset"].cum_max().to_numpy()
    return (at >= 0) & (reach[at] >= offsets)
