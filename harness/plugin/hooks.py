"""The `pytest11` entry point: options, marker, fixtures, seeds, repetition, reports (J1, J5).

pytest imports this module in every run of a project, so it imports only pytest, the standard library and what a run
without Harrow needs; the rest is imported when a test uses a fixture. A test in a child process checks this. Tests
reach everything else through the `harrow` fixture.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ..backends.choice import LOCAL
from ..engines import SPARK, needs_spark_from_the_start
from ..plain_text import write_plainly
from ..security.choice import INSECURE
from ..user_spark import shown
from . import options
from .attempts import PROPERTY, named, properties_by_attempt
from .fixtures import (
    REPLAYS,
    USED,
    TestState,
    begin_test,
    begin_test_run,
    explain_scope,
    harrow,
    harrow_examples,
    harrow_session,
    unused_in,
    wants_verdict,
)
from .requested_fixtures import RUNS, coroutine_of, runs_of, uses_harrow
from .run_index import WITHOUT_VERDICT, RunIndex
from .workers import (
    SIMULATION_SOCKET,
    WORKER,
    is_simulated_test,
    is_worker,
    is_written_for_simulations,
    send_to_worker,
    start_worker,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

__all__ = ["harrow", "harrow_examples", "harrow_session"]

REPORTERS = ("html", "allure_listener")
"""Plugins whose reports get the pages (`attached_pages.py`)."""
SHOWS_ONLY = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan", "setuponly")
"""The options of pytest with which no test function is called."""
SUMMARY = pytest.StashKey["VerdictSummary"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini settings."""
    options.add_options(parser)
    if SIMULATION_SOCKET in os.environ:  # of simulation_server.py: before anything of the user's is imported
        from .collected_numbers import fix_random_numbers

        fix_random_numbers()


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, choose the seed, declare the marker."""
    config.addinivalue_line("markers", options.MARKER_LINE)
    for stream in (sys.stdout, sys.stderr):
        config.add_cleanup(write_plainly(stream))
    worker = start_worker(config)
    chosen = worker.options(None, {})
    if not is_worker(config):
        worker.check_combinations()
        worker.check_backend()
        config.stash[SUMMARY] = summary = VerdictSummary()
        config.pluginmanager.register(summary, "harrow-summary")
        config.pluginmanager.register(index := RunIndex(), "harrow-index")
        step_summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
        in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
        if step_summary or in_actions:
            from .github import GithubSummary

            github = GithubSummary(index, summary=step_summary, annotates=in_actions)
            config.pluginmanager.register(github, "harrow-github")
        if chosen.repeat > 1:
            from .repeating import RepeatSummary

            config.pluginmanager.register(RepeatSummary(), "harrow-repeats")
    descriptor = os.environ.get(SIMULATION_SOCKET, "")
    if descriptor:
        from .simulation_server import SimulationServer

        config.pluginmanager.register(SimulationServer(int(descriptor)), "harrow-simulation")
    if chosen.shrink:
        from .shrinking_tests import ShrinkFailures

        config.pluginmanager.register(ShrinkFailures(chosen.shrink), "harrow-shrink")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the clusters and the Spark client that tests shared, also after an error; remove old runs."""
    if (worker := config.stash.get(WORKER, None)) is not None:
        try:
            worker.close()
        finally:
            if not is_worker(config):
                worker.tidy_out()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the seed to an xdist worker (an xdist hook)."""
    send_to_worker(node.config.stash[WORKER], node.workerinput)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Start the timer of a test that uses Harrow, where pytest-timeout's would end the process (its hook)."""
    in_main = threading.current_thread() is threading.main_thread()
    if (settings.method == "signal" and in_main) or not uses_harrow(item):
        return None
    from .timeouts import start_timer

    return start_timer(item, settings)


