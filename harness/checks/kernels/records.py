"""Checks on records: what recorders saw, against the final read and the replicas' logs (L1).

Legal, and therefore not reported: gaps between offsets; an operation of unknown outcome in the log or not (but
at most once); sends that were never acknowledged in any order; a reader that jumps where its position was set
anew; anything below the low watermark (retention).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationFunction
from . import quick
from .found import Found, Row, operations
from .inputs import Inputs

IDENTITY = ["key_hash", "value_hash"]
CLAIM = ["kind", "offset", *IDENTITY]


def holders(inputs: Inputs, offsets: pl.Series) -> npt.NDArray[np.int64]:
    """In how many replicas' logs each offset lies."""
    wanted = offsets.to_numpy()
    held = np.zeros(len(wanted), np.int64)
    for log in inputs.logs.values():
        if len(log):
            at = np.searchsorted(log["base_offset"].to_numpy(), wanted, "right") - 1
            held += (at >= 0) & (log["last_offset"].to_numpy()[at] >= wanted)
    return held


def claims(inputs: Inputs) -> pl.DataFrame:
    """What clients were told of offsets: acknowledged sends and reads."""
    told = [inputs.acked, inputs.polls.filter(pl.col("kind") == OperationFunction.POLL)]
    return pl.concat([frame.select(CLAIM) for frame in told]).filter(
        (pl.col("offset") >= 0) & (pl.col("offset") >= inputs.low)
    )


def _of_offset(inputs: Inputs, offset: int) -> list[Row]:
    at = pl.col("offset") == offset
    rows = operations(inputs.sends.filter(at)) + operations(inputs.polls.filter(at))
    if inputs.final is not None:
        rows += operations(inputs.final.filter(at), "final read")
    return rows


def lost_writes(inputs: Inputs, found: Found) -> None:
    """lost-write and unseen: what a client was told of is not where it was."""
    if quick.agrees(inputs):
        return
    told = claims(inputs)
    if inputs.final is None:
        _lost_in_logs(inputs, found, told)
        return
    final = inputs.final.select(
        "offset", *(pl.col(name).alias(f"final_{name}") for name in IDENTITY)
    )
    judged = told.join(final, on="offset", how="left")
    missing = pl.col("final_value_hash").is_null()
    changed = (pl.col("key_hash") != pl.col("final_key_hash")) | (
        pl.col("value_hash") != pl.col("final_value_hash")
    )
    bad = (
        judged.with_columns(missing.alias("missing"))
        .filter(pl.col("missing") | changed)
        .group_by("offset")
        .agg(
            pl.col("missing").all(), (pl.col("kind") == OperationFunction.SEND).any().alias("acked")
        )
        .sort("offset")
    )
    held = holders(inputs, bad["offset"])
    high = inputs.high if inputs.high is not None else 0
    everywhere = held == len(inputs.logs) if inputs.logs else bad["offset"].to_numpy() < high
    bad = bad.with_columns(
        pl.Series("unseen", bad["missing"].to_numpy() & everywhere), pl.Series("held", held)
    )
    found.lost_offsets.update(bad["offset"].to_list())
    found.many("lost-write", bad.filter(~pl.col("unseen")), lambda row: _tell_lost(inputs, row))
    found.many("unseen", bad.filter("unseen"), lambda row: _tell_unseen(inputs, row))


def _tell_lost(inputs: Inputs, row: Row) -> tuple[list[int], list[Row], str]:
    who = "acknowledged" if row["acked"] else "delivered to a reader"
    if not row["missing"]:
        how = "another record lies at its offset: lost in the brokers"
    elif inputs.logs:
        how = f"{row['held']} of {len(inputs.logs)} replicas' logs hold its offset: lost in the brokers"
    else:
        how = f"its offset is not below the final high watermark {inputs.high}"
    return [row["offset"]], _of_offset(inputs, row["offset"]), f"{who}, but {how}"


