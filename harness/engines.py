"""Which engine judges a run: Spark, or the same kernels in this process (J7).

    spark    a JVM judges the partitions in parallel, in processes of its own: the default, for runs of any size
    inline   the kernels run in the process of the test, one partition after the other: no JVM starts
    auto     inline for a run of at most `INLINE_MOST` bytes, Spark for a larger one

The kernels, the reducers of joins and everything that is done with their results are the same; a test compares the
verdicts of both over all histories of the suite. An engine says nothing about what is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

Engine = Literal["spark", "inline"]
SPARK: Engine = "spark"
INLINE: Engine = "inline"
AUTO = "auto"
CHOICES = (SPARK, INLINE, AUTO)
INLINE_MOST = 64 * 1024 * 1024
"""Bytes of histories and logs up to which `auto` judges in this process.

The kernels judge them in less than a second of CPU time (`benchmarks/bench_verdict.py`, column kernels), and Spark
needs seconds to start.
"""
PREALLOCATED = (".index", ".timeindex")
"""Files of a log that are as large as they may become; nothing of them is judged."""


def needs_spark_from_the_start(choice: str) -> bool:
    """Whether Spark should start before it is known how large the run is."""
    return choice == SPARK


def check_engine(choice: str, spark: str) -> None:
    """Raise ValueError for an unknown engine, and for one that does not use the user's own `spark`."""
    if choice not in CHOICES:
        raise ValueError(f"engine {choice!r}: expected {', '.join(CHOICES)}")
    if choice == INLINE and spark:
        raise ValueError(f"the engine inline judges without Spark, and does not use {spark}")


def engine_for(choice: str, folder: Path, topics: Collection[str]) -> Engine:
    """Return the engine that judges `topics` of the run in `folder`, which is at rest."""
    if choice != AUTO:
        return INLINE if choice == INLINE else SPARK
    return INLINE if _size(folder, topics) <= INLINE_MOST else SPARK


def _size(folder: Path, topics: Collection[str]) -> int:
    """Return the bytes of everything that the run recorded, and of the judged partitions' logs."""
    from . import run_folder  # a run without Harrow imports none of the cluster's modules

    recorded = (path for path in folder.glob("*") if path.name != run_folder.CLUSTER)
    logs = (
        path
        for data in run_folder.replica_folders(folder).values()
        for place in data
        for path in place.glob("*-*")
        if path.name.rpartition("-")[0] in topics
    )
    return _bytes(recorded) + _bytes(logs)


def _bytes(paths: Iterable[Path]) -> int:
    return sum(
        file.stat().st_size
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file() and file.suffix not in PREALLOCATED
    )
