"""Queries of a session whose executors are not started by this process: a Connect address, or a master of a cluster.

Owns: what a session needs on such a cluster, prepared once. The package travels as a zip file with the session
(`addArtifacts`). A small query checks the executors: their packages, their version of Python, and whether they can read
the run folder. If they can (the folder is on a file system that all share, or the executors are on this machine),
tasks read it as they do locally. If `--harrow-spark-data` names a folder, the data is copied there for each query
(`shared_data.py`). If neither, the error names the option.

A plan's tasks are files, so that a query is small however many topic-partitions there are.

May fail: ExecutorsError, which says what to change; other errors of Spark as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import re
import secrets
import sys
import threading
import zipfile
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

from harrow.cluster.errors import HarrowError

from ..user_spark import shown
from .connect_channel import bounded
from .shared_data import SharedData
from .sources import result_schema

CHECKED_TASKS = 8
EXECUTORS_TIMEOUT_S = 120.0
OPTION = "--harrow-spark-data"
LAYERS = ("harrow", "harrow.cluster", "harrow.faults", "harrow.harness")
_PROBLEM = re.compile(r"ExecutorError: (.+)")
_VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH\] .*?(\d+\.\d+)")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_PACKAGE = re.compile(r"(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\] (.+?) must be installed")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor")


class ExecutorsError(HarrowError):
    """The executors cannot judge: they lack the data, a package or the same version of Python."""


class ClusterQueries:
    """Runs plans and joins on a cluster. The caller makes one query at a time."""

    def __init__(self, session: Any, address: str, data: str, scratch: Path) -> None:
        """`data`: the folder of `--harrow-spark-data`, or empty. `scratch`: where the zip file is made."""
        self._session = session
        self._address = address
        self._data = data
        self._scratch = scratch
        self._readable: set[Path] = set()
        self._has_package = False
        self.hash = 0
        """What the executors compute as the hash of a fixed text; set by `prepare`."""

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Have every job of a plan judged, and return a result for each."""
        from .cluster_tasks import judge_tasks, task_file

        tasks: list[list[dict[str, Any]]] = json.loads(plan.read_text())
        self.prepare(plan.parent)
        with contextlib.ExitStack() as stack:
            if self._data:
                shared = stack.enter_context(SharedData(self._data))
                tasks, folder = shared.tasks(tasks), shared.name
                for number, task in enumerate(tasks):
                    shared.write(task_file(number), json.dumps(task).encode())
            else:
                folder = str(plan.parent)
                for number, task in enumerate(tasks):
                    Path(folder, task_file(number)).write_text(json.dumps(task))
            return self._run(len(tasks), partial(judge_tasks, folder))

    def call(self, pickled: bytes) -> list[dict[str, Any]]:
        """Have one task call a pickled callable, and return its results."""
        from .cluster_tasks import call_pickled

        return self._run(1, partial(call_pickled, pickled))

    @contextlib.contextmanager
    def copies(self, folder: Path) -> Generator[Callable[[str], str]]:
        """Prepare a join of files in `folder`; yield what returns the name of a file for tasks."""
        self.prepare(folder)
        shared = SharedData(self._data) if self._data else None
        with shared or contextlib.nullcontext():
            try:
                yield shared.copied if shared is not None else lambda path: path
            except Exception as error:
                raise explained(error, self._address) from error

    def prepare(self, folder: Path) -> None:
        """Send the package, check the executors, and that they can read `folder` where nothing is copied."""
        if not self._has_package:
            self._send_package()
        if self._data:
            if not self._readable:
                with SharedData(self._data) as shared:
                    shared.write("token", b"readable")
                    self._check(f"{shared.name}/token", f"{OPTION}={shown(self._data)}")
                self._readable.add(Path(self._data))
        elif folder.parents[1] not in self._readable:  # the folder of a process's runs
            token = folder / f"token-{secrets.token_hex(8)}"
            token.write_text("readable")
            try:
                self._check(str(token), f"the run folder {folder}")
            finally:
                token.unlink()
            self._readable.add(folder.parents[1])

    def _check(self, token: str, what: str) -> None:
        from .cluster_tasks import check_executor

        late = threading.Event()

        def interrupt() -> None:
            late.set()
            self._session.interruptAll()

        timer = threading.Timer(EXECUTORS_TIMEOUT_S, interrupt)
        timer.start()
        try:
            found = self._run(CHECKED_TASKS, partial(check_executor, token))
        except Exception as error:
            if late.is_set():
                raise ExecutorsError(
                    f"no executor of {self._address} began a task within {EXECUTORS_TIMEOUT_S:g} s: check that the "
                    "cluster has a worker with a free core and enough memory"
                ) from error
            raise
        finally:
            timer.cancel()
        self.hash = int(found[0]["hash"])
        others = sorted({row["host"] for row in found if row["hash"] != self.hash})
        if others:
            raise ExecutorsError(
                f"polars computes different hashes on the executors of {self._address} (hosts {found[0]['host']} and "
                f"{', '.join(others)}): install the same version of polars on all of them"
            )
        hosts = sorted({row["host"] for row in found if not row["reads"]})
        if not hosts:
            return
        raise ExecutorsError(
            f"the executors of {self._address} cannot read {what} (host {', '.join(hosts)}): name a folder or a URL "
            f"that this machine can write and all executors can read, as {OPTION}=file:///mnt/shared or "
            f"{OPTION}=s3://bucket/folder (ini harrow_spark_data)"
        )

    def _run(self, tasks: int, work: Callable[..., Any]) -> list[dict[str, Any]]:
        try:
            frame = self._session.range(0, tasks, 1, tasks).mapInArrow(work, result_schema())
            with bounded(self._session, f"see the log of {self._address}"):
                return [json.loads(row[0]) for row in frame.collect()]
        except Exception as error:
            raise explained(error, self._address) from error

    def _send_package(self) -> None:
        content = package_archive()
        path = self._scratch / f"harrow-{hashlib.sha256(content).hexdigest()[:16]}.zip"
        path.write_bytes(content)
        known = list(sys.path)
        try:
            self._session.addArtifacts(str(path), pyfile=True)
        finally:
            sys.path[:] = known  # pyspark puts the zip file into this process's path, too
            path.unlink()
        self._has_package = True


