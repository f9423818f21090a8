"""The Python data source that hands each Spark task a few topic-partitions and takes their verdicts.

`format("harrow-verdict").option("plan", path)`: the plan is a JSON list of tasks, each a list of jobs
(`kernels.PartitionJob`), packed by `pack` so that a task has bounded bytes and a tiny history is one task. A task
reads its own files and yields one JSON text for each job: nothing is shuffled, and only results leave. A plan of
one task is judged by a query that is always the same (`judge_at`).

This module is imported by Spark's planner too, so it keeps away from polars; a task imports the kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .kernels.inputs import PartitionJob

NAME = "harrow-verdict"
SCHEMA = "result string"
TASK_BYTES = 32 << 20
JOBS_MOST = 64
"""A job costs about 5 ms however small it is; a task about 40 ms."""


def result_schema() -> StructType:
    """`SCHEMA` as an object: a text of it the client would have the server parse."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("result", StringType())])


def pack(jobs: Sequence[PartitionJob]) -> list[list[dict[str, Any]]]:
    """Jobs as tasks: the largest first, each task filled up to its bytes."""
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
    """The first task of the plan that the file `slot` names: what `mapInArrow` runs, whatever rows it is given.

    A data source costs three visits to Python workers before its first task runs; a tiny verdict is spared them.
    That the plan is named by a file lets one query, asked once, judge every tiny run of a client.
    """
    import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)

    from .kernels import judge_task

    for _ in batches:
        pass
    with open(slot, encoding="utf-8") as file:
        plan = file.read()
    with open(plan, encoding="utf-8") as file:
        jobs = json.load(file)[0]
    pa: Any = pyarrow
    results = [json.dumps(result) for result in judge_task(jobs)]
    yield pa.record_batch({"result": pa.array(results, pa.string())})


class VerdictReader(DataSourceReader):
    """Reads a plan, one Spark task for each of its tasks."""

    def __init__(self, plan: str) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the plan."""
        with open(self._plan, encoding="utf-8") as file:
            return [InputPartition(task) for task in json.load(file)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Judge the partitions of one task."""
        from .kernels import judge_task

        for result in judge_task(partition.value):
            yield (json.dumps(result),)


class VerdictSource(DataSource):
    """`harrow-verdict`: one row of JSON for each topic-partition judged."""

    @classmethod
    def name(cls) -> str:
        """Its name for `spark.read.format`."""
        return NAME

    def schema(self) -> StructType | str:
        """One text."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  (theirs)
        """A reader of the plan named by the option `plan`."""
        return VerdictReader(self.options["plan"])
