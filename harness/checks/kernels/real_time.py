"""realtime-order: the log order of acknowledged records contradicts the order in which they were sent (L1).

A broker appends a record at the end of the log, so a record whose send began after another record was acknowledged has
the higher offset: whichever clients sent them, also with retries, idempotence and transactions, because an
acknowledgement follows the append, and an append follows the begin of its send. Both records must be in the final read
at their offsets: after a loss the offsets are given again, legally with acks=1. Times are of one clock
(`histories/format.py`); a history without the begin of its sends has none that contradicts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationType
from . import quick
from .findings import PartitionFindings, Row, operation_rows
from .inputs import OPS_SCHEMA, PartitionInputs

IDENTITY = ["offset", "key_hash", "value_hash"]


def real_time_order(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """realtime-order: a record's send began after a record with a higher offset was acknowledged."""
    if inputs.final is None or quick.in_real_time_order(inputs):
        return
    kept = (
        inputs.sends.filter((pl.col("outcome") == OperationType.OK) & (pl.col("offset") >= 0))
        .join(inputs.final.select(IDENTITY), on=IDENTITY, how="semi")
        .sort("offset", "time_ns", "op")
    )
    columns: list[npt.NDArray[np.int64]] = [
        kept[name].to_numpy() for name in ("offset", "invoked_ns", "time_ns")
    ]
    offset, invoked, time = columns
    if not len(offset):
        return
    earliest = np.minimum.accumulate(time[::-1])[::-1]
    following = np.searchsorted(offset, offset, "right")  # the first record with a higher offset
    inside = following < len(offset)
    bad = np.zeros(len(offset), np.bool_)
    bad[inside] = earliest[following[inside]] < invoked[inside]

    def describe(row: Row) -> tuple[list[int], list[Row], str]:
        first = int(np.count_nonzero(offset <= row["offset"]))
        at = first + int(np.argmin(time[first:]))
        pair = kept.filter(pl.col("offset").is_in([row["offset"], int(offset[at])]))
        text = (
            f"the send of the record at offset {row['offset']} began {_ms(row['invoked_ns'] - int(time[at]))} after "
            f"the record at offset {offset[at]} was acknowledged, expected a higher offset than that"
        )
        return [row["offset"], int(offset[at])], operation_rows(pair.select(*OPS_SCHEMA)), text

    found = kept.filter(pl.Series("bad", bad)).unique("offset", keep="first", maintain_order=True)
    findings.add_each("realtime-order", found, describe)


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.3f} ms"
