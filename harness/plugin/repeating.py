"""Repeating a test: the command that repeats its schedule, and `--harrow-repeat N` (J5).

`--harrow-repeat` replaces each collected test that uses a Harrow fixture by N items, which xdist may distribute. All of
them derive their random values from the node id of the original test, so they have the same schedule. Real processes do
not repeat the interleaving of threads and packets, so the summary counts how often the failure came back:

    test_orders.py::test_no_order_is_lost: came back in 7 of 20 runs with seed 17: 5 lost-write, 2 unknown; 13 passed

The command that repeats a failure gives the seed by `--harrow-seed`, which overrides the marker and the arguments of a
fixture factory. Where a test has several Harrow fixtures with different seeds, the command sets the ini setting
`harrow_seed` instead, which does not override them.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from _pytest import python
from _pytest.unittest import TestCaseFunction

from ..backends.choice import ORIGIN_OPTIONS
from . import options
from .requested_fixtures import factory_arguments, runs_of, uses_harrow
from .workers import WORKER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from _pytest.terminal import TerminalReporter

PROPERTY_REPEAT = "harrow.repeat"
PROPERTY_FAILURE = "harrow.failure"
FORMAT = re.compile(r"(?P<number>\d+) of (?P<total>\d+) with (?P<seeds>[^:]*): (?P<nodeid>.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Which run of a repeated test an item is."""

    nodeid: str
    """Node id of the original test."""
    number: int
    """From 1 up."""
    total: int


REPETITION = pytest.StashKey[Repetition]()


def original_nodeid(item: pytest.Item) -> str:
    """Return the node id from which the test's random values derive: without the number of the repetition.

    With `--dist loadgroup`, xdist appends `@` and the groups of a test. Such an id names no test on a command line.
    """
    repetition = item.stash.get(REPETITION, None)
    nodeid = item.nodeid if repetition is None else repetition.nodeid
    marks = item.iter_markers("xdist_group")
    groups = {str(mark.args[0] if mark.args else mark.kwargs.get("name", "default")) for mark in marks}
    return nodeid.removesuffix("@" + "_".join(sorted(groups)))


# ------------------------------------------------------------------------------ the repeat command


def repeat_line(item: pytest.Item) -> str:
    """Return the command that repeats this test with the same schedule, for the folder in which pytest was started."""
    config = item.config
    words = ["pytest", argument_of(config, original_nodeid(item))]
    words += _seed_words(item)
    words += given_words(
        config,
        ("brokers", "scope", "backend", "schedule", "security", "engine", "spark", "spark_data", *ORIGIN_OPTIONS),
    )
    words += configuration_words(config)
    order = getattr(config.option, "randomly_seed", None)
    if config.pluginmanager.hasplugin("randomly") and isinstance(order, int):
        words.append(f"--randomly-seed={order}")
    return shlex.join(words)


def given_words(config: pytest.Config, names: Collection[str]) -> Iterator[str]:
    """Yield the options of these names that the command line has, and its broker settings and plants."""
    for row in options.OPTIONS:
        given = config.getoption(row.flag)
        if row.name in names and given is not None:
            yield f"{row.flag}={given}"
        elif row.name in ("set", "plant"):
            yield from (f"{row.flag}={pair}" for pair in given or ())


def argument_of(config: pytest.Config, nodeid: str) -> str:
    """Return a node id, which is relative to the root folder, as an argument in the folder where pytest was started."""
    path, colons, rest = nodeid.partition("::")
    started_in = config.invocation_params.dir
    return os.path.relpath(config.rootpath / path, started_in) + colons + rest


def seeds_of(item: pytest.Item) -> set[int]:
    """Return the seeds of the test's Harrow fixtures; usually a single one, the seed of the run."""
    worker = item.config.stash[WORKER]
    chosen = {worker.options(item, arguments).seed for arguments in factory_arguments(item)}
    return chosen | {run.seed for run in runs_of(item)} or {worker.seed}


def _seed_words(item: pytest.Item) -> list[str]:
    seeds = seeds_of(item)
    if len(seeds) == 1:
        return [f"--harrow-seed={seeds.pop()}"]
    return ["-o", f"harrow_seed={item.config.stash[WORKER].seed}"]


def configuration_words(config: pytest.Config) -> list[str]:
    """Return the options that say which ini file applies, and Harrow's settings of `-o`, except the seed."""
    words: list[str] = []
    if config.option.inifilename:
        words += ["-c", str(config.option.inifilename)]
    if config.option.rootdir:
        words.append(f"--rootdir={config.option.rootdir}")
    for pair in config.option.override_ini or ():
        if pair.startswith("harrow_") and not pair.startswith("harrow_seed="):
            words += ["-o", pair]
    return words


# ---------------------------------------------------------------------------------- --harrow-repeat