def _tell_unseen(inputs: Inputs, row: Row) -> tuple[list[int], list[Row], str]:
    where = (
        "every replica's log holds its offset"
        if inputs.logs
        else "it is below the final high watermark"
    )
    return (
        [row["offset"]],
        _of_offset(inputs, row["offset"]),
        f"{where}, but the final read did not give it: lost on the way to the reader",
    )


def _lost_in_logs(inputs: Inputs, found: Found, told: pl.DataFrame) -> None:
    """Without a final read only the presence of offsets in the logs can be judged."""
    if not inputs.logs:
        return
    offsets = told.select("offset").unique().sort("offset")
    held = holders(inputs, offsets["offset"])
    bad = offsets.with_columns(pl.Series("held", held)).filter(pl.col("held") == 0)
    found.lost_offsets.update(bad["offset"].to_list())
    found.many(
        "lost-write",
        bad,
        lambda row: (
            [row["offset"]],
            _of_offset(inputs, row["offset"]),
            "no replica's log holds its offset: lost in the brokers",
        ),
    )


def lost_without_offset(inputs: Inputs, found: Found) -> None:
    """lost-write of sends acknowledged without an offset: fewer copies in the log than sends.

    With acks=0, and where librdkafka infers from a later success that an earlier request was persisted.
    """
    if not (inputs.sends["offset"].to_numpy() < 0).any():
        return
    nameless = inputs.acked.filter(pl.col("offset") < 0)
    if inputs.final is None or inputs.low > 0 or not len(nameless):
        return
    sent = inputs.acked.group_by(IDENTITY).agg(
        pl.len().alias("sent"), (pl.col("offset") < 0).sum().alias("nameless")
    )
    there = inputs.final.group_by(IDENTITY).agg(pl.len().alias("there"))
    short = (
        sent.filter(pl.col("nameless") > 0)
        .join(there, on=IDENTITY, how="left")
        .with_columns(pl.col("there").fill_null(0))
        .filter(pl.col("there") < pl.col("sent"))
        .with_columns(
            pl.min_horizontal(
                pl.col("sent").cast(pl.Int64) - pl.col("there"), pl.col("nameless")
            ).alias("lost")
        )
        .sort(IDENTITY)
    )
    each = short.select(pl.all().repeat_by("lost")).explode(*short.columns) if len(short) else short

    def tell(row: Row) -> tuple[list[int], list[Row], str]:
        mine = nameless.filter(
            (pl.col("key_hash") == row["key_hash"]) & (pl.col("value_hash") == row["value_hash"])
        )
        return (
            [],
            operations(mine),
            f"sent {row['sent']} times, in the final read {row['there']} times",
        )

    found.many("lost-write", each, tell)


def inconsistent_offsets(inputs: Inputs, found: Found) -> None:
    """inconsistent-offsets: two values for one offset, between acknowledgements, reads and the final read."""
    if quick.agrees(inputs):
        return
    frames = [claims(inputs)]
    if inputs.final is not None:
        frames.append(inputs.final.select(CLAIM))
    key, value = pl.col("key_hash"), pl.col("value_hash")
    bad = (
        pl.concat(frames)
        .group_by("offset")
        .agg(((key.min() != key.max()) | (value.min() != value.max())).alias("bad"))
        .filter("bad")
        .sort("offset")
    )
    found.many(
        "inconsistent-offsets",
        bad,
        lambda row: (
            [row["offset"]],
            _of_offset(inputs, row["offset"]),
            "two records under one offset",
        ),
    )


