"""The transactions of one topic-partition: its batches in a replica's log, with what their coordinator decided.

`transactional_batches` has a row for each data batch of a transaction: where its marker is, and whether the marker
aborts. `decided` adds the first decision of the coordinator after the batch was produced. A producer of an old version
uses one producer epoch for several transactions, so that producer id and epoch do not suffice to find the decision; the
time does, because a producer sends the records of a transaction before it ends the transaction, and those of the next
one after that.

The rows of coordinators are on the disk before any marker is sent, so a decision that is later than a delivery was not
yet made at the delivery.
"""

from __future__ import annotations

import polars as pl
from harrow.cluster.host.seam import COMPLETE_ABORT, COMPLETE_COMMIT, END_UNKNOWN, PREPARE_ABORT, PREPARE_COMMIT

from ...histories.segments import ABORT_MARKER, CONTROL, TRANSACTIONAL
from .inputs import PartitionInputs

PRODUCER = ["producer_id", "producer_epoch"]
COMMITS, ABORTS = (PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)
NEVER_NS = 2**62


def transactional_batches(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the batches of transactions in the longest log: `marker` (null: none yet), `aborted`, `produced_ns`.

    Compaction removes markers, so the cleaned part of a log has no transactions. `produced_ns` is the first request
    with the batch that a tap has, 0 without one.
    """
    if inputs.in_transactions is None:
        inputs.in_transactions = _transactional_batches(inputs)
    return inputs.in_transactions


def _transactional_batches(inputs: PartitionInputs) -> pl.DataFrame:
    logs = [log for log in inputs.logs.values() if len(log)]
    if not logs:
        return pl.DataFrame()
    log = max(logs, key=lambda log: int(log["last_offset"][-1]))
    if not (log["attributes"].to_numpy() & TRANSACTIONAL).any():
        return pl.DataFrame()
    is_control = (pl.col("attributes") & CONTROL) != 0
    rows = (
        log.filter(((pl.col("attributes") & TRANSACTIONAL) != 0) & (pl.col("base_offset") >= inputs.job.cleaned_end))
        .with_columns(
            pl.when(is_control).then("base_offset").alias("marker"),
            pl.when(is_control).then((pl.col("attributes") & ABORT_MARKER) != 0).alias("aborted"),
        )
        .with_columns(pl.col("marker", "aborted").backward_fill().over("producer_id"))
        .filter(~is_control)
    )
    return _with_times(inputs, rows)


def _with_times(inputs: PartitionInputs, rows: pl.DataFrame) -> pl.DataFrame:
    # with an old version the transaction after an aborted one has the same epoch, and may begin with the same sequence
    identity = [*PRODUCER, "base_sequence", "crc"]
    produced = inputs.produced.group_by(identity).agg(pl.col("invoked_ns").min().alias("produced_ns"))
    produced = produced.cast({"producer_epoch": pl.Int64, "base_sequence": pl.Int64, "crc": pl.Int64})
    return rows.join(produced, on=identity, how="left", maintain_order="left").with_columns(
        pl.col("produced_ns").fill_null(0)
    )


def log_transactions(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the transactions of the log by their first offset, with `decided` and `decided_ns` of the coordinator.

    `decided`: true for a commit, null where the coordinator decided nothing, or where its rows do not say what.
    """
    if inputs.transactions is None:
        inputs.transactions = _log_transactions(inputs)
    return inputs.transactions


def _log_transactions(inputs: PartitionInputs) -> pl.DataFrame:
    batches = transactional_batches(inputs)
    if not len(batches):
        return batches
    found = (
        batches.group_by("producer_id", "producer_epoch", "marker", maintain_order=True)
        .agg(
            pl.col("base_offset").min(),
            pl.col("last_offset").max(),
            pl.col("aborted").first(),
            pl.col("produced_ns").max(),
            pl.col("count").sum().alias("size"),
        )
        .sort("base_offset")
    )
    return _with_decisions(inputs, found)


def _with_decisions(inputs: PartitionInputs, found: pl.DataFrame) -> pl.DataFrame:
    """Add the first decision after the records were produced; without their times only where all decisions agree."""
    states = [*COMMITS, *ABORTS, END_UNKNOWN]
    rows = inputs.coordinators.transactions.filter(pl.col("state").is_in(states))
    known = pl.when(pl.col("state") != END_UNKNOWN)
    decisions = (
        rows.with_columns(known.then(pl.col("state").is_in(list(COMMITS))).alias("decided"))
        .cast({"producer_epoch": pl.Int64})
        .with_columns(
            (pl.col("decided").n_unique().over(PRODUCER) > 1).alias("mixed"), pl.col("time_ns").alias("decided_ns")
        )
        .sort("time_ns")
    )
    joined = found.sort("produced_ns").join_asof(
        decisions.select(*PRODUCER, "decided", "mixed", "time_ns", "decided_ns"),
        left_on="produced_ns",
        right_on="time_ns",
        by=PRODUCER,
        strategy="forward",
        check_sortedness=False,
    )
    unclear = (pl.col("produced_ns") == 0) & pl.col("mixed")
    return joined.with_columns(
        pl.when(~unclear).then(pl.col("decided")).alias("decided"),
        pl.when(~unclear).then(pl.col("decided_ns")).alias("decided_ns"),
    ).sort("base_offset")