def pytest_report_header(config: pytest.Config) -> str:
    """Return the header line with the options of this run."""
    worker = config.stash[WORKER]
    chosen = worker.options(None, {})
    parts = [f"seed {worker.seed}", f"brokers {chosen.brokers}"]
    if worker.temporary_out is None:
        parts.append(f"out {chosen.out}")
    else:
        parts.append(f"out {worker.temporary_out}, because {chosen.out} cannot be written ({worker.out_problem})")
    if chosen.repeat > 1:
        parts.append(f"repeat {chosen.repeat}")
    if chosen.shrink:
        parts.append(f"shrink {chosen.shrink}")
    if chosen.backend != LOCAL:
        parts.append(f"backend {chosen.backend}")
    if chosen.security != INSECURE:
        parts.append(f"security {chosen.security}")
    if chosen.defaults != options.HARROW_DEFAULTS:
        parts.append(f"defaults {chosen.defaults}")
    if chosen.as_version:
        parts.append(f"as version {chosen.as_version}")
    if chosen.scope != "test":
        parts.append(f"scope {chosen.scope}")
    if chosen.engine != SPARK:
        parts.append(f"engine {chosen.engine}")
    if chosen.spark:
        parts.append(f"spark {chosen.spark}")
    if chosen.spark_data:
        parts.append(f"spark data {shown(chosen.spark_data)}")
    parts += [f"schedule {path.name}" for _, path in chosen.schedule]
    parts += [f"{name}={value}" for name, value in chosen.config.items()]
    parts += [f"PLANTED BUG {module}" for module in chosen.plant]
    return f"harrow: {', '.join(parts)}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Report invalid `harrow` markers before any test runs, and repeat the items of `--harrow-repeat`.

    An xdist worker reports invalid markers during the set-up of the test.
    """
    if not is_worker(config):
        for item in items:
            options.read_marker(item)
        worker = config.stash[WORKER]
        # only options of the command line are looked at
        if worker.flags and any(map(uses_harrow, items)):
            worker.check_combinations(items)
    repeat = config.stash[WORKER].options(None, {}).repeat
    if repeat > 1:
        from .repeating import repeat_items

        repeat_items(items, repeat)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start Spark in the background when a collected test will run and ask for a verdict.

    Where that fails the first verdict, or the first cluster, fails with the same message: a test reports it.
    """
    if not _shows_only(session.config) and any(
        wants_verdict(item) and not is_simulated_test(item) for item in session.items
    ):
        from harrow.cluster.errors import HarrowError

        worker = session.config.stash[WORKER]
        chosen = worker.options(None, {})
        with contextlib.suppress(HarrowError, OSError):
            if needs_spark_from_the_start(chosen.engine):
                worker.spark(chosen).request()