def repeat_items(items: list[pytest.Item], count: int) -> None:
    """Replace each test that uses a Harrow fixture by `count` items with the same seed."""
    if count > 1:
        items[:] = [
            repeated for item in items for repeated in (_repeated(item, count) if _can_be_repeated(item) else [item])
        ]


def _can_be_repeated(item: pytest.Item) -> bool:
    """A method of `unittest.TestCase` cannot be repeated: unittest calls it by the name of the item."""
    repeatable = isinstance(item, pytest.Function) and not isinstance(item, TestCaseFunction)
    return repeatable and uses_harrow(item)


def _repeated(item: pytest.Item, count: int) -> Iterable[pytest.Item]:
    assert isinstance(item, pytest.Function)
    try:
        seeds = ", ".join(f"seed {seed}" for seed in sorted(seeds_of(item)))
    except pytest.UsageError:  # an xdist worker: the set-up of the test reports the invalid marker
        yield item
        return
    for number in range(1, count + 1):
        copied = _copied(item, f"{number} of {count}")
        copied.stash[REPETITION] = Repetition(nodeid=item.nodeid, number=number, total=count)
        copied.user_properties.append((PROPERTY_REPEAT, f"{number} of {count} with {seeds}: {item.nodeid}"))
        yield copied


def _copied(item: pytest.Function, number: str) -> pytest.Function:
    """Return another item for the same function, parameters, fixtures and markers; its id ends with `number`.

    pytest has no public way to copy an item. Its node id must come from the ids of the parameters: pytest 9.2 ignores
    the name that is given.
    """
    source: Any = item
    plain: Any = getattr(python, "CallSpec", None) or python.CallSpec2  # pyright: ignore[reportAttributeAccessIssue] - its name before pytest 9.2
    parameters: Any = getattr(source, "callspec", None) or plain()
    parameters = dataclasses.replace(parameters, _idlist=[*parameters._idlist, number])  # noqa: SLF001
    kind: Any = type(item)
    copied: pytest.Function = kind.from_parent(
        item.parent,
        name=f"{item.originalname}[{parameters.id}]",
        originalname=item.originalname,
        callspec=parameters,
        fixtureinfo=source._fixtureinfo,  # noqa: SLF001
    )
    copied.own_markers[:] = item.own_markers  # with those that a conftest added at collection
    copied.keywords.update({marker.name: marker for marker in item.own_markers})
    return copied


def failure_of(error: BaseException | None) -> str:
    """Return the name of a failure: the forbidden anomalies of the verdict, or `unknown`, or the exception's class.

    What `recovers_within=` and guarantees of extensions forbid counts too, such as `stalled`.
    """
    from ..checks.guarantees import forbidden
    from ..errors import VerdictError

    if not isinstance(error, VerdictError):
        return type(error).__name__
    verdict = error.verdict
    found = verdict.anomaly_names() & forbidden(verdict.guarantees).union(*verdict.added_guarantees.values())
    return ", ".join(sorted(found)) or verdict.status.value


class RepeatSummary:
    """Counts how often the failure of each repeated test came back, from the reports of all processes of the run."""

    def __init__(self) -> None:
        self._totals: dict[str, tuple[int, str]] = {}
        self._passed: dict[str, set[int]] = {}
        self._failures: dict[str, dict[int, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the outcome of one phase of one repetition."""
        properties = dict(report.user_properties)
        found = FORMAT.fullmatch(str(properties.get(PROPERTY_REPEAT, "")))
        if found is None:
            return
        nodeid, number = found["nodeid"], int(found["number"])
        self._totals[nodeid] = int(found["total"]), found["seeds"]
        if report.failed or str(report.outcome) == "rerun":  # pytest-rerunfailures runs it again
            failure = str(properties.get(PROPERTY_FAILURE, "an error"))
            self._failures.setdefault(nodeid, {}).setdefault(number, failure)
        elif report.when == "call" and report.passed:
            self._passed.setdefault(nodeid, set()).add(number)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print one line for each repeated test."""
        if self._totals:
            terminalreporter.section("harrow repeats")
            for nodeid in self._totals:
                terminalreporter.write_line(f"{nodeid}: {self.line_of(nodeid)}")

    def line_of(self, nodeid: str) -> str:
        """Return how often the failure of one test came back, and in which form."""
        planned, seeds = self._totals[nodeid]
        failures = self._failures.get(nodeid, {})
        passed = len(self._passed.get(nodeid, set()) - failures.keys())
        ran = len(failures) + passed
        assert ran <= planned, f"{nodeid}: {ran} of {planned} repetitions ended"
        runs = f"{ran} runs" if ran == planned else f"{ran} runs ({planned} were planned)"
        names = Counter(failures.values())
        parts = [f"{count} {name}" for name, count in sorted(names.items(), key=lambda row: (-row[1], row[0]))]
        counted = f": {', '.join(parts)}" if parts else ""
        return f"came back in {len(failures)} of {runs} with {seeds}{counted}; {passed} passed"
