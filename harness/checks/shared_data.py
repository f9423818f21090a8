"""Copies for executors on other machines: what the tasks of one query read, in a folder that all machines can read.

Owns a folder with a random name in the folder that `--harrow-spark-data` names: a path on a file system that is mounted
on all machines, or a URL of pyarrow's file systems. `SharedData` is a context manager; at its end the folder is
removed. A process that is killed leaves its folder there.

What is copied: rows of histories and taps, placed by topic-partition (`histories/placed_rows.py`); the segments of
the judged logs; the files of a join's chunks. A file is copied once, several files at a time on threads.

May fail: SharedDataError where the folder cannot be written.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from harrow.cluster.errors import HarrowError

from ..histories.format import NAMES_SUFFIX, OPS_SUFFIX
from ..histories.placed_rows import SUFFIX, write_placed
from ..histories.segments import segment_files
from ..histories.task_files import file_system, joined
from ..user_spark import shown
from .plans import ROW_RANGES

COPY_BYTES = 8 << 20
Task = list[dict[str, Any]]


class SharedDataError(HarrowError):
    """The folder that `--harrow-spark-data` names cannot be used."""


class SharedData:
    """A folder with the copies for one query. Threads may use it."""

    def __init__(self, url: str) -> None:
        """`url`: an absolute path, or a URL that pyarrow knows."""
        self.url = url
        self._folder = f"harrow-{secrets.token_hex(8)}"
        self._copies: dict[str, str] = {}

    def __enter__(self) -> SharedData:
        try:
            self._system, root = file_system(self.url)
            self._path = f"{root}/{self._folder}"
            self._system.create_dir(self._path, recursive=True)
        except Exception as error:
            raise SharedDataError(
                f"--harrow-spark-data={shown(self.url)}: no folder can be made there: {error}; name a folder or a URL "
                "that this machine can write and all executors can read"
            ) from error
        is_mounted = self._system.type_name == "local"
        self.name = self._path if is_mounted else f"{self.url}#{self._folder}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._system.delete_dir(self._path)

    def copied(self, path: str) -> str:
        """Copy a file, if it is not copied yet; return the name of the copy. The names of a history go with it."""
        if path not in self._copies:
            folder = f"files/{len(self._copies)}"
            source = Path(path)
            self._copies[path] = self._write(f"{folder}/{source.name}", partial(_copy, source))
            names = source.with_suffix(NAMES_SUFFIX)
            if source.suffix == OPS_SUFFIX and names.exists():
                self._write(f"{folder}/{names.name}", partial(_copy, names))
        return self._copies[path]

    def tasks(self, tasks: Iterable[Task]) -> list[Task]:
        """Copy what the tasks of a plan read; return the tasks with the names of the copies."""
        given = list(tasks)
        jobs = [job for task in given for job in task]
        indexes = {part[0] for job in jobs for field in ROW_RANGES for part in job[field]}
        logs = {log for job in jobs for log in job["logs"].values()}
        work: dict[str, Callable[[], str]] = {}
        for number, index in enumerate(sorted(indexes)):
            work[index] = partial(self._write, f"rows/{number}{SUFFIX}", partial(write_placed, index))
        for number, log in enumerate(sorted(logs)):
            if Path(log).is_dir():  # else the task says that the folder does not exist, by its own name
                work[log] = partial(self._copy_log, log, f"logs/{number}")
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            copies = dict(zip(work, pool.map(_called, work.values()), strict=True))
        return [[_renamed(job, copies) for job in task] for task in given]

    def write(self, name: str, content: bytes) -> None:
        """Write a file of this folder."""
        self._write(name, lambda target: target.write(content))

    def _copy_log(self, log: str, name: str) -> str:
        self._system.create_dir(f"{self._path}/{name}", recursive=True)
        for segment in segment_files(log):
            self._write(f"{name}/{segment.name}", partial(_copy, segment))
        return joined(self.name, name)

    def _write(self, name: str, write: Callable[[Any], object]) -> str:
        """Write a file of this folder; return its name for tasks."""
        path = f"{self._path}/{name}"
        try:
            self._system.create_dir(path.rpartition("/")[0], recursive=True)
            with self._system.open_output_stream(path) as target:
                write(target)
        except OSError as error:
            raise SharedDataError(
                f"--harrow-spark-data={shown(self.url)}: {path} cannot be written: {error}"
            ) from error
        return joined(self.name, name)


def _called(copy: Callable[[], str]) -> str:
    return copy()


def _copy(source: Path, target: Any) -> None:
    with source.open("rb") as file:
        shutil.copyfileobj(file, target, COPY_BYTES)


def _renamed(job: dict[str, Any], copies: dict[str, str]) -> dict[str, Any]:
    """Return a job that names the copies."""
    ranges = {field: [[copies[path], start, rows] for path, start, rows in job[field]] for field in ROW_RANGES}
    return {**job, **ranges, "logs": {node: copies.get(log, log) for node, log in job["logs"].items()}}