def duplicates(inputs: Inputs, found: Found) -> None:
    """duplicate: a recorded record is in the final read more often than it can have been sent."""
    if inputs.final is None or quick.unrepeated(inputs):
        return
    sent = pl.concat([inputs.sends.select(IDENTITY), inputs.pending.select(IDENTITY)])
    counted = sent.group_by(IDENTITY).agg(pl.len().alias("sent"))
    there = inputs.final.group_by(IDENTITY).agg(pl.len().alias("there"), pl.col("offset"))
    bad = (
        there.join(counted, on=IDENTITY)
        .filter(pl.col("there") > pl.col("sent"))
        .with_columns(pl.col("offset").list.first().alias("first"))
        .sort("first")
    )

    def tell(row: Row) -> tuple[list[int], list[Row], str]:
        same = (pl.col("key_hash") == row["key_hash"]) & (pl.col("value_hash") == row["value_hash"])
        assert inputs.final is not None
        rows = operations(inputs.sends.filter(same)) + operations(
            inputs.final.filter(same), "final read"
        )
        return row["offset"], rows, f"sent {row['sent']} times, in the log {row['there']} times"

    found.many("duplicate", bad, tell)


def send_order(inputs: Inputs, found: Found) -> None:
    """nonmonotonic-send: acknowledged sends of one client with one key lie out of the order of their invocation."""
    if quick.in_order(inputs):
        return
    group = ["client", "key_hash"]
    # neighbours after one sort: a window over as many groups as there are keys takes ten times as long
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in group)
    bad = (
        inputs.acked.filter(pl.col("offset") >= 0)
        .sort(*group, "op")
        .with_columns(
            pl.col("offset").shift(1).alias("before"), pl.col("op").shift(1).alias("op_before")
        )
        .filter(same & (pl.col("offset") < pl.col("before")))
        .sort("offset")
    )

    def tell(row: Row) -> tuple[list[int], list[Row], str]:
        pair = inputs.sends.filter(
            (pl.col("client") == row["client"]) & pl.col("op").is_in([row["op_before"], row["op"]])
        ).sort("op")
        text = (
            f"operation {row['op_before']} went before {row['op']}, yet lies after it "
            f"({row['before']} > {row['offset']})"
        )
        return [row["offset"], row["before"]], operations(pair), text

    found.many("nonmonotonic-send", bad, tell)


def reading_order(inputs: Inputs, found: Found) -> None:
    """nonmonotonic-poll and poll-skip: a reader whose position was not set anew went back, or over a record."""
    if quick.read_in_order(inputs):
        return
    group = ["client", "session"]
    steps = (
        inputs.polls.sort("client", "op")
        .with_columns(
            (pl.col("kind") == OperationFunction.BREAK).cum_sum().over("client").alias("session")
        )
        .filter(pl.col("kind") == OperationFunction.POLL)
        .with_columns(
            pl.col("offset").shift(1).over(group).alias("before"),
            pl.col("op").shift(1).over(group).alias("op_before"),
        )
        .filter(pl.col("before").is_not_null())
    )

    def pair(row: Row) -> list[Row]:
        mine = (pl.col("client") == row["client"]) & pl.col("op").is_in(
            [row["op_before"], row["op"]]
        )
        return operations(inputs.polls.filter(mine).sort("op"))

    back = steps.filter(pl.col("offset") <= pl.col("before")).sort("client", "op")
    found.many(
        "nonmonotonic-poll",
        back,
        lambda row: (
            [row["before"], row["offset"]],
            pair(row),
            f"read offset {row['offset']} after {row['before']}",
        ),
    )
    if inputs.final is None:
        return
    there = inputs.final["offset"].to_numpy()
    ahead = steps.filter(pl.col("offset") > pl.col("before") + 1)
    between = np.searchsorted(there, ahead["offset"].to_numpy(), "left") - np.searchsorted(
        there, ahead["before"].to_numpy(), "right"
    )
    skipped = ahead.with_columns(pl.Series("between", between)).filter(pl.col("between") > 0)
    found.many(
        "poll-skip",
        skipped.sort("client", "op"),
        lambda row: (
            [row["before"], row["offset"]],
            pair(row),
            f"read offset {row['offset']} right after {row['before']}, over {row['between']} records",
        ),
    )
