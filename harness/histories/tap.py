"""The brokers' tap files as batch rows (J6): what was acknowledged to whom, what was delivered to whom.

A row stands for a batch, not for a record. Layout and meaning of the rows: `harrow.cluster.tap.layouts`.
A tap is written with one `write` a call by a process that may be killed, so a torn last row is cut off.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.broker_folder import TAP_NAMES

from .format import HistoryFile, read_names

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

REPLICA_CLIENT = re.compile(r"broker-\d+")
"""Brokers fetch above the high watermark, legally; what they received was not promised to any client."""

TAP_COLUMNS = (
    "kind",
    "flags",
    "error",
    "client",
    "partition",
    "base_offset",
    "last_offset",
    "crc",
    "count",
    "producer_id",
    "producer_epoch",
    "acks",
    "base_sequence",
    "invoked_ns",
    "completed_ns",
    "created_ns",
    "base_timestamp_ms",
    "max_timestamp_ms",
)


def read_tap(path: str | Path) -> HistoryFile:
    """Map one `tap.bin` with the names beside it."""
    source = Path(path)
    return HistoryFile(source, map_tap(source), read_names(source.with_name(TAP_NAMES)))


def map_tap(path: str | Path) -> npt.NDArray[np.void]:
    """Map the rows of a tap."""
    import numpy as np
    from harrow.cluster.tap.layouts import TAP_DTYPE, TAP_ROW

    count = os.path.getsize(path) // TAP_ROW.size
    dtype = np.dtype(TAP_DTYPE)
    return np.memmap(path, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)


def tap_frame(path: str | Path) -> pl.DataFrame:
    """The rows of one tap as polars, clients and topics by name; for looking at, not for judging."""
    import polars as pl

    tap = read_tap(path)
    names = pl.Series("name", tap.names, pl.String)
    frame = pl.DataFrame({name: tap.rows[name] for name in (*TAP_COLUMNS, "topic")})
    return frame.with_columns(
        pl.Series("client", names.gather(frame["client"])), pl.Series("topic", names.gather(frame["topic"]))
    )
