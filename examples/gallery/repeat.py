"""Runs every application of the gallery repeatedly, each time with another seed, and prints what the verdicts say.

    python examples/gallery/repeat.py --wrong 20 --right 50
    python examples/gallery/repeat.py --only acks_one

A line of the table: the application, its twin, the runs that were as expected, and the verdicts with their anomalies.
Exit code 1: a run was not as expected.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from harrow.harness.checks.verdict import Status, Verdict
from rich.console import Console
from rich.table import Table

GALLERY = Path(__file__).parent


class Repetition:
    """A pytest plugin: collects the verdicts of the runs, which `conftest.py` makes."""

    def __init__(self) -> None:
        self.expected: Counter[tuple[str, str]] = Counter()
        self.runs: Counter[tuple[str, str]] = Counter()
        self.verdicts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a run and its verdict."""
        run = (Path(report.fspath).parent.name, _twin(report.nodeid))
        if report.when != "call":
            self.expected[run] -= report.failed
            return
        self.runs[run] += 1
        self.expected[run] += report.passed
        folders = [value for name, value in report.user_properties if name == "harrow.folder"]
        self.verdicts[run][_described(Path(str(folders[-1]))) if folders else "no verdict"] += 1

    def table(self) -> Table:
        """Return application, twin, runs and verdicts."""
        table = Table("application", "twin", "as expected", "verdicts")
        for run in sorted(self.runs):
            seen = "; ".join(f"{count} x {text}" for text, count in self.verdicts[run].most_common())
            table.add_row(*run, f"{self.expected[run]} of {self.runs[run]}", seen)
        return table


def _twin(name: str) -> str:
    return "wrong" if "wrong" in name.rpartition("[")[2] else "right"


def _described(folder: Path) -> str:
    """Return status and names of anomalies of the verdict in a run folder."""
    verdict = Verdict.from_json((folder / "verdict.json").read_text())
    names = dict.fromkeys(found.name for found in verdict.anomalies)
    reasons = f": {verdict.reasons[0]}" if verdict.status is Status.UNKNOWN else ""
    return f"{verdict.status.value} ({', '.join(names)}){reasons}".replace(" ()", "")


def main() -> int:
    """Run the gallery."""
    parser = argparse.ArgumentParser(description="repeat the gallery")
    parser.add_argument("--wrong", type=int, default=20, help="runs of each wrong application")
    parser.add_argument("--right", type=int, default=50, help="runs of each correct twin")
    parser.add_argument("--only", action="append", help="a folder of the gallery; all by default")
    given, arguments = parser.parse_known_args()
    os.environ["GALLERY_RUNS"] = f"{given.wrong},{given.right}"
    repetition = Repetition()
    places = [str(GALLERY / name) for name in given.only or ["."]]
    code = pytest.main(["-q", "-p", "no:randomly", *arguments, *places], plugins=[repetition])
    Console().print(repetition.table())
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
