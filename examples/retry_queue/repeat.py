"""Runs the tests of the retry queue repeatedly, each time with another seed, and prints what was seen.

python examples/retry_queue/repeat.py --wrong 20 --right 50     # the twins, and the correct service under named
faults python examples/retry_queue/repeat.py --seeds 200               # the correct service under random
faults, both stores python examples/retry_queue/repeat.py --wrong 20 --right 20 -k lost_after_taking -n 2

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
from rich.table import Table

TESTS = Path(__file__).parent / "tests"
RANDOM = "random_faults"


class Repetition:
    """A pytest plugin: repeats the tests, and counts their results."""

    def __init__(self, wrong: int, right: int) -> None:
        self._wrong, self._right = wrong, right
        self.runs: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.commands: list[str] = []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each test a number of runs; those under random faults have their seeds."""
        if RANDOM not in metafunc.function.__name__:
            metafunc.fixturenames.append("run_number")
            runs = max(self._wrong, self._right)
            metafunc.parametrize("run_number", [f"run{number}" for number in range(runs)])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep as many runs of each twin as were asked for."""
        items[:] = [item for item in items if self._is_wanted(item.name)]

    def _is_wanted(self, name: str) -> bool:
        number = re.search(r"run(\d+)", name)
        return number is None or int(number[1]) < (self._wrong if "wrong" in name else self._right)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a run."""
        _, _, name = report.nodeid.rpartition("::")
        name = re.sub(r"-?run\d+-?|\d+-(?=embedded|redis)|(?<=embedded|redis)-\d+", "", name)
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
            table.add_row(name, f"{self.skipped[name]} skipped" if self.skipped[name] else passed)
        return table


def main() -> int:
    """Run the tests."""
    parser = argparse.ArgumentParser(description="repeat the tests of the retry queue")
    parser.add_argument("--wrong", type=int, default=20, help="runs of each wrong twin")
    parser.add_argument(
        "--right", type=int, default=50, help="runs of the correct service in each test"
    )
    parser.add_argument(
        "--seeds", type=int, help="instead: so many runs under random faults with each store"
    )
    given, arguments = parser.parse_known_args()
    os.environ["HARROW_LONG"] = "1"
    os.environ["RETRY_QUEUE_SEEDS"] = str(given.seeds or 1)
    chosen = ["-k", RANDOM] if given.seeds else []
    repetition = Repetition(given.wrong, given.right)
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