def explained(error: Exception, address: str) -> Exception:
    """Return an ExecutorsError with a remedy for an error of Spark that has a known cause; else the error itself."""
    text = str(error)
    host = _HOST.search(text)
    where = f"the executors of {address}" + (f" (host {host[1]})" if host else "")
    ours = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    if found := _PROBLEM.search(text):
        return ExecutorsError(f"the executors of {address} cannot judge: {found[1].strip()}")
    if found := _VERSIONS.search(text):
        return ExecutorsError(
            f"{where} run Python {found[1]}, and this process runs {ours}: functions can only be sent to the same "
            "minor version; set PYSPARK_PYTHON to such a Python of the executors, or run the tests with theirs"
        )
    if found := _NO_PROGRAM.search(text):
        return ExecutorsError(
            f"{where} have no Python {found[1]}: set PYSPARK_PYTHON to the path of {ours} on their machines"
        )
    if found := _NO_MODULE.search(text) or _NO_PACKAGE.search(text):
        return ExecutorsError(
            f"{where} cannot import {found[1]}: install it for their {ours}; functions of test modules are sent by "
            "value, but not those of installed packages"
        )
    return error


def package_archive(changed: Callable[[bytes], bytes] = bytes) -> bytes:
    """Return Harrow's Python files as a zip file; the same files give the same bytes. `changed`: for tests."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for layer in LAYERS:
            for name, path in sorted(_modules(layer)):
                archive.writestr(zipfile.ZipInfo(name), changed(path.read_bytes()), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _modules(layer: str) -> Generator[tuple[str, Path]]:
    """Yield the Python files of a layer with their names in the archive; the root package has its own files only."""
    folder = Path(os.path.dirname(importlib.import_module(layer).__file__ or ""))
    for path in folder.glob("*.py") if layer == "harrow" else folder.rglob("*.py"):
        yield f"{layer.replace('.', '/')}/{path.relative_to(folder).as_posix()}", path
