"""Measures a small test, phase by phase, and what an installed Harrow costs a project whose tests do not use it.

    python benchmarks/bench_test_second.py [--tests 12] [--rounds 5]

1. A child process runs pytest on `--tests` equal tests: a cluster of three brokers, a topic, 1,000 records, `verify()`,
   teardown. The first test waits for Spark; the medians are those of the others. Phases: start (cluster), topic,
   produce, converge, final read, judge (of it Spark), report, close. The rest is pytest's own and not named.
2. The baseline of the same run: starting and ending four Python interpreters in parallel, as many processes as the
   cluster has. The ratio of the median test to it says how fast a test is on this machine at this moment; a loaded
   machine slows both.
3. Child processes run pytest on an empty test in turns with and without Harrow's plugin (`-p no:harrow`); printed are
   the medians of their processor times. Python keeps its bytecode, as on a user's machine: without it (the environment
   variable PYTHONDONTWRITEBYTECODE) pytest compiles the modules of every plugin in each run.

Exit code 1 when the median test takes more than 1 s and more than `RATIO_MOST` baselines, or when the plugin takes more
than 30 ms and more than a tenth of an empty test's processor time. The second condition of each is for loaded machines.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

PROCESSES = 4
TEST_MOST_S, RATIO_MOST = 1.0, 6.0
PLUGIN_MOST_S, PLUGIN_SHARE_MOST = 0.03, 0.1
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")

TESTS = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_small(harrow, number):
    orders = harrow.topic("orders", partitions=3)
    producer = harrow.producer(log_level=0)
    for record in range(1000):
        producer.produce(orders.name, f"order {{record}}", f"customer {{record % 10}}")
    producer.flush()
    harrow.verify(orders)
"""

PHASES = '''
"""Times the phases of each test and writes them as JSON lines."""

import functools
import json
import time

phases, started = {}, {}


def timed(owner, name, phase):
    call = getattr(owner, name)

    @functools.wraps(call)
    def wrapped(*arguments, **options):
        began = time.perf_counter()
        try:
            return call(*arguments, **options)
        finally:
            phases[phase] = phases.get(phase, 0) + time.perf_counter() - began

    setattr(owner, name, wrapped)


def instrument():
    from harrow.cluster import Cluster
    from harrow.harness.checks import judgement, spark_client
    from harrow.harness.clients import final_read
    from harrow.harness.reports import picture
    from harrow.harness.run import harrow_run as run
    from harrow.harness.run.recording import RecordingClients
    from harrow.harness.verdict import verifier as verdicts

    timed(Cluster, "start", "start")
    timed(run, "create_topic", "topic")
    timed(RecordingClients, "producer", "produce")
    timed(RecordingClients, "await_sends", "produce")
    timed(Cluster, "await_replicated", "converge")
    timed(final_read, "read_all", "final read")
    timed(verdicts.RunVerifier, "_ask", "judge")
    timed(spark_client.SparkHandle, "collect", "(Spark)")
    timed(picture, "write_picture", "report")
    timed(run.HarrowRun, "close", "close")


def pytest_runtest_setup(item):
    if not started:
        instrument()
    phases.clear()
    started[item.nodeid] = time.perf_counter()


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        phases["whole"] = time.perf_counter() - started[report.nodeid]
        with open("phases.jsonl", "a") as file:
            file.write(json.dumps(phases) + "\\\\n")
'''


def measured_tests(folder: Path, tests: int) -> list[dict[str, float]]:
    """Runs the tests in a child process and returns the seconds of each phase of each test."""
    (folder / "test_small.py").write_text(TESTS.format(tests=tests))
    (folder / "phases.py").write_text(PHASES.replace("\\\\n", "\\n"))
    subprocess.run(
        [*PYTEST, "-p", "phases"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
    )
    return [json.loads(line) for line in (folder / "phases.jsonl").read_text().splitlines()]


def baseline() -> float:
    """Returns the seconds that the start and the end of four interpreters in parallel take."""
    began = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", "import asyncio"]) for _ in range(PROCESSES)]
    for process in running:
        process.wait()
    return time.perf_counter() - began


def processor_time(command: Sequence[str], folder: Path) -> float:
    """Returns the processor time of a child process in seconds."""
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ | bytecode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def plugin_cost(folder: Path, rounds: int) -> tuple[float, float]:
    """Returns the median processor time of an empty test without and with the plugin."""
    (folder / "test_empty.py").write_text("def test_empty(): pass\n")
    commands = ([*PYTEST, "-p", "no:harrow"], [*PYTEST])
    for command in commands:
        processor_time(command, folder)  # which writes the bytecode
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for command, took in zip(commands, times, strict=True):
            took.append(processor_time(command, folder))
    return median(times[0]), median(times[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tests", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="harrow-bench-second-") as temporary:
        small, empty = Path(temporary, "small"), Path(temporary, "empty")
        small.mkdir()
        empty.mkdir()
        before = [baseline() for _ in range(options.rounds)]
        first, *later = measured_tests(small, options.tests)
        machine = median(before + [baseline() for _ in range(options.rounds)])
        without, with_plugin = plugin_cost(empty, options.rounds)
    for phase in later[0]:
        took = median(test.get(phase, 0.0) for test in later)
        print(f"{phase:12} {took * 1000:7.0f} ms   first test {first.get(phase, 0) * 1000:7.0f} ms")
    test_s = median(test["whole"] for test in later)
    print(f"baseline     {machine * 1000:7.0f} ms   a test takes {test_s / machine:.1f} baselines")
    print(f"empty test: {without:.3f} s of processor time, with Harrow installed {with_plugin:.3f} s")
    print(f"load average {' '.join(f'{figure:.1f}' for figure in os.getloadavg())} on {os.cpu_count()} cores")
    missed = test_s > TEST_MOST_S and test_s / machine > RATIO_MOST
    missed |= with_plugin - without > max(PLUGIN_MOST_S, PLUGIN_SHARE_MOST * without)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
