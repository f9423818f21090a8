"""Checks of batches: the rows of the brokers' taps, against the replicas' logs and the final read (J6, L1).

A tap identifies a batch by the CRC that the producer computed and by the batch's **last** offset (a consumer may fetch
from the middle of a batch). Where the broker set the timestamps (LogAppendTime) it rewrote the CRC, and the checks
compare only the offset.

Duplicates: an idempotent batch (producer id, producer epoch, base sequence) at two offsets. `identical_records.py` has
the check without idempotence.

Order: the sequences of a producer id and producer epoch. Without producer ids a tap does not show the order of sends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...histories.segments import CONTROL
from ..rows import OperationRow
from .early_removals import describe_early
from .findings import Description, PartitionFindings, batch_rows
from .inputs import LOG_APPEND_TIME, SEQUENCE, SEQUENCES, PartitionInputs
from .quick_batches import are_complete, confirmed_are_kept, sequences_rise
from .removals import begins_legally


class ConfirmedBatch(NamedTuple):
    """A batch of which a client has `records`; `acked`: by an acknowledgement; `held`: how many replicas have it."""

    base_offset: int
    last_offset: int
    records: int
    acked: bool
    held: int


class Offsets(NamedTuple):
    """The offsets of a batch."""

    base_offset: int
    last_offset: int


class Different(NamedTuple):
    """How many different batches have a last offset."""

    last_offset: int
    values: int


class RepeatedBatch(NamedTuple):
    """A sequence that several batches have, and where they are."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    copies: int
    base_offset: list[int]


class Decrease(NamedTuple):
    """A batch, and the one at the offset before it, which has a higher sequence."""

    producer_id: int
    producer_epoch: int
    before: int
    offset_before: int
    base_sequence: int
    base_offset: int


