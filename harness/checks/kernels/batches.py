"""Checks on batches: what the brokers' taps saw, against the replicas' logs and the final read (J6, L1).

The tap names a batch by the CRC its producer gave it and by its **last** offset (a reader may ask from a batch's
middle). Where the broker set the timestamps (LogAppendTime) it rewrote the CRC, and only the offset is compared.

Duplicates: an idempotent batch (producer id, epoch, first sequence) at two offsets; without idempotence a record
identical to the last bit, time included, at several offsets of which at least one was not acknowledged by a
delivered response (a retry whose first attempt's answer was lost). An identical pair, both acknowledged, is two
legal sends. Order: sequences of one producer id and epoch; without producer ids a tap cannot know it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from .found import Found, Row, batches, operations
from .inputs import CONTROL, LOG_APPEND_TIME, Inputs

SEQUENCES = 2**31
RECORD = ["key_hash", "value_hash", "timestamp_ms"]


def log_batches(inputs: Inputs) -> pl.DataFrame:
    """Every replica's batches, with the node."""
    return pl.concat(
        [
            log.with_columns(pl.lit(node, pl.Int32).alias("node"))
            for node, log in inputs.logs.items()
        ]
    )


def told_batches(inputs: Inputs) -> pl.DataFrame:
    """Batches that a client was told of, by acknowledgement or delivery, one row each; retention set aside."""
    if not len(inputs.produced) and not len(inputs.fetched):
        return inputs.produced
    told = pl.concat(
        [
            inputs.acked_batches.with_columns(pl.lit(value=True).alias("acked")),
            inputs.fetched.with_columns(pl.lit(value=False).alias("acked")),
        ]
    )
    return (
        told.filter(pl.col("base_offset") >= inputs.low)
        .group_by("last_offset", "crc")
        .agg(pl.col("base_offset").min(), pl.col("acked").any())
        .sort("last_offset", "crc")
    )


def _rows_of(inputs: Inputs, last_offset: int) -> list[Row]:
    at = pl.col("last_offset") == last_offset
    rows = batches(inputs.produced.filter(at), "produced") + batches(
        inputs.fetched.filter(at), "fetched"
    )
    for node, log in inputs.logs.items():
        there = log.filter(
            (pl.col("base_offset") <= last_offset) & (pl.col("last_offset") >= last_offset)
        )
        rows += batches(there.with_columns(pl.lit(node).alias("node")), "in the log")
    return rows


def _unreported(frame: pl.DataFrame, found: Found) -> pl.DataFrame:
    """Without those batches of which a record is reported already."""
    known = np.array(sorted(found.lost_offsets), np.int64)
    if not len(known) or not len(frame):
        return frame
    first = np.searchsorted(known, frame["base_offset"].to_numpy(), "left")
    beyond = np.searchsorted(known, frame["last_offset"].to_numpy(), "right")
    return frame.filter(pl.Series(first == beyond))


def lost_batches(inputs: Inputs, found: Found) -> None:
    """lost-write and unseen of batches."""
    told = told_batches(inputs)
    if not len(told):
        return
    if inputs.logs:
        logs = log_batches(inputs)
        rewritten = (pl.col("attributes") & LOG_APPEND_TIME) != 0
        exact = logs.group_by("last_offset", pl.col("crc").cast(pl.UInt32)).agg(
            pl.col("node").n_unique().alias("same")
        )
        anyhow = (
            logs.filter(rewritten)
            .group_by("last_offset")
            .agg(pl.col("node").n_unique().alias("rewritten"))
        )
        told = (
            told.join(exact, on=["last_offset", "crc"], how="left")
            .join(anyhow, on="last_offset", how="left")
            .with_columns(pl.max_horizontal(pl.col("same", "rewritten").fill_null(0)).alias("held"))
        )
        enough = len(inputs.logs) if converged(inputs) else 1
        lost = _unreported(told.filter(pl.col("held") < enough), found)
        found.many("lost-write", lost, lambda row: _tell_lost(inputs, row))
        told = told.filter(pl.col("held") >= enough)
    if inputs.final is not None:
        unseen = _unreported(told.filter(~_whole(told, inputs.final)), found)
        found.many("unseen", unseen, lambda row: _tell_unseen(inputs, row))


def converged(inputs: Inputs) -> bool:
    """True when every replica's log ends at the same offset."""
    return (
        len({int(log["last_offset"][-1]) if len(log) else -1 for log in inputs.logs.values()}) == 1
    )


def _whole(told: pl.DataFrame, final: pl.DataFrame) -> pl.Series:
    there = final["offset"].to_numpy()
    first = np.searchsorted(there, told["base_offset"].to_numpy(), "left")
    beyond = np.searchsorted(there, told["last_offset"].to_numpy(), "right")
    return pl.Series(beyond - first >= (told["last_offset"] - told["base_offset"] + 1).to_numpy())


def _tell_lost(inputs: Inputs, row: Row) -> tuple[list[int], list[Row], str]:
    who = "acknowledged" if row["acked"] else "delivered to a reader"
    text = f"batch {who}, but only {row['held']} of {len(inputs.logs)} replicas' logs hold it: lost in the brokers"
    return [row["base_offset"], row["last_offset"]], _rows_of(inputs, row["last_offset"]), text


def _tell_unseen(inputs: Inputs, row: Row) -> tuple[list[int], list[Row], str]:
    where = "the replicas' logs hold it" if inputs.logs else "no replica's log is at hand"
    text = f"batch not whole in the final read ({where})"
    return [row["base_offset"], row["last_offset"]], _rows_of(inputs, row["last_offset"]), text


