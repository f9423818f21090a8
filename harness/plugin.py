"""The `pytest11` entry point: options, marker, fixture, seeds, reports (J1, J5).

This module imports only pytest and the standard library; the rest is imported when a test uses a fixture. A test in
a child process checks this. Tests reach everything else through the `harrow` fixture.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from . import options
from .fixtures import RUNS, USED, TestState, harrow, wants_verdict
from .run_index import RunIndex
from .workers import WORKER, is_worker, send_to_worker, start_worker

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

__all__ = ["harrow"]

PROPERTY = "harrow."
SUMMARY = pytest.StashKey["VerdictSummary"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini settings."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, choose the seed, declare the marker."""
    config.addinivalue_line("markers", options.MARKER_LINE)
    start_worker(config)
    if not is_worker(config):
        config.stash[SUMMARY] = summary = VerdictSummary()
        config.pluginmanager.register(summary, "harrow-summary")
        config.pluginmanager.register(RunIndex(), "harrow-index")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the clusters and the Spark client that tests shared, also after an error."""
    if (worker := config.stash.get(WORKER, None)) is not None:
        worker.close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the seed to an xdist worker (an xdist hook)."""
    send_to_worker(node.config.stash[WORKER], node.workerinput)


def pytest_report_header(config: pytest.Config) -> str:
    """Return the header line with the options of this run."""
    worker = config.stash[WORKER]
    chosen = worker.options(None, {})
    parts = [f"seed {worker.seed}", f"brokers {chosen.brokers}", f"out {chosen.out}"]
    if chosen.scope != "test":
        parts.append(f"scope {chosen.scope}")
    if chosen.spark:
        parts.append(f"spark {chosen.spark}")
    parts += [f"{name}={value}" for name, value in chosen.config.items()]
    parts += [f"PLANTED BUG {module}" for module in chosen.plant]
    return f"harrow: {', '.join(parts)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Report invalid `harrow` markers before any test runs (an xdist worker reports them during the test's set-up)."""
    if not is_worker(config):
        for item in items:
            options.read_marker(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start Spark in the background when a collected test will ask for a verdict."""
    if not session.config.option.collectonly and any(map(wants_verdict, session.items)):
        worker = session.config.stash[WORKER]
        worker.spark(worker.options(None, {})).request()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store the state of the test; attach the verdict and the repeat command to the report of a failed test."""
    report = yield
    if USED not in item.stash:
        return report
    if report.failed:
        item.stash[USED] = TestState.FAILED
        error = call.excinfo.value if call.excinfo is not None else None
        if call.when == "call" and isinstance(error, Exception):
            for run in item.stash[RUNS]:
                if text := run.verdict_of_failure(error):
                    report.sections.append((f"harrow verdict ({run.name})", text))
        report.sections.append(("harrow", f"repeat with: {repeat_line(item)}"))
    elif call.when == "call" and report.passed:
        item.stash[USED] = TestState.PASSED
    return report


def repeat_line(item: pytest.Item) -> str:
    """Return the command that repeats this test with the same schedule."""
    config = item.config
    worker = config.stash[WORKER]
    words = ["pytest", item.nodeid, f"--harrow-seed={worker.seed}"]
    for row in options.OPTIONS:
        given = config.getoption(row.flag)
        if row.name in ("brokers", "scope") and given is not None:
            words.append(f"{row.flag}={given}")
        elif row.name in ("set", "plant"):
            words += [f"{row.flag}={pair}" for pair in given or ()]
    order = getattr(config.option, "randomly_seed", None)
    if config.pluginmanager.hasplugin("randomly") and isinstance(order, int):
        words.append(f"--randomly-seed={order}")
    return shlex.join(words)


class VerdictSummary:
    """Collects the verdicts from the reports of this process and of xdist workers, for the terminal."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the verdict lines that a fixture stored in the report's user properties."""
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