def confirmed_batches(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the batches that were acknowledged to a producer or delivered to a consumer, a row for each batch.

    `records`: how many records of the batch a client has; a consumer may fetch from the middle of a batch. Batches
    below the low watermark are left out, because retention may have removed them, and those below the cleaned offset,
    because compaction rewrites batches.
    """
    if not len(inputs.produced) and not len(inputs.fetched):
        return inputs.produced
    confirmed = pl.concat(
        [
            inputs.acked_batches.with_columns(pl.lit(value=True).alias("acked")),
            inputs.fetched.with_columns(pl.lit(value=False).alias("acked")),
        ]
    )
    return (
        confirmed.filter(pl.col("base_offset") >= max(inputs.low, inputs.job.cleaned_end))
        .group_by("last_offset", "crc")
        .agg(pl.col("base_offset").min(), pl.col("acked").any(), pl.col("count").max().alias("records"))
        .with_columns(
            pl.min_horizontal(pl.col("records").cast(pl.Int64), pl.col("last_offset") - pl.col("base_offset") + 1).clip(
                1
            )
        )
        .sort("last_offset", "crc")
    )


def _batches_ending_at(inputs: PartitionInputs, last_offset: int) -> list[OperationRow]:
    """Return the tap's and the logs' batches with this last offset."""
    at = pl.col("last_offset") == last_offset
    rows = batch_rows(inputs.produced.filter(at), "produced") + batch_rows(inputs.fetched.filter(at), "fetched")
    for node, log in inputs.logs.items():
        there = log.filter((pl.col("base_offset") <= last_offset) & (pl.col("last_offset") >= last_offset))
        rows += batch_rows(there.with_columns(pl.lit(node).alias("node")), "in the log")
    return rows


def _unreported(frame: pl.DataFrame, findings: PartitionFindings) -> pl.DataFrame:
    """Return the batches of which no record was reported as lost."""
    known = np.array(sorted(findings.lost_offsets), np.int64)
    if not len(known) or not len(frame):
        return frame
    first = np.searchsorted(known, frame["base_offset"].to_numpy(), "left")
    beyond = np.searchsorted(known, frame["last_offset"].to_numpy(), "right")
    return frame.filter(pl.Series(first == beyond))


def lost_batches(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """lost-write and unseen of batches."""
    if confirmed_are_kept(inputs):
        return
    confirmed = confirmed_batches(inputs)
    if not len(confirmed):
        return
    if inputs.logs:
        logs = inputs.log_batches
        rewritten = (pl.col("attributes") & LOG_APPEND_TIME) != 0
        exact = logs.group_by("last_offset", pl.col("crc").cast(pl.UInt32)).agg(pl.col("node").n_unique().alias("same"))
        any_crc = logs.filter(rewritten).group_by("last_offset").agg(pl.col("node").n_unique().alias("rewritten"))
        confirmed = (
            confirmed.join(exact, on=["last_offset", "crc"], how="left")
            .join(any_crc, on="last_offset", how="left")
            .with_columns(pl.max_horizontal(pl.col("same", "rewritten").fill_null(0)).alias("held"))
            .with_columns(pl.col("held") + _begin_after(inputs))
        )
        enough = len(inputs.logs) if converged(inputs) else 1
        lost = _unreported(confirmed.filter(pl.col("held") < enough), findings)
        findings.add_each("lost-write", lost, ConfirmedBatch, lambda row: _describe_lost(inputs, row))
        confirmed = confirmed.filter(pl.col("held") >= enough)
    if inputs.final is not None:
        unseen = _unreported(confirmed.filter(~_are_complete(confirmed, inputs.final)), findings)
        findings.add_each("unseen", unseen, Offsets, lambda row: _describe_unseen(inputs, row))


def _begin_after(inputs: PartitionInputs) -> pl.Expr:
    """Count the replicas whose log begins legally after a batch."""
    starts = [begins_legally(inputs.job, node, log) for node, log in inputs.logs.items()]
    beyond = [(pl.col("last_offset") < start).cast(pl.Int64) for start in starts if start]
    return pl.sum_horizontal(beyond) if beyond else pl.lit(0)


def converged(inputs: PartitionInputs) -> bool:
    """True when the logs of all replicas end at the same offset."""
    return len({int(log["last_offset"][-1]) if len(log) else -1 for log in inputs.logs.values()}) == 1


def _are_complete(batches: pl.DataFrame, final: pl.DataFrame) -> pl.Series:
    base, last = (batches[name].to_numpy() for name in ("base_offset", "last_offset"))
    return pl.Series(are_complete(final, base, last))


def _describe_lost(inputs: PartitionInputs, row: ConfirmedBatch) -> Description:
    event = "acknowledged" if row.acked else "delivered to a consumer"
    brokers = ", ".join(map(str, sorted(inputs.logs)))
    text = (
        f"{_records_at(row)} {event}, but {row.held} of {len(inputs.logs)} replicas (brokers {brokers}) have that "
        f"batch in their logs: lost in the brokers{describe_early(inputs.early, row.base_offset)}"
    )
    return ([row.base_offset, row.last_offset], _batches_ending_at(inputs, row.last_offset), text)


def _records_at(row: ConfirmedBatch) -> str:
    """Return "a record at offset 7 was" or "50 records at offsets 0 to 49 were"."""
    if row.base_offset == row.last_offset:
        return f"a record at offset {row.base_offset} was"
    return f"{row.records} records at offsets {row.base_offset} to {row.last_offset} were"


def _describe_unseen(inputs: PartitionInputs, row: Offsets) -> Description:
    place = (
        "the replicas' logs have it: lost on the way to the consumer"
        if inputs.logs
        else "the replicas' logs are not in the run folder"
    )
    text = (
        f"the final read does not have every record of the batch at offsets {row.base_offset} to "
        f"{row.last_offset}; {place}"
    )
    return ([row.base_offset, row.last_offset], _batches_ending_at(inputs, row.last_offset), text)


def inconsistent_batches(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """inconsistent-offsets: two batches with the same last offset, among acknowledgements, deliveries and logs."""
    if confirmed_are_kept(inputs):
        return
    confirmed = confirmed_batches(inputs)
    if not len(confirmed):
        return
    ends = [confirmed.select("last_offset", "crc", "records")]
    if inputs.logs:
        logs = inputs.log_batches
        stamped = logs.filter((pl.col("attributes") & LOG_APPEND_TIME) != 0)["last_offset"]
        kept = logs.filter(pl.col("crc_good")).select(
            "last_offset", pl.col("crc").cast(pl.UInt32), pl.col("count").alias("records")
        )
        ends = [ends[0].filter(~pl.col("last_offset").is_in(stamped.unique().implode())), kept.unique()]
        mentioned = ends[0]["last_offset"].unique()
        ends[1] = ends[1].filter(pl.col("last_offset").is_in(mentioned.implode()))
    bad = (
        pl.concat(ends)
        .group_by("last_offset")
        .agg(pl.col("crc").n_unique().alias("values"), pl.col("records").max())
        .filter(pl.col("values") > 1)
        .sort("last_offset")
    )
    bad = _unreported(bad.with_columns(pl.col("last_offset").alias("base_offset")), findings)
    findings.add_each(
        "inconsistent-offsets",
        bad,
        Different,
        lambda row: (
            [row.last_offset],
            _batches_ending_at(inputs, row.last_offset),
            f"{row.values} different batches have the last offset {row.last_offset}, expected the same batch",
        ),
    )


def sequenced_batches(inputs: PartitionInputs) -> pl.DataFrame:
    """Return idempotent data batches by base offset: those of the logs, or without logs the acknowledged ones."""
    frame = inputs.acked_batches
    if inputs.logs:
        frame = inputs.log_batches.filter((pl.col("attributes") & CONTROL) == 0)
    if not len(frame):
        return frame
    return (
        frame.filter((pl.col("producer_id") >= 0) & (pl.col("base_sequence") >= 0))
        .unique([*SEQUENCE, "base_offset"], keep="first", maintain_order=True)
        .sort("base_offset", "base_sequence")
    )


def duplicate_batches(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """duplicate: the same sequence of a producer id and producer epoch at two offsets."""
    if sequences_rise(inputs):
        return
    frame = sequenced_batches(inputs)
    if not len(frame):
        return
    bad = (
        frame.group_by(SEQUENCE)
        .agg(pl.col("base_offset"), pl.len().alias("copies"), pl.col("count").max().alias("records"))
        .filter(pl.col("copies") > 1)
        .with_columns(pl.col("base_offset").list.first().alias("first"))
        .sort("first")
    )

    def describe(row: RepeatedBatch) -> Description:
        same = frame.filter(pl.col("base_offset").is_in(row.base_offset))
        text = (
            f"the log has the batch with base sequence {row.base_sequence} of producer id {row.producer_id}, "
            f"producer epoch {row.producer_epoch}, {row.copies} times, expected once"
        )
        return row.base_offset, batch_rows(same, "in the log"), text

    findings.add_each("duplicate", bad, RepeatedBatch, describe)


def sequence_order(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """nonmonotonic-send: a producer id's sequences decrease along the offsets (after 2^31 - 1 follows 0)."""
    if sequences_rise(inputs):
        return
    group = ["producer_id", "producer_epoch"]
    frame = sequenced_batches(inputs)
    if not len(frame):
        return
    frame = frame.unique([*group, "base_sequence"], keep="first", maintain_order=True)
    step = (pl.col("base_sequence").cast(pl.Int64) - pl.col("before").cast(pl.Int64)) % SEQUENCES
    bad = (
        frame.with_columns(
            pl.col("base_sequence").shift(1).over(group).alias("before"),
            pl.col("base_offset").shift(1).over(group).alias("offset_before"),
        )
        .filter(step >= SEQUENCES // 2)
        .with_columns(pl.col("count").alias("records"))
        .sort("base_offset")
    )

    def describe(row: Decrease) -> Description:
        pair = frame.filter(pl.col("base_offset").is_in([row.offset_before, row.base_offset]))
        text = (
            f"producer id {row.producer_id}, producer epoch {row.producer_epoch}: the batch with base sequence "
            f"{row.base_sequence} is at offset {row.base_offset}, after base sequence {row.before} "
            f"at offset {row.offset_before}"
        )
        return [row.offset_before, row.base_offset], batch_rows(pair, "in the log"), text

    findings.add_each("nonmonotonic-send", bad, Decrease, describe)
