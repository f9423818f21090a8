"""Runs the tests of the retry queue repeatedly, each time with another seed, and prints what was seen.

    python examples/retry_queue/repeat.py --wrong 20 --right 50  # twins; the correct service under named faults
    python examples/retry_queue/repeat.py --seeds 200            # the correct service under random faults, both stores
    python examples/retry_queue/repeat.py --wrong 20 --right 20 -k lost_after_taking -n 2

Each line of the table: a test with its parameters, and how many runs passed. A test with a wrong twin passes
when the verdict on it is invalid and has the anomaly of the twin. Exit code 1: a run failed, and the seeds of
these runs follow the table. Further arguments are pytest's.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

TESTS = Path(__file__).parent / "tests"
RANDOM = "random_faults"


class Repetition:
    """A pytest plugin: counts the results of the runs, which `tests/conftest.py` makes."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.commands: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a run."""
        name = _without_number(report.nodeid.rpartition("::")[2])
        if report.skipped:
            self.skipped[name] += 1
        elif report.when == "call":
            self.runs[name] += 1
        if report.failed:
            self.failures[name] += 1
            self.commands += [text for title, text in report.sections if title == "harrow"]

    def table(self) -> Table:
        """Return the tests and how many of their runs passed."""
        table = Table("test", "passed")
        for name in sorted({*self.runs, *self.skipped}):
            passed = f"{self.runs[name] - self.failures[name]} of {self.runs[name]}"
            table.add_row(escape(name), f"{self.skipped[name]} skipped" if self.skipped[name] else passed)
        return table


def _without_number(name: str) -> str:
    """Return the name of a test without the number of its run."""
    test, _, parameters = name.rstrip("]").partition("[")
    kept = [part for part in parameters.split("-") if not re.fullmatch(r"(run)?\d+", part)]
    return f"{test}[{'-'.join(kept)}]" if kept else test


def main() -> int:
    """Run the tests."""
    parser = argparse.ArgumentParser(description="repeat the tests of the retry queue")
    parser.add_argument("--wrong", type=int, default=20, help="runs of each wrong twin")
    parser.add_argument("--right", type=int, default=50, help="runs of the correct service in each test")
    parser.add_argument("--seeds", type=int, help="instead: so many runs under random faults with each store")
    given, arguments = parser.parse_known_args()
    os.environ["HARROW_LONG"] = "1"
    os.environ["RETRY_QUEUE_SEEDS"] = str(given.seeds or 1)
    chosen = ["-k", RANDOM] if given.seeds else []
    os.environ["RETRY_QUEUE_RUNS"] = f"{given.wrong},{given.right}"
    repetition = Repetition()
    words = ["-q", "-p", "no:randomly", *chosen, *arguments, str(TESTS / "test_service.py")]
    if not given.seeds:
        words.append(str(TESTS / "test_twins.py"))
    code = pytest.main(words, plugins=[repetition])
    console = Console(soft_wrap=True)
    console.print(repetition.table())
    for command in repetition.commands:
        console.print(command, markup=False)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
