"""`harrow_examples`: a run for each example of a property-based test, with a cluster and a verdict of its own.

```python
@cluster_settings
@given(fault=faults(topics=["orders"]))
def test_no_order_is_lost(harrow_examples, fault):
    with harrow_examples() as harrow:
        ...
```

A test function runs once for each example, so what it makes must be new each time: topics, groups, the verdict. The
fixture has the scope of the session, so Hypothesis does not complain of it, and it belongs to the test that runs.

All examples of a test have the same seed: an example that Hypothesis runs again draws the same brokers. A bounded
number of run folders stays for each test: those of the last examples that failed, with their data, and the last that
passed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harrow.cluster.errors import ConfigError

from ..verdict.endings import note_verdict
from .attempts import PROPERTY, attempt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pytest

    from ..checks import Verdict
    from ..run.harrow import Harrow
    from ..run.harrow_run import HarrowRun

    Rows = list[tuple[str, object]]

FAILED_MOST = 3
PASSED_MOST = 1
COUNTS = f"{PROPERTY}examples"
"""The property that says how many examples a test had, and their verdicts."""


@dataclass(slots=True, kw_only=True)
class Example:
    """One example of a test: its run, and the verdicts on it."""

    number: int
    run: HarrowRun
    failed: bool = False
    verdicts: list[Verdict] = field(default_factory=list["Verdict"])


@dataclass(slots=True, kw_only=True)
class ExamplesOfTest:
    """What is kept of the examples of one attempt of a test."""

    count: int = 0
    statuses: Counter[str] = field(default_factory=Counter[str])
    last_unknown: str = ""
    """The reasons of the last verdict that was unknown."""
    failed: deque[Example] = field(default_factory=deque["Example"])
    passed: deque[Example] = field(default_factory=deque["Example"])
    rows: Rows = field(default_factory=list[tuple[str, object]])
    """The properties that the item has now because of them."""

    def ended(self, example: Example) -> None:
        """Count an example, and remove the folder of an older one."""
        kept, most = (self.failed, FAILED_MOST) if example.failed else (self.passed, PASSED_MOST)
        kept.append(example)
        for verdict in example.verdicts:
            self.statuses[verdict.status.value] += 1
            if verdict.reasons and not verdict.valid:
                self.last_unknown = "; ".join(verdict.reasons)
        while len(kept) > most:
            shutil.rmtree(kept.popleft().run.folder, ignore_errors=True)

    @property
    def kept(self) -> list[Example]:
        """The examples whose folders stay, in order."""
        return sorted((*self.failed, *self.passed), key=lambda example: example.number)

    def counted(self) -> str:
        """Return how many examples there were, and how they were judged."""
        said = ", ".join(f"{number} {status}" for status, number in sorted(self.statuses.items()))
        return f"{self.count} ({said or 'no verdict'})"


class HarrowExamples:
    """Begins an example of the running test; the fixture `harrow_examples` yields it."""

    def __init__(
        self,
        running: Callable[[], pytest.Item | None],
        begin: Callable[[pytest.Item, int], Harrow],
        rows_of: Callable[[HarrowRun, Verdict, int], Rows],
        keeps: Callable[[pytest.Item], bool],
    ) -> None:
        """`running`: the test that runs. `begin` makes the run of its example with a number, from 1 up.

        `rows_of`: the properties of a verdict with a number. `keeps`: whether the data of passed examples stays.
        """
        self._running = running
        self._begin = begin
        self._rows_of = rows_of
        self._keeps = keeps
        self._tests: dict[tuple[str, int], ExamplesOfTest] = {}

    @contextlib.contextmanager
    def __call__(self) -> Generator[Harrow]:
        """Begin an example: a `Harrow` with a cluster of its own, from its first use to the end of the block.

        An error of the block gets the verdict on the run as a note. HarrowError where the run must fail, as at the end
        of a test with the fixture `harrow`.
        """
        item = self._running()
        if item is None:
            raise ConfigError("harrow_examples(): no test runs; call it in a test function")
        test = self.of(item)
        test.count += 1
        from ..run.harrow import run_of

        harrow = self._begin(item, test.count)
        run = run_of(harrow)
        example = Example(number=test.count, run=run, failed=True)
        run.made.on_verdict(example.verdicts.append)
        try:
            with harrow:
                try:
                    yield harrow
                except BaseException as error:
                    if not _is_control(error):
                        note_verdict(error, run.failures.verdict_of_failure(error))
                    raise
            example.failed = False
        except BaseException as error:
            example.failed = not _is_control(error)
            raise
        finally:
            if not example.failed and not self._keeps(item):
                run.remove_data()
            test.ended(example)
            self._note(item, test)

    def of(self, item: pytest.Item) -> ExamplesOfTest:
        """Return what is known of the examples of a test in its present attempt."""
        return self._tests.setdefault((item.nodeid, attempt_of(item)), ExamplesOfTest())

    @property
    def current(self) -> ExamplesOfTest:
        """The examples of the test that runs."""
        item = self._running()
        return ExamplesOfTest() if item is None else self.of(item)

    def _note(self, item: pytest.Item, test: ExamplesOfTest) -> None:
        """Replace the properties of the test's examples by those of the examples that are kept."""
        others = [row for row in item.user_properties if row not in test.rows]
        judged = [(row.run, verdict) for row in test.kept for verdict in row.verdicts]
        rows = [self._rows_of(run, verdict, number) for number, (run, verdict) in enumerate(judged, 1)]
        test.rows = [row for several in rows for row in several] + [(COUNTS, test.counted())]
        item.user_properties[:] = [*others, *test.rows]


def _is_control(error: BaseException) -> bool:
    """Whether Hypothesis ends an example by this error: `assume`, or an example that has become too large."""
    return type(error).__module__.partition(".")[0] == "hypothesis"
