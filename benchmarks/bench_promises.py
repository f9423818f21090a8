"""Compares the checks of record ids with polars alone, in the same run, at 1e4 and 1e6 records.

    python benchmarks/bench_promises.py [--sizes 1e4,1e6] [--rounds 3]

For each size the contents of a final read are synthesised: 16 partitions, JSON values of about 90 bytes, 1,000 keys,
one missing order, one duplicate and one pair out of order. `expected` is a list of the ids, in the order of sending.
Each engine judges the same Arrow files and the same list, warm, in turns; the time includes writing the expectation.
Prints the medians:

* harrow: `judge_topics` on Spark (Connect, local[2]): missing, unexpected, duplicate, out-of-order, split-key;
* stages: the same without Spark, in this process, on one core; the difference is the cost or the gain of Spark;
* function: `harrow` with `record_id=` as a Python function instead of a field path;
* polars: missing, unexpected, duplicate, out-of-order and split-key with polars' own expressions on every core.

All engines must find the same anomalies. Exit code 1 when `harrow` takes more than 5 s for at most 1e6 records.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pyarrow as pa
from harrow.harness import run_folder
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.record import Record
from harrow.harness.histories.contents import CHUNK_ROWS, INDEX, SCHEMA_VERSION, ContentsChunk, FinalRead
from harrow.harness.promises.topic_promise import TopicPromise
from harrow.harness.promises.topic_results import judge_topics

TOPIC = "orders"
PARTITIONS, KEYS = 16, 1_000
MOST_S, MOST_RECORDS = 5.0, 1_000_000
PLANTED = {"missing": 1, "duplicate": 1, "out-of-order": 1}
arrow: Any = pa


def make_contents(folder: Path, records: int) -> list[int]:
    """Write the contents of a final read with the planted anomalies; return the ids in the order of sending."""
    drain = folder / run_folder.DRAIN
    drain.mkdir(parents=True, exist_ok=True)
    log = list(range(records))
    log[0], log[KEYS] = log[KEYS], log[0]  # neighbours of the same key
    log[2 * KEYS + 7] = KEYS + 7  # which is before it; the order 2 * KEYS + 7 is missing
    ends = [0] * PARTITIONS
    chunks: list[ContentsChunk] = []
    for start in range(0, records, CHUNK_ROWS):
        rows = log[start : start + CHUNK_ROWS]
        chunks.append(_write(drain, len(chunks), rows, ends))
    reads = [
        FinalRead(topic=TOPIC, partition=partition, low=0, high=high, records=high)
        for partition, high in enumerate(ends)
    ]
    body = {
        "schema_version": SCHEMA_VERSION,
        "chunks": [asdict(chunk) for chunk in chunks],
        "partitions": [asdict(read) for read in reads],
    }
    (drain / INDEX).write_text(json.dumps(body))
    return list(range(records))


def _write(drain: Path, number: int, orders: list[int], ends: list[int]) -> ContentsChunk:
    partitions = [order % KEYS % PARTITIONS for order in orders]
    offsets: list[int] = []
    for partition in partitions:
        offsets.append(ends[partition])
        ends[partition] += 1
    values = [
        b'{"order": %d, "customer": {"name": "customer-%d", "vip": false}, "amount": %d.5, "items": [1, 2]}'
        % (order, order % KEYS, order % 97)
        for order in orders
    ]
    batch = arrow.record_batch(
        {
            "partition": arrow.array(partitions, arrow.int32()),
            "offset": arrow.array(offsets, arrow.int64()),
            "timestamp_type": arrow.array([1] * len(orders), arrow.int8()),
            "timestamp_ms": arrow.array([1_700_000_000_000] * len(orders), arrow.int64()),
            "key": arrow.array([b"customer-%d" % (order % KEYS) for order in orders], arrow.binary()),
            "value": arrow.array(values, arrow.binary()),
            "headers": arrow.nulls(
                len(orders), arrow.list_(arrow.struct([("name", arrow.string()), ("value", arrow.binary())]))
            ),
        }
    )
    path = f"contents-{number}.arrow"
    with arrow.OSFile(str(drain / path), "wb") as file, arrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return ContentsChunk(path=path, topic=TOPIC, rows=len(orders), size=sum(map(len, values)))


def order_of(record: Record) -> object:
    """Return the record id of a record, as a function of a user does."""
    return record["order"]


def harrow(folder: Path, expected: list[int], record_id: Any, **engine: Any) -> dict[str, int]:
    """Judge with Harrow; return the counts of anomalies."""
    promise = TopicPromise.of(guarantee="exactly-once, ordered", record_id=record_id, expected=expected, order_key=None)
    assert promise is not None
    findings = judge_topics(folder, [TOPIC], promise, **engine)
    assert not findings.reasons, findings.reasons
    return dict(findings.anomaly_counts)


def polars_alone(folder: Path, expected: list[int]) -> dict[str, int]:
    """Judge with polars' own expressions; return the counts of anomalies."""
    files = sorted((folder / run_folder.DRAIN).glob("contents-*.arrow"))
    records = pl.concat(pl.scan_ipc(file).drop("headers") for file in files).with_columns(
        id=pl.col("value").cast(pl.String).str.json_path_match("$.order")
    )
    believed = pl.LazyFrame({"id": expected}).with_row_index("sent").with_columns(pl.col("id").cast(pl.String))
    joined, unexpected, missing, keys = pl.collect_all(
        [
            records.join(believed, on="id", how="left").select("id", "key", "partition", "offset", "sent"),
            records.join(believed, on="id", how="anti").select(pl.col("id").n_unique()),
            believed.join(records, on="id", how="anti").select(pl.len()),
            records.group_by("key").agg(pl.col("partition").n_unique()).filter(pl.col("partition") > 1),
        ]
    )
    twice = joined.group_by("id").len().filter(pl.col("len") > 1)
    ordered = joined.sort("key", "partition", "offset").unique("id", keep="first", maintain_order=True)
    same = (pl.col("key") == pl.col("key").shift(1)) & (pl.col("partition") == pl.col("partition").shift(1))
    swapped = ordered.filter(same & (pl.col("sent") < pl.col("sent").shift(1)))
    counts = {
        "missing": missing.item(),
        "unexpected": unexpected.item(),
        "duplicate": len(twice),
        "out-of-order": len(swapped),
        "split-key": len(keys),
    }
    return {name: count for name, count in counts.items() if count}