def _shows_only(config: pytest.Config) -> bool:
    """Whether pytest shows tests, fixtures or plans and calls no test function."""
    return any(getattr(config.option, name, False) for name in SHOWS_ONLY)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Let a simulated test run over its seeds, in processes of its own."""
    del nextitem
    if isinstance(item, pytest.Function) and SIMULATION_SOCKET not in os.environ and is_simulated_test(item):
        from .simulated_tests import simulate

        simulate(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin an attempt of the test, and connect the session's Harrow with it."""
    begin_test_run(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Connect a session's Harrow that the test's fixtures created with the test; fail a test that injected nothing.

    For a test that failed for another reason it is a note on its error.
    """
    begin_test(item)
    try:
        yield
    except BaseException as error:
        for text in unused_in(item):
            error.add_note(f"harrow: {text}")
        _note_interrupt(item, error)
        raise
    if unused := unused_in(item):
        pytest.fail("\n".join(unused), pytrace=False)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the coroutine of a test that was written for a simulation, and runs on real brokers."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or not is_written_for_simulations(pyfuncitem):
        return None
    import asyncio

    asyncio.run(coroutine_of(pyfuncitem))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store the state of the test; attach the verdict and the repeat command to the report of a failed test."""
    error = call.excinfo.value if call.excinfo is not None and USED in item.stash else None
    if error is not None and not item.config.option.fulltrace:
        from .shown_errors import end_in_users_line

        end_in_users_line(error)
    if call.excinfo is not None:
        explain_scope(item, call.excinfo.value)
    report = yield
    if report.failed and (reason := _lacks(item, call)):
        path, line, _ = item.location
        report.outcome, report.longrepr = "skipped", (path, (line or 0) + 1, f"Skipped: {reason}")
    if USED not in item.stash:
        return report
    if _did_not_end(report):
        item.stash[USED] = TestState.FAILED
        _explain_failure(item, call, report)
    elif call.when == "call" and report.passed:
        item.stash[USED] = TestState.PASSED
    if call.when == "call":
        _note_folders(item, report)
        if "opentelemetry.trace" in sys.modules:  # else the user has configured no provider
            from .telemetry import export_test

            export_test(item, call, report)
    if any(map(item.config.pluginmanager.hasplugin, REPORTERS)) and (
        call.when == "call" or (call.when == "setup" and report.failed)
    ):
        from .attached_pages import attach_pages

        attach_pages(item, report)
    return report


def _note_interrupt(item: pytest.Item, error: BaseException) -> None:
    """Give the runs of an interrupted test their verdict: pytest makes no report of it."""
    if not runs_of(item):
        return
    from ..verdict.endings import Ending, ending_of

    if ending_of(error) is Ending.INTERRUPTED:
        for run in runs_of(item):
            run.failures.verdict_of_failure(error)
        if (summary := item.config.stash.get(SUMMARY, None)) is not None:
            summary.note(item.nodeid, item.user_properties)


def _did_not_end(report: pytest.TestReport) -> bool:
    """Whether the test failed, or would be a failure without `xfail`."""
    return report.failed or (report.skipped and hasattr(report, "wasxfail"))


def _lacks(item: pytest.Item, call: pytest.CallInfo[None]) -> str:
    """Return what the test asked for and its backend lacks; empty with the backend local, where that is a mistake."""
    if call.excinfo is None or not any(run.backend != LOCAL for run in runs_of(item)):
        return ""
    from harrow.faults.errors import CapabilityError

    error = call.excinfo.value
    return str(error) if isinstance(error, CapabilityError) else ""


def _note_folders(item: pytest.Item, report: pytest.TestReport) -> None:
    """Store the folders of clusters on which the test asked for no verdict, for the index of the run."""
    noted = {value for _, value in item.user_properties}
    folders = [run.folder for run in item.stash[RUNS] if str(run.folder) not in noted]
    for number, folder in enumerate((path for path in folders if path.exists()), 1):
        row = (f"{PROPERTY}{WITHOUT_VERDICT}-{number}", str(folder))
        item.user_properties.append(row)
        report.user_properties.append(row)


def _explain_failure(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Add to the report the verdict, what failed, and the command that repeats the test."""
    from .repeating import PROPERTY_FAILURE, failure_of, repeat_line

    error = call.excinfo.value if call.excinfo is not None else None
    if report.failed and error is not None:
        from .shown_errors import shorten_summary

        shorten_summary(report, error)
    if report.failed:
        report.user_properties.append((PROPERTY_FAILURE, failure_of(error)))
    if REPLAYS in item.stash:  # a run of --harrow-shrink, whose report is not shown
        return
    for run in item.stash[RUNS]:
        item.config.stash[WORKER].failed_folders.add(run.folder)
        if call.when == "teardown" or error is None:
            continue
        if text := run.failures.verdict_of_failure(error):
            report.sections.append((f"harrow verdict ({run.name})", text))
    report.sections.append(("harrow", f"repeat with: {repeat_line(item)}"))


class VerdictSummary:
    """Collects the verdicts from the reports of this process and of xdist workers, for the terminal."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int, str], str] = {}
        """By node id, attempt and property."""
        self._attempts: dict[str, int] = {}
        self._simulations: dict[str, str] = {}
        """What the searches of simulated tests said, by node id."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the verdict lines that a fixture stored in the report's user properties."""
        self.note(report.nodeid, report.user_properties)

    def note(self, nodeid: str, properties: list[tuple[str, object]]) -> None:
        """Collect the verdict lines among the user properties of a test."""
        for attempt, name, value in properties_by_attempt(properties):
            self._attempts[nodeid] = max(attempt, self._attempts.get(nodeid, 1))
            if name == "simulated":
                self._simulations[nodeid] = str(value)
            if name.startswith("verdict"):
                self._lines[nodeid, attempt, name] = value

    def lines(self) -> list[str]:
        """Return one line for each verdict: the test, its attempt where it has several, and what was found."""
        return [
            f"{named(nodeid, attempt, self._attempts[nodeid])}: {line}"
            for (nodeid, attempt, _), line in self._lines.items()
        ]

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print one line for each verdict."""
        if self._simulations:
            terminalreporter.section("harrow simulations")
        for nodeid, line in self._simulations.items():
            terminalreporter.write_line(f"{nodeid}: {line}")
        lines = self.lines()
        if lines:
            terminalreporter.section("harrow verdicts")
        for line in lines:
            terminalreporter.write_line(line)
