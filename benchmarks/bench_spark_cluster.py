"""Judges one large run on a Spark standalone cluster with one and with two workers, and compares the times.

    python benchmarks/bench_spark_cluster.py [--operations 1e7] [--partitions 64] [--rounds 1] [--copies]

A run folder is synthesised (`synthetic_run.py`, with a planted lost-write and a planted duplicate). For each number of
workers, of one core each, a cluster of Spark's own processes is started on this machine (`spark_cluster.py`), and the
same `judge` as in a test judges the run there. The executors import Harrow from the zip file that travels with the
session. The cluster is warm: a small run is judged first. With `--copies` the data goes to a folder first, as it does
for executors on other machines (`--harrow-spark-data`).

Prints for each number of workers the time of the whole verdict and its parts, and the highest memory of the judging
processes; then the ratio of one worker to two. Exit code 1 when a verdict does not have exactly the two anomalies.
Needs a full Java, and says so where there is none.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from guard import guarded_folder
from harrow.harness.checks import SparkHandle, Status, Verdict, judge
from harrow.harness.checks import warm_up as small
from harrow.harness.checks.judgement import judge_laid_out
from harrow.harness.histories.layout import lay_out
from spark_cluster import NoClusterError, full_java, standalone_cluster
from synthetic_run import TOPIC, Truth, make_run

GUARANTEES = ("exactly-once", "ordered")
SAMPLE_S = 0.5


@dataclass(slots=True)
class Memory:
    """The highest memory of the processes, sampled, without the pages of mapped files."""

    highest: dict[str, int] = field(default_factory=dict[str, int])

    def sample(self, folder: Path) -> None:
        """Look at all processes of the benchmark."""
        now: dict[str, int] = {"this process": _anonymous(os.getpid())}
        for process in psutil.process_iter(["cmdline"]):
            kind = _kind(" ".join(process.info["cmdline"] or ()), str(folder))
            if kind:
                now[kind] = now.get(kind, 0) + _anonymous(process.pid)
        for kind, size in now.items():
            self.highest[kind] = max(self.highest.get(kind, 0), size)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {size / 2**30:.1f}" for kind, size in self.highest.items())


def _anonymous(pid: int) -> int:
    """Returns the bytes of a process that no file backs; 0 when the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    kib = re.search(r"^RssAnon:\s*(\d+)", status, re.MULTILINE)
    return int(kib[1]) << 10 if kib else 0


def _kind(line: str, folder: str) -> str:
    if "CoarseGrainedExecutorBackend" in line and folder in line:
        return "executors"
    if "SparkConnectServer" in line:
        return "driver"
    if "checks.plan_server" in line:
        return "plan server"
    return "Python workers" if "pyspark.daemon" in line else ""


@contextmanager
def watched(folder: Path) -> Generator[Memory]:
    """Samples memory while the block runs."""
    memory, ended = Memory(), threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            memory.sample(folder)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()


def check(verdict: Verdict, truth: Truth) -> None:
    """Fails when the verdict has anything else than the planted anomalies."""
    assert verdict.status is Status.INVALID, str(verdict)
    broken = [reason for reason in verdict.reasons if "crashed" in reason or "could not be read" in reason]
    assert not broken, broken  # the run has no taps and no logs, which is a doubt of every synthesised run
    counts = {name: verdict.operation_counts[name] for name in truth.counts}
    assert counts == truth.counts, (counts, truth.counts)
    assert verdict.anomaly_counts == {"lost-write": 1, "duplicate": 1}, str(verdict)


def measure(folder: Path, run: Path, truth: Truth, workers: int, rounds: int, data: str) -> float:
    """Judges the run on a cluster; returns the shortest time of the whole verdict in seconds."""
    place = folder / f"cluster-{workers}"
    place.mkdir()
    best = float("inf")
    with standalone_cluster(place, workers=workers, memory="1g") as master:
        spark = SparkHandle(folder / f"spark-{workers}", master=master, data=data)
        try:
            tiny = folder / "runs" / f"tiny-{workers}"
            small.tiny_run(tiny)
            assert judge(tiny, topics=[small.TOPIC], spark=spark).valid
            for _ in range(rounds):
                with watched(place) as memory:
                    began = time.perf_counter()
                    layout = lay_out(run, [TOPIC])
                    laid_out = time.perf_counter()
                    verdict = judge_laid_out(run, layout, topics=[TOPIC], guarantees=GUARANTEES, spark=spark)
                    ended = time.perf_counter()
                check(verdict, truth)  # invalid, with the two planted anomalies and no others
                best = min(best, ended - began)
                print(
                    f"{workers} worker{'s' if workers > 1 else ''}: {ended - began:.1f} s "
                    f"(lay-out {laid_out - began:.1f} s, judging {ended - laid_out:.1f} s); GiB: {memory}",
                    flush=True,
                )
        finally:
            spark.stop()
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--operations", type=float, default=1e7)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--copies", action="store_true", help="copy the data for the executors first")
    options = parser.parse_args()
    try:
        full_java()
    except NoClusterError as error:
        print(f"SKIPPED: {error}")
        return 0
    with guarded_folder("harrow-bench-spark-cluster-") as folder:
        began = time.perf_counter()
        run = folder / "runs" / "large"
        truth = make_run(run, int(options.operations), partitions=options.partitions)
        took = time.perf_counter() - began
        print(f"{truth.operations:,} operations in {options.partitions} partitions, made in {took:.0f} s", flush=True)
        data = f"file://{folder}/shared" if options.copies else ""
        first, second = (measure(folder, run, truth, workers, options.rounds, data) for workers in (1, 2))
    loads = " ".join(f"{figure:.1f}" for figure in os.getloadavg())
    print(
        f"one worker {first:.1f} s, two workers {second:.1f} s: {first / second:.2f}x; "
        f"{os.cpu_count()} cores, load average {loads}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
