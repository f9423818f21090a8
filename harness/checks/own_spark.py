"""Harrow's own Spark as the plan server sees it: a JVM on this machine that runs Python tasks.

`OwnSpark` reaches the JVM through py4j, opens Spark's context, and has plans judged as jobs of a Python RDD
(`spark_tasks.py`). It needs neither Spark SQL nor Connect: before the first verdict they cost three times the processor
time of everything that is left (`benchmarks/bench_first_verdict.py`). `address` starts Connect in the same JVM, for the
joins of large promises and for sessions of the caller's; few runs need it.

Invariant: a job has a deadline (`verdict_seconds()`), after which Spark cancels it. What may fail: SparkError.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .connect_channel import SparkError, too_late, verdict_seconds
from .jvm import LOOPBACK
from .spark_tasks import COMMAND

LOG = "see spark.log in the folder of the run"
SHOWN_MOST = 4000
"""Characters of an error of the JVM that are shown; all of it is in spark.log."""
CALL_TIMEOUT_S = 60.0
"""How long py4j waits for a response, beyond the deadline of a job."""


class OwnSpark:
    """Spark's context in a JVM; threads may share it, and their jobs run side by side."""

    def __init__(self, gateway: Mapping[str, Any], folder: Path) -> None:
        """Open Spark's context. `gateway`: the `port` and `token` of py4j, and the `connect_token` of Connect.

        `folder`: for the files that name the tasks.
        """
        from py4j.java_gateway import GatewayParameters, JavaGateway

        self._folder = folder
        self._numbers = itertools.count()
        self._connecting = threading.Lock()
        self._address = ""
        self._token = gateway["connect_token"]
        wait_s = verdict_seconds() + CALL_TIMEOUT_S
        self._gateway: Any = JavaGateway(
            gateway_parameters=GatewayParameters(
                address=LOOPBACK, port=gateway["port"], auth_token=gateway["token"], read_timeout=wait_s
            )
        )
        self._jvm: Any = self._gateway.jvm
        with _as_spark_error(0.0):
            spark = self._jvm.org.apache.spark
            self._context: Any = spark.api.java.JavaSparkContext(spark.SparkConf())

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Have every job of a plan judged, and return a result for each."""
        tasks = json.loads(plan.read_text())
        files = [self._task_file() for _ in tasks]
        try:
            for file, task in zip(files, tasks, strict=True):
                file.write_text(json.dumps(task))
            return self._run(files)
        finally:
            for file in files:
                file.unlink(missing_ok=True)

    def call(self, pickled: Path) -> list[dict[str, Any]]:
        """Have one task call the pickled callable in a file, and return its results."""
        return self._run([pickled])

    def _task_file(self) -> Path:
        return self._folder / f"task-{next(self._numbers)}.json"

    def _run(self, files: Sequence[Path]) -> list[dict[str, Any]]:
        """Run a job with a task for each file."""
        if not files:
            return []
        wait_s = verdict_seconds()
        with _as_spark_error(wait_s):
            paths = self._jvm.java.util.ArrayList()
            for file in files:
                paths.add(bytearray(str(file), "utf-8"))
            records = self._context.parallelize(paths, len(files))
            python = self._jvm.org.apache.spark.api.python
            job = python.PythonRDD(records.rdd(), self._function(), False, False)
            going = job.asJavaRDD().collectAsync()
            try:
                found = going.get(round(wait_s * 1000), self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
            except BaseException:
                with contextlib.suppress(Exception):  # the JVM has ended
                    going.cancel(True)
                raise
            return [json.loads(bytes(row)) for row in found]

    def _function(self) -> Any:
        """Return what PySpark calls a function: the bytes of a command, and the Python that runs it."""
        util = self._jvm.java.util
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return self._jvm.org.apache.spark.api.python.SimplePythonFunction(
            bytearray(COMMAND), util.HashMap(), util.ArrayList(), sys.executable, version, util.ArrayList(), None
        )

    def address(self) -> str:
        """Return the address of Spark Connect in this JVM; the first call starts it."""
        with self._connecting, _as_spark_error(0.0):
            if not self._address:
                spark = self._jvm.org.apache.spark.sql
                spark.classic.SparkSession.builder().getOrCreate()
                service = getattr(getattr(spark.connect.service, "SparkConnectService$"), "MODULE$")
                service.start(self._context.sc())
                # localhost and not 127.0.0.1: with a token the client would try TLS to the latter
                self._address = f"sc://localhost:{service.localPort()}/;token={self._token}"
        return self._address


@contextmanager
def _as_spark_error(wait_s: float) -> Generator[None]:
    """Raise an exception of the JVM, and of the connection to it, as SparkError without a stack of the JVM."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        java: Any = error.java_exception
        if java.getClass().getName() == "java.util.concurrent.TimeoutException":
            raise SparkError(too_late(wait_s, LOG)) from error
        raise SparkError(said_by(java)) from error
    except (Py4JError, OSError) as error:
        raise SparkError(f"the connection to Spark's JVM broke: {error}; {LOG}") from error


def said_by(java: Any) -> str:
    """Return the message of the first cause, which for a Python task is the traceback of Python."""
    while java.getCause() is not None:
        java = java.getCause()
    message = str(java.getMessage() or java.toString())
    lines = [line for line in message.splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines)[:SHOWN_MOST].strip()
