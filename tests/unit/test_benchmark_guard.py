"""What a benchmark starts ends with it (`benchmarks/guard.py`), and what it names in the product exists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import readable

BENCHMARK = """
import subprocess, sys
from guard import guarded_folder
with guarded_folder("harrow-guard-test-") as folder:
    command = [sys.executable, "-c", "import signal; signal.pause()", str(folder)]
    left = subprocess.Popen(command, start_new_session=True)  # as a JVM that its script has left
    print(left.pid, folder, flush=True)
    sys.stdin.read()
"""
ENDED_S = 120.0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_benchmark(number: signal.Signals) -> None:
    path = str(Path(__file__).parents[2] / "benchmarks")
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    ) as benchmark:
        assert benchmark.stdout is not None
        pid, folder = benchmark.stdout.readline().split()
        left = os.pidfd_open(int(pid))
        try:
            assert not readable(left, 0)
            benchmark.send_signal(number)
            assert readable(left, ENDED_S), "it outlived the benchmark"
        finally:
            os.close(left)
    assert Path(folder).name.startswith("harrow-guard-test-")


def test_the_phases_that_a_benchmark_times_are_functions_that_exist() -> None:
    """`bench_test_second.py` names functions of the product by strings, which no checker of types reads."""
    code = "import bench_test_second as bench\nexec(bench.PHASES)\ninstrument()\nprint('all there')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "benchmarks")},
        capture_output=True,
        text=True,
        timeout=ENDED_S,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("all there\n", 0), done.stderr
