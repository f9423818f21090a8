"""`--harrow-shrink RUNS`: a failed test runs again with ever fewer faults, as long as it still fails (K9).

The test runs again as pytest runs it, with new fixtures and new clusters; only the schedules of its chaos blocks are
replaced (`fixtures.Replays`). Real processes do not repeat the interleaving of threads and packets, so a candidate runs
up to `REPEATS` times before it is given up. A candidate counts as failed when it has one of the anomalies of the first
failure, or the same exception.

Faults are first tried by their roles, at the times at which they fired: such a schedule means the same on another
cluster, so it can be pasted into a suite. Where the failure does not come back so, the recorded brokers are kept.

The section of the failed test's report has the result; the reports of the further runs are not shown.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from harrow.faults.schedule import Schedule

from ..search.pasted import pasted_test
from ..search.shrinking import Shrunk, shrink
from .fixtures import REPLAYS, USED, Replays, TestState
from .recorded_schedules import by_roles
from .repeating import PROPERTY_FAILURE
from .requested_fixtures import RUNS, SIMULATED_TEST, harrow_fixtures, runs_of, uses_harrow

REPEATS = 2
FOLDER = "-shrink"
EXAMPLES = "harrow_examples"
"""The fixture of property-based tests, whose examples Hypothesis shrinks."""
UNKNOWN = "unknown"
Block = tuple[str, int]
"""The name of a fixture, and the number of the chaos block in the test."""


class ShrinkFailures:
    """The plugin of `--harrow-shrink`; `runs_most`: further runs of each failed test."""

    def __init__(self, runs_most: int) -> None:
        self._runs_most = runs_most

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test that uses Harrow: when it fails, again with ever fewer faults."""
        if not uses_harrow(item) or EXAMPLES in harrow_fixtures(item) or SIMULATED_TEST in item.stash:
            return None  # a simulated test is shrunk where its seeds run (`shrinking_seeds.py`)
        run_and_shrink(item, nextitem, self._runs_most)
        return True


def run_and_shrink(item: pytest.Item, nextitem: pytest.Item | None, runs_most: int) -> None:
    """Run a test and report it; when it fails, shrink its schedules with up to `runs_most` further runs."""
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = next((report for report in reports if report.failed and report.when == "call"), None)
    if failed is not None:
        text = TestShrinker(item, nextitem, failure_names(failed), runs_most).result()
        # before the section that ends with the command that repeats the test
        failed.sections.insert(len(failed.sections) - 1, ("harrow shrunk schedule", text))
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def failure_names(report: pytest.TestReport) -> frozenset[str]:
    """Return the anomalies of a failed test, or the class of its exception."""
    said = str(dict(report.user_properties).get(PROPERTY_FAILURE, ""))
    return frozenset(filter(None, said.split(", ")))


@dataclass(frozen=True, slots=True)
class ItemState:
    """What a run of a test leaves on its item, so that further runs do not change it."""

    runs: list[Any]
    used: TestState | None
    properties: list[tuple[str, object]]

    @classmethod
    def take(cls, item: pytest.Item) -> ItemState:
        """Take it from the item, as if the test had not run."""
        state = cls(runs_of(item), item.stash.get(USED, None), [*item.user_properties])
        item.stash[RUNS] = []
        if state.used is not None:
            del item.stash[USED]
        return state

    def put_back(self, item: pytest.Item) -> None:
        """Give it back to the item."""
        item.stash[RUNS] = self.runs
        if self.used is not None:
            item.stash[USED] = self.used
        item.user_properties[:] = self.properties


class TestShrinker:
    """Shrinks the schedules of one failed test."""

    __test__ = False

    def __init__(
        self, item: pytest.Item, nextitem: pytest.Item | None, failure: frozenset[str], runs_most: int
    ) -> None:
        self._item = item
        self._nextitem = nextitem
        self._failure = failure
        self._runs_most = runs_most
        self._runs = 0
        self._schedules: dict[Block, Schedule] = {
            (run.name, number): schedule for run in runs_of(item) for number, schedule in enumerate(run.schedules)
        }

    def result(self) -> str:
        """Shrink, and return what the report says."""
        if not self._failure or self._failure <= {UNKNOWN, "NemesisError", "ConfigError"}:
            return "not shrunk: the failure is none of the code under test; see the verdict"
        blocks = [block for block, schedule in self._schedules.items() if schedule.steps]
        if not blocks:
            return "not shrunk: the test ended before a chaos block did"
        state = ItemState.take(self._item)
        try:
            text = self._shrink_blocks(blocks)
        finally:
            state.put_back(self._item)
        return text

    def _shrink_blocks(self, blocks: list[Block]) -> str:
        by_role = {block: by_roles(schedule) for block, schedule in self._schedules.items()}
        start = next((given for given in (by_role, self._schedules) if self._fails(given)), None)
        if start is None:
            return (
                f"not shrunk: {self._names()} did not come back in {self._runs} runs with the same schedule; "
                "--harrow-repeat counts how often it does"
            )
        self._schedules = dict(start)
        parts = [self._shrink_block(block) for block in blocks]
        return "\n".join(parts)

    def _shrink_block(self, block: Block) -> str:
        def trial(candidate: Schedule) -> Schedule | None:
            return candidate if self._fails({**self._schedules, block: candidate}) else None

        left = self._runs_most - self._runs
        shrunk = shrink(self._schedules[block], trial, runs_most=max(0, left // REPEATS))
        self._schedules[block] = replace(shrunk.schedule, run={}, notes={})
        return self._text(block, shrunk)

    def _text(self, block: Block, shrunk: Shrunk) -> str:
        fixture, number = block
        several = len(self._schedules) > 1
        where = f"block {number + 1} of {fixture}: " if several else ""
        if not shrunk.schedule.steps:
            return f"{where}{self._names()} needs no fault: the test fails without any"
        found = f"{self._names()}; {where}{shrunk.summary()}."
        name = getattr(self._item, "originalname", None) or self._item.name
        return f"{found}\n\n{pasted_test(name.removeprefix('test_'), self._schedules[block], found)}"

    def _names(self) -> str:
        return ", ".join(sorted(self._failure))

    def _fails(self, schedules: Mapping[Block, Schedule]) -> bool:
        return any(self._runs_as_before(schedules) for _ in range(REPEATS))

    def _runs_as_before(self, schedules: Mapping[Block, Schedule]) -> bool:
        """Run the test with these schedules; True when it fails as it did at first."""
        self._runs += 1
        item: Any = self._item
        item.stash[REPLAYS] = Replays(schedules, FOLDER)
        try:
            item._initrequest()  # noqa: SLF001 - pytest has no public way to run an item again
            reports = runtestprotocol(item, nextitem=self._nextitem, log=False)
        finally:
            del item.stash[REPLAYS]
            for run in ItemState.take(item).runs:
                shutil.rmtree(run.folder, ignore_errors=True)
        found = (failure_names(report) for report in reports if report.failed and report.when == "call")
        return any(self._failure & names for names in found)
