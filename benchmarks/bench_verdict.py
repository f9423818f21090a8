"""Compares the verdict with polars alone and DuckDB alone, in the same run, at 1e3, 1e6 and 2.5e7 operations.

    python benchmarks/bench_verdict.py [--sizes 1e3,1e6,1e6/2000,2.5e7] [--rounds 5]

For each size a run folder is synthesised (`synthetic_run.py`: 16 partitions, or as many as the size names after a
slash; a planted lost-write and a planted duplicate). Each engine judges the same raw history files, warm, in
alternating turns. Prints the medians:

* harrow: `judge` on Spark (Connect, local[2]) from the laid-out history: plan, Spark, kernels, merge, verdict.json;
* kernels: the same without Spark, all partitions in this process; the difference is the cost or the gain of Spark;
* polars, DuckDB: the same checks over the whole run (`verdict_peers.py`), on every core;
* lay-out: the part of `judge` before these steps (indexes of the rows of each partition), measured separately; whole:
  `judge` on the raw run, including the lay-out. Only `whole` does all that polars and DuckDB do, so the ratios are its.

An operation is a send, a read or a record of the final read, a third each. There are no replica logs, because polars
and DuckDB read no segments. All engines must find the same counts and the same two anomalies. Exit code 1 when the
whole verdict on at most 1e3 operations takes more than 200 ms, when that on 1e6 operations in 2,000 partitions takes
more than 3 s, or when that on 2.5e7 operations or more is slower than polars.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from harrow.harness.checks import SparkHandle, Status, Verdict, judge
from harrow.harness.checks.judgement import judge_laid_out
from harrow.harness.histories.layout import Layout, lay_out
from synthetic_run import PARTITIONS, TOPIC, Truth, make_run
from verdict_peers import Findings, duckdb_alone, polars_alone

T = TypeVar("T")
PROMISED = ("exactly-once", "ordered")
FEW, FEW_MS = 1_000, 200.0
MANY = 25_000_000
SPREAD, SPREAD_S = 2_000, 3.0
"""So many partitions of 1e6 operations are judged in this time."""
WARM_FEW = 15
"""Turns before the measured ones: the JVM compiles code that runs often; larger runs are warm after the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The medians of a size, in seconds."""

    operations: int
    partitions: int
    lay_out: float
    whole: float
    times: dict[str, float]

    def ratio(self, peer: str) -> float:
        """Returns the time of Harrow's whole verdict divided by a peer's."""
        return self.whole / self.times[peer]

    def line(self) -> str:
        """Returns the line of the table."""
        figures = [self.lay_out, self.whole, *self.times.values()]
        peers = ("polars", "duckdb")
        ratios = [f"{self.ratio(peer):>11.2f}x" for peer in peers]
        return (
            f"{self.operations:>11,}{self.partitions:>11,}" + "".join(map(_shown, figures)) + "  " + "  ".join(ratios)
        )


def _shown(seconds: float) -> str:
    return f"{seconds * 1000:>9.0f} ms" if seconds < 10 else f"{seconds:>9.2f} s "


def findings(verdict: Verdict, truth: Truth) -> Findings:
    """Converts the findings of Harrow to those of the peers."""
    assert verdict.status is Status.INVALID, str(verdict)
    found_by_engine = Findings(counts={name: verdict.operation_counts[name] for name in truth.counts})
    for name in verdict.anomaly_names():
        shown = [(a.partition, *a.offsets[:1]) for a in verdict.anomalies if a.name == name]
        assert len(shown) == verdict.anomaly_counts[name], str(verdict)
        found_by_engine.note(name, shown)
    return found_by_engine


def check(engine: str, found_by_engine: Findings, truth: Truth) -> None:
    """Fails when an engine found anything else than the planted anomalies."""
    counts = {name: found_by_engine.counts[name] for name in truth.counts}
    assert counts == truth.counts, (engine, counts, truth.counts)
    wanted = {"lost-write": [truth.lost], "duplicate": [truth.twice]}
    assert found_by_engine.found == wanted, (engine, found_by_engine.found, wanted)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def measure(folder: Path, size: int, partitions: int, rounds: int, spark: SparkHandle) -> Row:
    """Measures a size: makes the run, lays it out, and lets the engines take turns."""
    truth = make_run(folder, size, partitions=partitions)
    layout = lay_out(folder, [TOPIC])
    lay_outs = [timed(lambda: lay_out(folder, [TOPIC]))[0] for _ in range(rounds)]
    times = _turns(folder, layout, truth, rounds, spark)
    whole = times.pop("whole")
    return Row(operations=truth.operations, partitions=partitions, lay_out=median(lay_outs), whole=whole, times=times)


def _turns(folder: Path, layout: Layout, truth: Truth, rounds: int, spark: SparkHandle) -> dict[str, float]:
    """Returns the median seconds of each warm engine."""

    def whole() -> Findings:  # lays out into the same files
        verdict = judge(folder, topics=[TOPIC], guarantee=",".join(PROMISED), spark=spark)
        return findings(verdict, truth)

    def on_spark() -> Findings:
        verdict = judge_laid_out(folder, layout, topics=[TOPIC], guarantees=PROMISED, spark=spark)
        return findings(verdict, truth)

    def in_process() -> Findings:
        verdict = judge_laid_out(folder, layout, topics=[TOPIC], guarantees=PROMISED, engine="inline")
        return findings(verdict, truth)

    engines: dict[str, Callable[[], Findings]] = {
        "whole": whole,
        "harrow": on_spark,
        "kernels": in_process,
        "polars": lambda: polars_alone(folder),
        "duckdb": lambda: duckdb_alone(folder),
    }
    times: dict[str, list[float]] = {name: [] for name in engines}
    warm = WARM_FEW if truth.operations <= FEW else 1
    for turn in range(warm + rounds):
        for name, engine in engines.items():
            took, found_by_engine = timed(engine)
            check(name, found_by_engine, truth)
            if turn >= warm:
                times[name].append(took)
            elif truth.operations > FEW:
                print(f"    warm-up of {name}: {took:.2f} s", flush=True)
    return {name: median(took) for name, took in times.items()}


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """Returns which of the goals are missed."""
    missed: list[str] = []
    for row in rows:
        if row.operations <= FEW and row.whole * 1000 > FEW_MS:
            missed.append(f"{row.operations:,} operations took {row.whole * 1000:.0f} ms")
        if row.partitions >= SPREAD and row.operations <= 1_010_000 and row.whole > SPREAD_S:
            missed.append(f"{row.partitions:,} partitions took {row.whole:.1f} s")
        if row.operations >= MANY * 0.99 and row.ratio("polars") > 1:
            missed.append(f"{row.operations:,} operations: slower than polars")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="1e3,1e6,1e6/2000,2.5e7")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="harrow-bench-verdict-"))
    spark = SparkHandle(folder)
    rows: list[Row] = []
    try:
        spark.session()
        names = ("lay-out", "whole", "harrow", "kernels", "polars", "duckdb")
        head = f"{'operations':>11}{'partitions':>11}" + "".join(f"{name:>12}" for name in names)
        print(head + "   whole/polars  whole/duckdb", flush=True)
        for text in options.sizes.split(","):
            size, _, partitions = text.partition("/")
            run = folder / "run"
            measured = measure(run, int(float(size)), int(partitions or PARTITIONS), options.rounds, spark)
            rows.append(measured)
            shutil.rmtree(run)
            print(rows[-1].line(), flush=True)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    loads = " ".join(f"{figure:.1f}" for figure in os.getloadavg())
    print(
        f"load average {loads}; medians of {options.rounds} alternating rounds on {os.cpu_count()} cores; "
        "harrow: from the laid-out history; whole: lay-out included; every engine found the same"
    )
    short = shortfalls(rows)
    for line in short:
        print(f"MISSED: {line}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
