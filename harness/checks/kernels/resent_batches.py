"""Batches that a client sent again with other timestamps: their rows of the tap get the CRC of the stored copy.

A broker knows an idempotent batch by producer id, producer epoch and base sequence, so it acknowledges a retry with the
offset of the copy that it has. Some clients (KafkaJS) build the retry from the records again, with a new timestamp. Its
CRC is another one, and no log has it. Such a row stands for the stored batch: the same sequence, the same offsets and
the same number of records, and another timestamp. Where the timestamps are the same the CRC must be, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

KEYS = ("producer_id", "producer_epoch", "base_sequence", "last_offset", "count")


def _all_are_stored(produced: pl.DataFrame, logs: Mapping[int, pl.DataFrame]) -> bool:
    """Whether a log has each acknowledged batch as it was sent, which is usual, or there is nothing to compare."""
    known = (produced["producer_id"].to_numpy() >= 0) & (produced["error"].to_numpy() == 0)
    crcs = produced["crc"].to_numpy()[known].astype(np.int64)
    if not len(crcs) or not logs:
        return True
    stored = (log["crc"].to_numpy().astype(np.int64) for log in logs.values())
    return any(np.isin(crcs, of_log).all() for of_log in stored)


def as_stored(produced: pl.DataFrame, logs: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of acknowledged batches, with the CRC of the stored batch where a retry differs in its time."""
    if _all_are_stored(produced, logs):
        return produced
    keys = [pl.col(name).cast(pl.Int64) for name in KEYS]
    stored = pl.concat(
        [
            log.filter(pl.col("producer_id") >= 0).select(
                *keys,
                pl.col("crc").cast(pl.UInt32).alias("stored_crc"),
                pl.col("max_timestamp_ms").cast(pl.Int64).alias("stored_ms"),
            )
            for log in logs.values()
        ]
    ).unique(KEYS, keep="first", maintain_order=True)
    asked = produced.select(*keys, "crc", "error", pl.col("max_timestamp_ms").alias("sent_ms"))
    found = asked.join(stored, on=list(KEYS), how="left", maintain_order="left")
    again = (pl.col("error") == 0) & (pl.col("stored_ms") != pl.col("sent_ms"))
    crc = found.select(pl.when(again.fill_null(value=False)).then("stored_crc").otherwise("crc").alias("crc"))
    return produced.with_columns(crc["crc"].cast(produced.schema["crc"]))