def inconsistent_batches(inputs: Inputs, found: Found) -> None:
    """inconsistent-offsets: two batches that end at one offset, among what was acknowledged, delivered and kept."""
    batches_told = told_batches(inputs)
    if not len(batches_told):
        return
    told = [batches_told.select("last_offset", "crc")]
    if inputs.logs:
        logs = log_batches(inputs)
        stamped = logs.filter((pl.col("attributes") & LOG_APPEND_TIME) != 0)["last_offset"]
        kept = logs.filter(pl.col("crc_good")).select("last_offset", pl.col("crc").cast(pl.UInt32))
        told = [
            told[0].filter(~pl.col("last_offset").is_in(stamped.unique().implode())),
            kept.unique(),
        ]
        mentioned = told[0]["last_offset"].unique()
        told[1] = told[1].filter(pl.col("last_offset").is_in(mentioned.implode()))
    bad = (
        pl.concat(told).group_by("last_offset").agg(pl.col("crc").n_unique().alias("values"))
        .filter(pl.col("values") > 1).sort("last_offset")
    )  # fmt: skip
    bad = _unreported(bad.with_columns(pl.col("last_offset").alias("base_offset")), found)
    found.many(
        "inconsistent-offsets",
        bad,
        lambda row: (
            [row["last_offset"]],
            _rows_of(inputs, row["last_offset"]),
            f"{row['values']} different batches end at one offset",
        ),
    )


def _sequenced(inputs: Inputs) -> pl.DataFrame:
    """Idempotent data batches as the log has them (else as they were acknowledged), one row a base offset."""
    frame = inputs.acked_batches
    if inputs.logs:
        frame = log_batches(inputs).filter((pl.col("attributes") & CONTROL) == 0)
    if not len(frame):
        return frame
    return (
        frame.filter((pl.col("producer_id") >= 0) & (pl.col("base_sequence") >= 0))
        .unique(["producer_id", "producer_epoch", "base_sequence", "base_offset"], keep="first", maintain_order=True)
        .sort("base_offset", "base_sequence")
    )  # fmt: skip


def duplicate_batches(inputs: Inputs, found: Found) -> None:
    """duplicate: one sequence of one producer id at two offsets."""
    frame = _sequenced(inputs)
    if not len(frame):
        return
    identity = ["producer_id", "producer_epoch", "base_sequence"]
    bad = (
        frame.group_by(identity).agg(pl.col("base_offset"), pl.len().alias("copies"))
        .filter(pl.col("copies") > 1)
        .with_columns(pl.col("base_offset").list.first().alias("first")).sort("first")
    )  # fmt: skip

    def tell(row: Row) -> tuple[list[int], list[Row], str]:
        same = frame.filter(pl.col("base_offset").is_in(row["base_offset"]))
        text = (
            f"sequence {row['base_sequence']} of producer {row['producer_id']} epoch {row['producer_epoch']} "
            f"is in the log {row['copies']} times"
        )
        return row["base_offset"], batches(same, "in the log"), text

    found.many("duplicate", bad, tell)


def duplicate_records(inputs: Inputs, found: Found) -> None:
    """Duplicate without idempotence: identical records, one of them never acknowledged by a delivered response."""
    if inputs.final is None or not len(inputs.produced):
        return
    known = inputs.sends.select("key_hash", "value_hash").unique()
    final = inputs.final.join(known, on=["key_hash", "value_hash"], how="anti").sort("offset")
    offsets = final["offset"].to_numpy()
    acked = _covered(offsets, inputs.acked_batches)
    sequenced = (
        _covered(offsets, _sequenced(inputs)) if inputs.logs else np.zeros(len(offsets), np.bool_)
    )
    suspect = pl.Series("suspect", ~acked & ~sequenced)
    bad = (
        final.with_columns(suspect)
        .group_by(RECORD).agg(pl.col("offset"), pl.len().alias("copies"), pl.col("suspect").any())
        .filter(pl.col("suspect") & (pl.col("copies") > 1))
        .with_columns(pl.col("offset").list.first().alias("first")).sort("first")
    )  # fmt: skip

    def tell(row: Row) -> tuple[list[int], list[Row], str]:
        same = final.filter(pl.col("offset").is_in(row["offset"]))
        text = (
            f"identical to the last bit at {row['copies']} offsets, and not all were acknowledged"
        )
        return row["offset"], operations(same, "final read"), text

    found.many("duplicate", bad, tell)


def _covered(offsets: np.ndarray[tuple[int], np.dtype[np.int64]], ranges: pl.DataFrame) -> np.ndarray[
    tuple[int], np.dtype[np.bool_]
]:  # fmt: skip
    """Which offsets lie in one of the batches."""
    ranges = ranges.select("base_offset", "last_offset").sort("base_offset")
    if not len(ranges):
        return np.zeros(len(offsets), np.bool_)
    at = np.searchsorted(ranges["base_offset"].to_numpy(), offsets, "right") - 1
    reach = ranges["last_offset"].cum_max().to_numpy()
    return (at >= 0) & (reach[at] >= offsets)


def sequence_order(inputs: Inputs, found: Found) -> None:
    """nonmonotonic-send: sequences of one producer id and epoch go back along the offsets (2^31 wraps to 0)."""
    group = ["producer_id", "producer_epoch"]
    frame = _sequenced(inputs)
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
        .sort("base_offset")
    )

    def tell(row: Row) -> tuple[list[int], list[Row], str]:
        pair = frame.filter(pl.col("base_offset").is_in([row["offset_before"], row["base_offset"]]))
        who = f"producer {row['producer_id']} epoch {row['producer_epoch']}"
        text = f"{who}: sequence {row['base_sequence']} lies after {row['before']}"
        return [row["offset_before"], row["base_offset"]], batches(pair, "in the log"), text

    found.many("nonmonotonic-send", bad, tell)
