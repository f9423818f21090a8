"""The `pytest11` entry point: options, marker, fixture, seeds, reports (J1, J5).

Imports nothing but pytest and the standard library until a fixture is used; a test in a child
process keeps it so. Everything that a test touches lies behind the `harrow` fixture.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from . import options
from .fixtures import RUNS, USED, Outcome, harrow, wants_verdict
from .workers import WORKER, hand_down, is_worker, start_worker

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

__all__ = ["harrow"]

PROPERTY = "harrow."
SUMMARY = pytest.StashKey["Summary"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini settings."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, settle the seed, declare the marker."""
    config.addinivalue_line("markers", options.MARKER_LINE)
    start_worker(config)
    if not is_worker(config):
        config.stash[SUMMARY] = summary = Summary()
        config.pluginmanager.register(summary, "harrow-summary")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what tests shared, whatever happened."""
    if (worker := config.stash.get(WORKER, None)) is not None:
        worker.close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed down to an xdist worker (an xdist hook)."""
    hand_down(node.config.stash[WORKER], node.workerinput)


def pytest_report_header(config: pytest.Config) -> str:
    """Say once what the run runs with."""
    worker = config.stash[WORKER]
    chosen = worker.options(None, {})
    said = [f"seed {worker.seed}", f"brokers {chosen.brokers}", f"out {chosen.out}"]
    if chosen.scope != "test":
        said.append(f"scope {chosen.scope}")
    if chosen.spark:
        said.append(f"spark {chosen.spark}")
    said += [f"{name}={value}" for name, value in chosen.config.items()]
    said += [f"PLANTED BUG {module}" for module in chosen.plant]
    return f"harrow: {', '.join(said)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse markers that cannot be used before anything runs (an xdist worker does so in set-up)."""
    if not is_worker(config):
        for item in items:
            options.read_marker(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have Spark start in the background as soon as a test is known that asks for a verdict."""
    if not session.config.option.collectonly and any(map(wants_verdict, session.items)):
        worker = session.config.stash[WORKER]
        worker.spark(worker.options(None, {})).request()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember how the test went; a failure ends with its verdict and the line that repeats it."""
    report = yield
    if USED not in item.stash:
        return report
    if report.failed:
        item.stash[USED] = Outcome.FAILED
        error = call.excinfo.value if call.excinfo is not None else None
        if call.when == "call" and isinstance(error, Exception):
            for run in item.stash[RUNS]:
                if text := run.verdict_of_failure(error):
                    report.sections.append((f"harrow verdict ({run.name})", text))
        report.sections.append(("harrow", f"repeat with: {repeat_line(item)}"))
    elif call.when == "call" and report.passed:
        item.stash[USED] = Outcome.PASSED
    return report


def repeat_line(item: pytest.Item) -> str:
    """Return the exact command that repeats this test's schedule."""
    config = item.config
    worker = config.stash[WORKER]
    words = ["pytest", item.nodeid, f"--harrow-seed={worker.seed}"]
    for row in options.ROWS:
        given = config.getoption(row.flag)
        if row.name in ("brokers", "scope") and given is not None:
            words.append(f"{row.flag}={given}")
        elif row.name in ("set", "plant"):
            words += [f"{row.flag}={pair}" for pair in given or ()]
    order = getattr(config.option, "randomly_seed", None)
    if config.pluginmanager.hasplugin("randomly") and isinstance(order, int):
        words.append(f"--randomly-seed={order}")
    return shlex.join(words)


class Summary:
    """Collects verdicts from reports, of this process or of xdist's workers, for the terminal."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the verdict lines that a fixture left in the report's user properties."""
        for name, value in report.user_properties:
            if name.startswith(f"{PROPERTY}verdict"):
                self.lines[f"{report.nodeid} {name}"] = str(value)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print one line for each verdict."""
        if not self.lines:
            return
        terminalreporter.section("harrow verdicts")
        for key, line in self.lines.items():
            terminalreporter.write_line(f"{key.rpartition(' ')[0]}: {line}")
