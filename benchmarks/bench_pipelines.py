"""Measures the checks of a pipeline: 1e6 inputs and 1e6 outputs, mapped by a Python function, on Spark.

    python benchmarks/bench_pipelines.py [--sizes 1e3,1e6] [--rounds 3]

The contents of a source and a sink topic of 8 partitions are written as the final read writes them: JSON orders, and
JSON bills with a field more than the relation names. A bill is missing, a bill is doubled, a bill is wrong, and a group
has committed. Prints the medians of

* harrow: `verify_pipeline`'s checks with `mapped(f)` and a record id on Spark (Connect, local[2]): decoding, the user's
  function for each input, join, comparison, commits, explanation;
* by id: the same without a relation;
* local: as harrow, in this process without Spark;
* polars: the same files decoded, the bills computed by polars' expressions, joined and compared by polars alone: no
  function of the user, no commits, no places of the records.

All must find the three planted anomalies. Exit code 1 when `harrow` takes longer than 5 s for 1e6 records.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import Commit, commit_times
from harrow.harness.histories.contents import ContentsChunk
from harrow.harness.promises.chunk_records import OutputChunk
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_join import PipelineInputs, check_pipeline
from harrow.harness.promises.relations import mapped
from harrow.harness.promises.shapes import Rows
from harrow.harness.promises.sink_rows import SinkWriter

PARTITIONS = 8
LIMIT_S = 5.0
MANY = 1_000_000
MISSING, DOUBLED, WRONG = 11, 12, 13


def bill_of(order: Mapping[str, Any]) -> dict[str, Any]:
    """The user's function."""
    return {"order": order["order"], "total": order["amount"] * 3}


def make(folder: Path, count: int) -> PipelineInputs:
    """Write a source and a sink of `count` records."""
    numbers = range(count)
    orders: list[dict[str, Any]] = [{"order": n, "customer": f"c{n % 1000}", "amount": n % 997} for n in numbers]
    bills: list[dict[str, Any]] = [{**bill_of(order), "paid": "2026-11-22T10:00:00"} for order in orders]
    bills[WRONG]["total"] += 1
    del bills[MISSING]
    bills.append(bills[DOUBLED - 1])
    times = np.array([(p, 0, count, 1_000) for p in range(PARTITIONS)], np.int64)
    np.save(folder / "times.npy", times)
    commits = [Commit(group="billing", partition=p, offset=count, completed_ns=2_000) for p in range(PARTITIONS)]
    return PipelineInputs(
        pairing=Pairing(relation=mapped(bill_of), record_id="order", rows=Rows()),
        source=topic(folder / "source", "orders", orders),
        sink=topic(folder / "sink", "bills", bills),
        commits=commit_times(commits),
        times=str(folder / "times.npy"),
    )


def topic(folder: Path, name: str, values: list[dict[str, Any]]) -> list[OutputChunk]:
    """Write the contents of a topic."""
    folder.mkdir(parents=True)
    writer = SinkWriter(folder)
    writer.records(
        Record(
            topic=name,
            partition=n % PARTITIONS,
            offset=n // PARTITIONS,
            timestamp_ms=n,
            key=b"k%d" % (n % 1000),
            value=json.dumps(value).encode(),
        )
        for n, value in enumerate(values)
    )
    return writer.chunks


def harrow(inputs: PipelineInputs, folder: Path, spark: SparkHandle | None) -> Counter[str]:
    """Check the pipeline by the stages."""
    found = check_pipeline(inputs, folder=folder, spark=spark, engine="spark" if spark else "inline")
    assert not found.raised, found.raised
    names = ("missing-output", "duplicate-output", "wrong-output", "unexpected-output")
    return +Counter({name: found.counts[name] for name in names})


def polars_alone(inputs: PipelineInputs) -> Counter[str]:
    """Check the same files by polars' expressions."""
    fields = pl.Struct({"order": pl.Int64, "amount": pl.Int64, "total": pl.Int64})

    def values(chunks: Any) -> pl.LazyFrame:
        paths = [chunk.path for chunk in chunks if isinstance(chunk, ContentsChunk)]
        text = pl.col("value").cast(pl.String).str.json_decode(fields)
        return pl.scan_ipc(paths).select(text.alias("v")).unnest("v")

    expected = values(inputs.source).select("order", wanted=pl.col("amount") * 3)
    actual = values(inputs.sink).group_by("order").agg(pl.len(), pl.col("total").first())
    joined = expected.join(actual, on="order", how="full", coalesce=True)
    row = joined.select(
        missing=pl.col("len").is_null().sum(),
        doubled=(pl.col("len") > 1).sum(),
        wrong=(pl.col("wanted") != pl.col("total")).sum(),
        unexpected=pl.col("wanted").is_null().sum(),
    ).collect()
    names: list[str] = ["missing-output", "duplicate-output", "wrong-output", "unexpected-output"]
    return +Counter(dict(zip(names, row.row(0), strict=True)))


def measure(count: int, rounds: int, spark: SparkHandle, folder: Path) -> dict[str, float]:
    """Return the median seconds of each engine, warm, in turns."""
    inputs = make(folder, count)
    by_id = PipelineInputs(
        pairing=Pairing(relation=None, record_id="order", rows=Rows()),
        source=inputs.source,
        sink=inputs.sink,
        commits=inputs.commits,
        times=inputs.times,
    )
    wanted = Counter({"missing-output": 1, "duplicate-output": 1, "wrong-output": 1})
    engines: dict[str, Callable[[], Counter[str]]] = {
        "harrow": lambda: harrow(inputs, folder, spark),
        "by id": lambda: harrow(by_id, folder, spark) + Counter({"wrong-output": 1}),
        "local": lambda: harrow(inputs, folder, None),
        "polars": lambda: polars_alone(inputs),
    }
    times: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(rounds + 1):
        for name, engine in engines.items():
            began = time.perf_counter()
            found = engine()
            took = time.perf_counter() - began
            assert found == wanted, (name, found)
            if turn:  # the first turn is a warm-up
                times[name].append(took)
    return {name: median(taken) for name, taken in times.items()}


def main() -> int:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="1e3,1e6")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-pipelines-"))
    spark = SparkHandle(root)
    too_slow = False
    try:
        print(f"{'inputs and outputs':>20}" + "".join(f"{n:>12}" for n in ("harrow", "by id", "local", "polars")))
        for size in (int(float(text)) for text in options.sizes.split(",")):
            folder = root / str(size)
            folder.mkdir()
            times = measure(size, options.rounds, spark, folder)
            print(f"{size:>20,}" + "".join(f"{took * 1000:>9.0f} ms" for took in times.values()), flush=True)
            too_slow |= size == MANY and times["harrow"] > LIMIT_S
            shutil.rmtree(folder)
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)
    return int(too_slow)


if __name__ == "__main__":
    sys.exit(main())
