"""nonmonotonic-send of recorded sends, and the records whose order cannot be judged (L1, L6).

The offsets of acknowledged sends of a client with the same key must be in the order of its sends. An acknowledgement
without an offset (acks=0) says where its record is only if the record is unique: one recorded send and one record of
the final read have its key and value.

The order is not known of

* acknowledged sends without an offset whose record is not unique, where the client sent others with the same key;
* records of batches without sequences that no recorded send accounts for.

`operation_counts["records_of_unknown_order"]` counts them; `doubts.py` makes a doubt of it under `ordered`.
`batches.sequence_order` judges producers with idempotence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...histories.format import OperationType
from . import quick
from .findings import Description, PartitionFindings, operation_rows
from .inputs import PartitionInputs
from .records import IDENTITY

UNKNOWN_ORDER = "records_of_unknown_order"
OF_A_KEY = ["client", "key_hash"]


class Swapped(NamedTuple):
    """Two sends of a client: the first is at a higher offset, `before`."""

    client: int
    op_before: int
    op: int
    before: int
    offset: int


def send_order(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Compare the offsets of each client's sends with the same key, and count what has no known order."""
    outcome, offset = (inputs.sends[name].to_numpy() for name in ("outcome", "offset"))
    everywhere_placed = not ((outcome == OperationType.OK) & (offset < 0)).any()
    placed = None if everywhere_placed else _placed(inputs)
    unplaced = 0 if placed is None else _unplaced_beside_others(placed)
    unknown = max(unplaced, _unsequenced(inputs, placed))
    if unknown:
        findings.operation_counts[UNKNOWN_ORDER] = unknown
    if placed is None and quick.in_order(inputs):
        return
    acked = inputs.acked if placed is None else placed
    # compares neighbours after one sort: a window over as many groups as there are keys takes ten times as long
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in OF_A_KEY)
    bad = (
        acked.filter(pl.col("offset") >= 0)
        .sort(*OF_A_KEY, "op")
        .with_columns(pl.col("offset").shift(1).alias("before"), pl.col("op").shift(1).alias("op_before"))
        .filter(same & (pl.col("offset") < pl.col("before")))
        .sort("offset")
    )

    def describe(row: Swapped) -> Description:
        pair = inputs.sends.filter((pl.col("client") == row.client) & pl.col("op").is_in([row.op_before, row.op])).sort(
            "op"
        )
        text = (
            f"operation {row.op_before} was sent before operation {row.op} of the same client and key, "
            f"but its record is at offset {row.before}, after offset {row.offset}"
        )
        return [row.offset, row.before], operation_rows(pair), text

    findings.add_each("nonmonotonic-send", bad, Swapped, describe)


def _placed(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the acknowledged sends, with the offset of the final read where a send without one is unique."""
    acked = inputs.acked
    if inputs.final is None:
        return acked
    sent = pl.concat([inputs.sends.select(IDENTITY), inputs.pending.select(IDENTITY)])
    once = sent.group_by(IDENTITY).len().filter(pl.col("len") == 1).select(IDENTITY)
    there = (
        inputs.final.group_by(IDENTITY)
        .agg(pl.col("offset").first().alias("found"), pl.len().alias("copies"))
        .filter(pl.col("copies") == 1)
        .join(once, on=IDENTITY, how="semi")
        .select(*IDENTITY, "found")
    )
    offset = pl.when(pl.col("offset") < 0).then(pl.col("found").fill_null(-1))
    return (
        acked.join(there, on=IDENTITY, how="left", maintain_order="left")
        .with_columns(offset.otherwise("offset").alias("offset"))
        .drop("found")
    )


def _unplaced_beside_others(acked: pl.DataFrame) -> int:
    """Count the sends without a known offset where their client sent others with the same key."""
    several = acked.group_by(OF_A_KEY).agg(pl.len().alias("sends"), (pl.col("offset") < 0).sum().alias("unplaced"))
    return int(several.filter(pl.col("sends") > 1)["unplaced"].sum())


def _unsequenced(inputs: PartitionInputs, placed: pl.DataFrame | None) -> int:
    """Count the records of batches without sequences that have no recorded send.

    `placed`: the acknowledged sends with their offsets; None: as they were recorded.
    """
    produced = inputs.produced
    plain = (produced["error"].to_numpy() == 0) & (produced["producer_id"].to_numpy() < 0)
    if not plain.any():
        return 0
    batches = produced.filter(pl.Series(plain))
    acked = inputs.acked if placed is None else placed
    offsets = np.sort(acked["offset"].to_numpy())
    first = np.searchsorted(offsets, batches["base_offset"].to_numpy(), "left")
    beyond = np.searchsorted(offsets, batches["last_offset"].to_numpy(), "right")
    unknown = (first == beyond) | (batches["base_offset"].to_numpy() < 0)
    return int(batches["count"].to_numpy()[unknown].sum())
