"""The join of records by hash: the same results in this process and on Spark, in one task and in several (L5)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.spark_client import quiet
from harrow.harness.engines import Engine
from harrow.harness.promises import by_value, join
from harrow.harness.promises.by_value import NotPicklableError, dumps
from harrow.harness.promises.join import run_join


@dataclass(frozen=True)
class Numbers:
    """A chunk: the numbers from `first` on."""

    first: int
    rows: int
    size: int = 8


def residue(number: int) -> int:
    """A function of this test module, which a worker cannot import."""
    return number % 7 - 3


@dataclass(frozen=True)
class Residues:
    """Maps numbers to rows by a function of the user; reports each chunk."""

    function: Callable[[int], int]

    def __call__(self, chunk: Numbers) -> Iterator[Any]:
        numbers = range(chunk.first, chunk.first + chunk.rows)
        yield {"chunk": chunk.first}
        yield pl.DataFrame({"hash": [self.function(n) << 40 for n in numbers], "number": numbers})


def count_each(rows: pl.DataFrame) -> Iterator[Any]:
    """Yields a row for each hash, which the next stage counts by its count."""
    counted = rows.group_by("hash").agg(pl.len().cast(pl.Int64).alias("count"))
    assert len(counted), "a reducer is called for buckets with rows only"
    yield counted.select(pl.col("count").alias("hash"))
    yield {"hashes": len(counted)}


def count_counts(rows: pl.DataFrame) -> Iterator[Any]:
    for count, times in rows.group_by("hash").len().iter_rows():
        yield {"count": count, "times": times}


def added(results: list[dict[str, Any]]) -> tuple[list[int], int, Counter[int]]:
    chunks = sorted(row["chunk"] for row in results if "chunk" in row)
    hashes = sum(row["hashes"] for row in results if "hashes" in row)
    counts = Counter({row["count"]: row["times"] for row in results if "count" in row})
    return chunks, hashes, counts


@pytest.mark.parametrize("engine", ["inline", "spark"])
@pytest.mark.parametrize("rows", [10, 100_000], ids=["one task", "several tasks"])
def test_stages_see_all_rows_of_a_hash_together(spark: SparkHandle, tmp_path: Path, engine: Engine, rows: int) -> None:
    chunks = [Numbers(0, rows), Numbers(rows, rows), Numbers(2 * rows, 0)]
    results = run_join(chunks, Residues(residue), count_each, count_counts, folder=tmp_path, spark=spark, engine=engine)
    counts = Counter(Counter(residue(n) for n in range(2 * rows)).values())
    assert added(results) == ([0, rows, 2 * rows], 7, counts)


def test_a_small_join_is_one_task_and_a_large_one_has_bounded_tasks() -> None:
    packed = join.packed([Numbers(n, 200_000) for n in range(6)])
    assert [len(task) for task in packed] == [2, 2, 2]
    assert [len(task) for task in join.packed([Numbers(0, 1)] * 9)] == [9]
    assert [len(task) for task in join.packed([Numbers(0, 10**9), Numbers(0, 1)])] == [1, 1]


def test_a_function_that_cannot_travel_is_named_with_a_remedy(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(number: int) -> int:
        with lock:
            return number

    with pytest.raises(NotPicklableError, match="create that object inside the function"):
        dumps(locked)


def test_a_value_without_functions_of_the_user_is_pickled_without_pyspark() -> None:
    program = (
        "import sys\n"
        "from harrow.harness.promises.by_value import dumps\n"
        "from harrow.harness.promises.record_ids import IdReader, canonical\n"
        "dumps([IdReader('record_id', 'order'), canonical])\n"
        "assert 'pyspark' not in sys.modules\n"
        "dumps(IdReader('record_id', lambda record: 1))\n"
        "assert 'pyspark' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


@pytest.mark.parametrize("value", [residue, Numbers(1, 2), [print, residue]])
def test_values_of_a_test_module_are_pickled_by_value(value: object) -> None:
    assert by_value.by_reference(value) is None


def test_modules_that_the_user_registered_stay_registered() -> None:
    from pyspark import cloudpickle

    pickler: Any = cloudpickle
    before = set(pickler.list_registry_pickle_by_value())
    dumps(residue)
    assert set(pickler.list_registry_pickle_by_value()) == before


def test_a_spark_without_repartition_by_id_brings_the_same_rows_together(
    spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quiet():
        from pyspark.sql.connect.dataframe import DataFrame

    for base in DataFrame.__mro__:  # Spark 4.0 has no such method
        if "repartitionById" in vars(base):
            monkeypatch.delattr(base, "repartitionById")
    assert not hasattr(DataFrame, "repartitionById")
    chunks = [Numbers(0, 100_000), Numbers(100_000, 100_000)]
    results = run_join(chunks, Residues(residue), count_each, count_counts, folder=tmp_path, spark=spark)
    counts = Counter(Counter(residue(n) for n in range(200_000)).values())
    assert added(results) == ([0, 100_000], 7, counts)
