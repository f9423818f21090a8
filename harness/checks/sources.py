"""The Python data source that gives each Spark task some topic-partitions and returns their results.

`format("harrow-verdict").option("plan", path)`: the plan is a JSON list of tasks, and a task is a list of jobs
(`kernels.PartitionJob`). `pack` fills the tasks so that each has a bounded number of bytes, and a small history is a
single task. A task reads its own files and yields one JSON text for each job: nothing is shuffled, and only results
leave the task. For a plan of one task the client uses a query that is always the same (`judge_at`).

Spark's planner imports this module too, so the module does not import polars; the tasks import the kernels.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .kernels.inputs import PartitionJob

NAME = "harrow-verdict"
SCHEMA = "result string"
PICKLED = ".pickle"
"""The suffix of a plan that is a pickled callable."""
TASK_BYTES = 32 << 20
JOBS_MOST = 64
"""A job costs about 5 ms however small it is; a task about 40 ms."""


def result_schema() -> StructType:
    """Return `SCHEMA` as an object; for a text the client would ask the server to parse it."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("result", StringType())])


def pack(jobs: Sequence[PartitionJob]) -> list[list[dict[str, Any]]]:
    """Divide the jobs into tasks: the largest jobs first, each task filled up to `TASK_BYTES`."""
    tasks: list[list[dict[str, Any]]] = []
    room = 0
    for job in sorted(jobs, key=lambda job: -job.size):
        if not tasks or job.size > room or len(tasks[-1]) >= JOBS_MOST:
            tasks.append([])
            room = TASK_BYTES
        tasks[-1].append(job.to_dict())
        room -= job.size
    return tasks


def judge_at(slot: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Judge the first task of the plan that the file `slot` names; `mapInArrow` calls this, and its rows are ignored.

    A plan may also be a pickled callable (`*.pickle`) that yields the results: a join of a single task.

    Before the first task of a data source runs, Spark calls Python workers three times; this query avoids that cost for
    a small verdict. Because a file names the plan, the client creates the query once for all its small runs.
    """
    import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)

    for _ in batches:
        pass
    with open(slot, encoding="utf-8") as file:
        plan = file.read()
    pa: Any = pyarrow
    results = [json.dumps(result) for result in _results_of(plan)]
    yield pa.record_batch({"result": pa.array(results, pa.string())})


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
