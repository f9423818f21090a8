"""The Python data source that gives each Spark task some topic-partitions and returns their results.

`format("harrow-verdict").option("plan", path)`: the plan is a JSON list of tasks, and a task is a list of jobs
(`plans.py`). A task reads its own files and yields one JSON text for each job: nothing is shuffled, and only results
leave the task. For a plan of one task the client uses a query that is always the same (`judge_at`).

Spark's planner imports this module too, so the module does not import polars; the tasks import the kernels.
"""

from __future__ import annotations

import itertools
import json
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


NAME = "harrow-verdict"
SCHEMA = "result string"
PICKLED = ".pickle"
"""The suffix of a plan that is a pickled callable."""


def result_schema() -> StructType:
    """Return `SCHEMA` as an object; for a text the client would ask the server to parse it."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("result", StringType())])


def judge_at(slot: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Judge the first task of the plan that the file `slot` names; `mapInArrow` calls this, and its rows are ignored.

    A plan may also be a pickled callable (`*.pickle`) that yields the results: a join of a single task.

    Before the first task of a data source runs, Spark calls Python workers three times; this query avoids that cost for
    a small verdict. Because a file names the plan, the client creates the query once for all its small runs.
    """
    for _ in batches:
        pass
    with open(slot, encoding="utf-8") as file:
        plan = file.read()
    yield text_batch([json.dumps(result).encode() for result in _results_of(plan)])


def text_batch(texts: Sequence[bytes]) -> Any:
    """Return an Arrow batch with the column `result`, made of buffers: `pyarrow.array` would import pandas (1 s)."""
    import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)

    pa: Any = pyarrow
    ends = list(itertools.accumulate(map(len, texts), initial=0))
    offsets = pa.py_buffer(struct.pack(f"={len(ends)}i", *ends))
    column = pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(b"".join(texts)))
    return pa.RecordBatch.from_arrays([column], names=["result"])


def _results_of(plan: str) -> Iterable[dict[str, Any]]:
    if plan.endswith(PICKLED):
        with open(plan, "rb") as file:
            call: Callable[[], Iterable[dict[str, Any]]] = pickle.load(file)  # noqa: S301  (our client's)
        return call()
    from .kernels import judge_task

    with open(plan, encoding="utf-8") as file:
        return judge_task(json.load(file)[0])


class VerdictReader(DataSourceReader):
    """Reads a plan: a Spark task for each task of the plan."""

    def __init__(self, plan: str) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of the plan."""
        with open(self._plan, encoding="utf-8") as file:
            return [InputPartition(task) for task in json.load(file)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Judge the partitions of one task."""
        from .kernels import judge_task

        for result in judge_task(partition.value):
            yield (json.dumps(result),)


class VerdictSource(DataSource):
    """The data source `harrow-verdict`: a row of JSON for each topic-partition."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return NAME

    def schema(self) -> StructType | str:
        """Return the schema: a single text column."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  (pyspark's signature)
        """Return a reader of the plan that the option `plan` names."""
        return VerdictReader(self.options["plan"])
