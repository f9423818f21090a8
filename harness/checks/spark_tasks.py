"""What the Python workers of Harrow's own Spark run: a task of a plan, or a pickled callable.

    a record of the RDD:  the path of a file, UTF-8    ->    the results of its task, each a JSON text

The file is a list of jobs (`plans.py`), or a pickled callable (`*.pickle`) that yields the results: a join of a single
task. Spark moves bytes only, so that neither side of the JVM needs a schema.

`COMMAND` is what PySpark sends to a worker for each task. It names `command` instead of holding it, so that the process
that sends it (`own_spark.py`) does not import pyspark: one second of a processor.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PICKLED = ".pickle"
"""The suffix of a plan that is a pickled callable."""


def command() -> tuple[Any, None, Any, Any]:
    """Return what PySpark's worker calls: the function, no profiler, and how records are read and written."""
    from pyspark.serializers import NoOpSerializer

    return run_tasks, None, NoOpSerializer(), NoOpSerializer()


def run_tasks(_split: int, paths: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the results of the tasks that files name."""
    for path in paths:
        for result in results_of(bytes(path).decode()):
            yield json.dumps(result).encode()


def results_of(path: str) -> Iterable[dict[str, Any]]:
    """Return the results of the task in a file."""
    if path.endswith(PICKLED):
        with open(path, "rb") as file:
            call: Callable[[], Iterable[dict[str, Any]]] = pickle.load(file)  # noqa: S301  (our client's)
        return call()
    from .kernels import judge_task

    with open(path, encoding="utf-8") as file:
        return judge_task(json.load(file))


class _ByName:
    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return command, ()


COMMAND = pickle.dumps(_ByName())
