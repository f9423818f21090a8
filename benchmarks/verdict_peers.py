"""The checks of a verdict on records with polars alone and with DuckDB alone, to compare Harrow with.

Each reads the raw history files of a whole run at once (`completions`), and finds the same as
`harness/checks/kernels/records.py` in a history with a final read and without replica logs: lost-write, unseen,
inconsistent-offsets, duplicate, nonmonotonic-send, nonmonotonic-poll, poll-skip, and the figures. polars: lazy queries
that the streaming engine collects together. DuckDB: SQL in a new in-memory database, over the same columns as Arrow
tables. Both use every core, also to read the files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb as untyped_duckdb
import numpy as np
import polars as pl
from harrow.harness.histories.format import OperationFunction, OperationType, read_history
from harrow.harness.histories.layout import DRAINED
from harrow.harness.histories.layout import RECORDED as RECORDED_SOURCE
from harrow.harness.histories.row_index import BLOCK_ROWS

duckdb: Any = untyped_duckdb
Place = tuple[int, int]
COLUMNS = ("kind", "outcome", "partition", "offset", "op", "key_hash", "value_hash", "client")
"""The columns that the checks of the peers read; Harrow's tasks read all."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """The figures, and the partition and (first) offset of every finding, by its name."""

    counts: dict[str, int]
    found: dict[str, list[Place]] = field(default_factory=dict[str, list[Place]])

    def note(self, name: str, places: Sequence[Sequence[int]]) -> None:
        """Adds the findings of a name; does nothing for an empty list."""
        if places:
            self.found[name] = sorted((int(p[0]), int(p[1])) for p in places)


# --- polars ---------------------------------------------------------------------------------------------------

FINAL = (pl.col("source") == DRAINED) & (pl.col("kind") == OperationFunction.POLL)
RECORDED = pl.col("source") != DRAINED
SEND = RECORDED & (pl.col("kind") == OperationFunction.SEND)
OK = pl.col("outcome") == OperationType.OK
READ = RECORDED & (pl.col("kind") == OperationFunction.POLL)
AT = ["partition", "offset"]


def completions(folder: Path) -> pl.DataFrame:
    """Returns the completions of all history files as a frame; the files are read by as many threads as cores."""
    files = [(path, RECORDED_SOURCE) for path in sorted((folder / "history").glob("*.ops"))]
    files += [(path, DRAINED) for path in sorted((folder / "drain").glob("*.ops"))]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return pl.concat(pool.map(_completions_of_file, files))


def _completions_of_file(file: tuple[Path, int]) -> pl.DataFrame:
    path, source = file
    rows = read_history(path).rows
    columns = {name: np.empty(len(rows), rows.dtype[name]) for name in COLUMNS}
    count = 0
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        kept = block[block["outcome"] != OperationType.INVOKE]
        for name, column in columns.items():
            column[count : count + len(kept)] = kept[name]
        count += len(kept)
    frame = pl.DataFrame({name: column[:count] for name, column in columns.items()})
    return frame.with_columns(pl.lit(source, pl.UInt8).alias("source"))


def polars_alone(folder: Path) -> Findings:
    """Makes all checks in a single `collect_all` of the streaming engine."""
    rows = completions(folder).lazy()
    bounds = rows.filter((pl.col("kind") == OperationFunction.BOUNDS) & (pl.col("source") == DRAINED)).select(
        "partition", pl.col("op").alias("low"), pl.col("offset").alias("high")
    )
    figures, offsets, twice, sends, polls = pl.collect_all(
        [_figures(rows), _by_offset(rows, bounds), _by_value(rows), _send_order(rows), _read_order(rows)],
        engine="streaming",
    )
    findings = Findings(counts={k: int(v) for k, v in figures.row(0, named=True).items()})
    missing = offsets.filter("missing")
    differ = offsets.filter(pl.col("differ")).select(AT)
    findings.note("inconsistent-offsets", differ.rows())
    lost = missing.filter(pl.col("offset") >= pl.col("high")).select(AT).rows()
    changed = offsets.filter(pl.col("differ") & ~pl.col("missing")).select(AT).rows()
    findings.note("lost-write", lost + changed)
    findings.note("unseen", missing.filter(pl.col("offset") < pl.col("high")).select(AT).rows())
    findings.note("duplicate", twice.rows())
    findings.note("nonmonotonic-send", sends.rows())
    back = polls.filter(pl.col("offset") <= pl.col("before"))
    findings.note("nonmonotonic-poll", back.select(AT).rows())
    ahead = polls.filter(pl.col("offset") > pl.col("before"))
    if len(ahead):
        findings.note("poll-skip", _skipped(rows, ahead))
    return findings