def measure(folder: Path, records: int, rounds: int, spark: SparkHandle) -> dict[str, float]:
    """Return the median seconds of each engine."""
    expected = make_contents(folder, records)
    engines: dict[str, Callable[[], dict[str, int]]] = {
        "harrow": lambda: harrow(folder, expected, "order", spark=spark),
        "stages": lambda: harrow(folder, expected, "order", engine="inline"),
        "function": lambda: harrow(folder, expected, order_of, spark=spark),
        "polars": lambda: polars_alone(folder, expected),
    }
    times: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(rounds + 1):
        for name, judge in engines.items():
            began = time.perf_counter()
            found = judge()
            took = time.perf_counter() - began
            assert found == PLANTED, (name, found)
            if turn:  # the first is not warm
                times[name].append(took)
    return {name: median(taken) for name, taken in times.items()}


def main() -> int:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="1e4,1e6")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory(prefix="harrow-bench-") as scratch:
        spark = SparkHandle(Path(scratch) / "spark")
        try:
            for size in map(float, arguments.sizes.split(",")):
                records = int(size)
                times = measure(Path(scratch) / f"run-{records}", records, arguments.rounds, spark)
                ratio = times["harrow"] / times["polars"]
                shown = "  ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items())
                print(f"{records:>9,} records: {shown}  harrow / polars {ratio:.1f}")
                slow |= records <= MOST_RECORDS and times["harrow"] > MOST_S
        finally:
            spark.stop()
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
