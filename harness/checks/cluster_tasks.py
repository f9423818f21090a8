"""What runs in the tasks of a cluster whose executors are not this machine's own (`cluster_queries.py`).

The package arrives there as a zip file with the session. Everything else that a task imports must be installed for the
executors: `NEEDED`. Each task first checks its machine (`check_machine`), because an executor may join at any time; an
ExecutorError names the host, its Python and what is missing.

`mapInArrow` calls these functions; the rows that they get are numbers of tasks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harrow.cluster.errors import HarrowError

from ..histories.task_files import joined, read_bytes
from .sources import text_batch

NEEDED = ("crc32c", "numpy", "polars", "pyarrow")
THREADS = "2"
"""Threads of polars in a task: Spark gives a task one core, and not the whole machine."""


class ExecutorError(HarrowError):
    """The machine of an executor lacks what a task needs."""


def task_file(number: int) -> str:
    """Return the name of the file of a task in the folder of its query: its jobs, as JSON."""
    return f"task-{number}.json"


def check_machine() -> None:
    """Check that the packages are installed."""
    os.environ.setdefault("POLARS_MAX_THREADS", THREADS)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ExecutorError(
            f"host {platform.node()} lacks {', '.join(missing)} for Python {platform.python_version()} "
            f"({sys.executable}): pip install {' '.join(missing)}"
        )


def check_executor(token: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Check the machine; return its host, whether it can read the file `token`, and its hash of a text."""
    check_machine()
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    if numbers:
        found = {"host": platform.node(), "reads": _can_read(token), "hash": hash_of_a_text()}
        yield text_batch([json.dumps(found).encode()])


def hash_of_a_text() -> int:
    """Return polars' hash of a fixed text.

    A join compares hashes that different executors computed, and the hashes of polars differ by version and processor.
    """
    import polars as pl

    return int(pl.Series(["a text"], dtype=pl.String).hash(1)[0])


def check_hash(expected: int) -> None:
    """Check that this executor computes the same hashes as those that were checked first."""
    if hash_of_a_text() != expected:
        import polars as pl

        raise ExecutorError(
            f"polars {pl.__version__} on host {platform.node()} computes other hashes than on the other executors: "
            "install the same version of polars on all of them"
        )


def _can_read(name: str) -> bool:
    try:
        read_bytes(name)
    except OSError:
        return False
    return True


def judge_tasks(folder: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Judge the tasks with these numbers; yield a row of JSON for each topic-partition."""
    check_machine()
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    from .kernels import judge_task

    for number in numbers:
        try:
            jobs = json.loads(bytes(read_bytes(joined(folder, task_file(number)))))
        except OSError as error:
            raise ExecutorError(f"host {platform.node()} cannot read {folder}: {error}") from error
        for result in judge_task(jobs):
            yield text_batch([json.dumps(result).encode()])


def call_pickled(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Call a pickled callable once; yield a row of JSON for each of its results."""
    check_machine()
    if not any(batch.num_rows for batch in batches):
        return
    call: Callable[[], Iterable[dict[str, Any]]] = pickle.loads(pickled)  # noqa: S301  (our client's)
    yield text_batch([json.dumps(result).encode() for result in call()])