def _figures(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.select(
        (SEND & OK).sum().alias("acknowledged"),
        (SEND & (pl.col("outcome") == OperationType.INFO)).sum().alias("unacknowledged"),
        (SEND & (pl.col("outcome") == OperationType.FAIL)).sum().alias("failed"),
        READ.sum().alias("read"),
        FINAL.sum().alias("drained"),
    )


def _by_offset(rows: pl.LazyFrame, bounds: pl.LazyFrame) -> pl.LazyFrame:
    """Finds offsets that are missing in the final read, and offsets with two values."""
    key, value = pl.col("key_hash"), pl.col("value_hash")
    return (
        rows.filter(((SEND & OK) | READ | FINAL) & (pl.col("offset") >= 0))
        .select(*AT, "key_hash", "value_hash", FINAL.alias("final"))
        .group_by(AT)
        .agg(
            (~pl.col("final").any()).alias("missing"),
            ((key.min() != key.max()) | (value.min() != value.max())).alias("differ"),
        )
        .filter(pl.col("missing") | pl.col("differ"))
        .join(bounds, on="partition")
        .filter(pl.col("offset") >= pl.col("low"))
    )


def _by_value(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Finds values that are stored more often than they were sent."""
    sent = SEND & pl.col("outcome").is_in([int(OperationType.OK), int(OperationType.INFO)])
    return (
        rows.filter(sent | FINAL)
        .select(*AT, "key_hash", "value_hash", FINAL.alias("final"))
        .group_by("partition", "key_hash", "value_hash")
        .agg(
            pl.col("final").sum().alias("there"),
            (~pl.col("final")).sum().alias("sent"),
            pl.when("final").then("offset").min().alias("offset"),
        )
        .filter((pl.col("sent") > 0) & (pl.col("there") > pl.col("sent")))
        .select(AT)
    )


def _send_order(rows: pl.LazyFrame) -> pl.LazyFrame:
    group = ["partition", "client", "key_hash"]
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in group)
    return (
        rows.filter(SEND & OK & (pl.col("offset") >= 0))
        .select(*group, "op", "offset")
        .sort(*group, "op")
        .filter(same & (pl.col("offset") < pl.col("offset").shift(1)))
        .select(AT)
    )


def _read_order(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Finds reads that do not follow the read before them."""
    read = pl.col("kind") == OperationFunction.POLL
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in ("partition", "client"))
    return (
        rows.filter(RECORDED & pl.col("kind").is_in([int(OperationFunction.POLL), int(OperationFunction.BREAK)]))
        .select("kind", *AT, "client", "op")
        .sort("partition", "client", "op")
        .with_columns(pl.col("offset").shift(1).alias("before"))
        .filter(same & read & read.shift(1) & (pl.col("offset") != pl.col("before") + 1))
        .select(*AT, "before")
    )


def _skipped(rows: pl.LazyFrame, ahead: pl.DataFrame) -> list[tuple[Any, ...]]:
    there = rows.filter(FINAL).select("partition", pl.col("offset").alias("there"))
    between = (pl.col("there") > pl.col("before")) & (pl.col("there") < pl.col("offset"))
    skipped = ahead.lazy().join(there, on="partition").filter(between).select(AT).unique()
    return skipped.collect(engine="streaming").rows()


# --- DuckDB ---------------------------------------------------------------------------------------------------

_ROLES = f"""
create temp view rows as select *,
    source <> {DRAINED} and kind = {OperationFunction.SEND:d} as send,
    outcome = {OperationType.OK:d} as ok,
    source <> {DRAINED} and kind = {OperationFunction.POLL:d} as read,
    source = {DRAINED} and kind = {OperationFunction.POLL:d} as final
from history"""
_BOUNDS = f"""
create temp table bounds as select partition, op as low, "offset" as high
from rows where kind = {OperationFunction.BOUNDS:d} and source = {DRAINED}"""
_FIGURES = f"""
select count(*) filter (send and ok) as acknowledged,
    count(*) filter (send and outcome = {OperationType.INFO:d}) as unacknowledged,
    count(*) filter (send and outcome = {OperationType.FAIL:d}) as failed,
    count(*) filter (read) as read, count(*) filter (final) as drained from rows"""
_OFFSETS = """
select partition, "offset", missing, differ, "offset" >= high as above from (
    select partition, "offset", not bool_or(final) as missing,
        min(key_hash) <> max(key_hash) or min(value_hash) <> max(value_hash) as differ
    from rows where ((send and ok) or read or final) and "offset" >= 0
    group by partition, "offset" having missing or differ
) join bounds using (partition) where "offset" >= low"""
_TWICE = f"""
select partition, min("offset") filter (final) from rows
where final or (send and outcome in ({OperationType.OK:d}, {OperationType.INFO:d}))
group by partition, key_hash, value_hash
having count(*) filter (send) > 0 and count(*) filter (final) > count(*) filter (send)"""
_SENDS = """
select partition, "offset" from (
    select partition, "offset",
        lag("offset") over (partition by partition, client, key_hash order by op) as before
    from rows where send and ok and "offset" >= 0
) where "offset" < before"""
_READS = f"""
select partition, "offset", before from (
    select partition, "offset", kind, lag("offset") over w as before, lag(kind) over w as kind_before
    from rows where source <> {DRAINED} and kind in ({OperationFunction.POLL:d}, {OperationFunction.BREAK:d})
    window w as (partition by partition, client order by op)
) where kind = {OperationFunction.POLL:d} and kind_before = {OperationFunction.POLL:d} and "offset" <> before + 1"""
_SKIPPED = """
select distinct s.partition, s."offset" from steps s join rows r
on r.final and r.partition = s.partition and r."offset" > s.before and r."offset" < s."offset" """


def duckdb_alone(folder: Path) -> Findings:
    """Makes each check with one SQL query."""
    with duckdb.connect() as db:
        db.execute("set enable_progress_bar = false")
        db.register("history", completions(folder).to_arrow())
        db.execute(_ROLES)
        db.execute(_BOUNDS)
        figures = db.execute(_FIGURES)
        names = [column[0] for column in figures.description]
        findings = Findings(counts=dict(zip(names, figures.fetchone(), strict=True)))
        offsets = db.execute(_OFFSETS).fetchall()
        findings.note("inconsistent-offsets", [row for row in offsets if row[3]])
        findings.note("lost-write", [row for row in offsets if row[4] or not row[2]])
        findings.note("unseen", [row for row in offsets if row[2] and not row[4]])
        findings.note("duplicate", db.execute(_TWICE).fetchall())
        findings.note("nonmonotonic-send", db.execute(_SENDS).fetchall())
        steps = db.execute(f"create temp table steps as {_READS}").execute("from steps").fetchall()
        findings.note("nonmonotonic-poll", [row for row in steps if row[1] <= row[2]])
        if any(row[1] > row[2] for row in steps):
            findings.note("poll-skip", db.execute(_SKIPPED).fetchall())
    return findings
