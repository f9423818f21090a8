"""Collects the tests of a pytest run, and writes its index when the run ends (`reports/index_page.py`).

Registered by the plugin in the process that collects all reports: xdist's controller, or the only process. It writes
`<out>/index.html`, and a copy into the folder of the run, which later runs do not replace. A run that was interrupted
has an index too: a test whose report never came is found by the folder that it left. Each attempt of a test is a row.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from .attempts import named, number_in, properties_by_attempt
from .workers import WORKER, folder_name

if TYPE_CHECKING:
    from ..reports.index_page import IndexRow

REPEAT = "repeat with: "
WITHOUT_VERDICT = "folder-without-verdict"
"""How the property of a folder begins on whose cluster the test asked for no verdict."""
_VERDICT = re.compile(r"([\w.]+\.)?VerdictError\b")


@dataclass(slots=True)
class _TestOfRun:
    """What the reports of one attempt of a test said so far."""

    outcome: str = "interrupted"
    """Until the report of its call: a run that is interrupted ends after the report of the set-up."""
    duration_s: float = 0.0
    folders: list[Path] = field(default_factory=list[Path])
    pages: list[Path] = field(default_factory=list[Path])
    """Of its verdicts."""
    unjudged: list[Path] = field(default_factory=list[Path])
    """Folders of clusters on which it asked for no verdict; other tests may have."""
    seed: str = ""
    command: str = ""
    reason: str = ""
    place: tuple[str, int] | None = None
    uses_harrow: bool = False


class RunIndex:
    """A pytest plugin that collects reports and writes the index."""

    def __init__(self) -> None:
        self._tests: dict[tuple[str, int], _TestOfRun] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep outcome, duration, folders and the repeat command of an attempt of a test."""
        test = self._of(report.nodeid, number_in(report.user_properties))
        test.duration_s += report.duration
        ended = report.when == "call" or report.outcome != "passed"
        if ended and test.outcome != "failed":
            test.outcome = _outcome(report)
            test.reason = _reason(report) or test.reason
            test.place = _place(report) or test.place
        for attempt, name, value in properties_by_attempt(report.user_properties):
            owner = self._of(report.nodeid, attempt)
            owner.uses_harrow = True
            if name.startswith("folder") and Path(value) not in owner.folders:
                owner.folders.append(Path(value))
                owner.unjudged += [Path(value)] if name.startswith(WITHOUT_VERDICT) else []
            elif name.startswith("page") and Path(value) not in owner.pages:
                owner.pages.append(Path(value))
            elif name.startswith("seed"):
                owner.seed = owner.seed or value
        for title, text in report.sections:
            if title == "harrow" and text.startswith(REPEAT):
                test.uses_harrow, test.command = True, text.removeprefix(REPEAT).strip()

    def _of(self, nodeid: str, attempt: int) -> _TestOfRun:
        return self._tests.setdefault((nodeid, attempt), _TestOfRun())

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the index, unless no test used Harrow."""
        self.write(session.config)

    def write(self, config: pytest.Config) -> None:
        """Write the index with what the reports said so far, unless no test used Harrow."""
        rows = self.rows_of_run(config)
        if rows:
            from harrow.cluster.errors import HarrowError

            from ..reports.index_page import INDEX, write_index

            worker = config.stash[WORKER]
            run = worker.run_folder(worker.options(None, {}))
            with contextlib.suppress(HarrowError, OSError):  # the tests have reported it
                worker.prepare_out()
            about = [f"run {run.name}, seed {worker.seed}"]
            for target in (run / INDEX, run.parent / INDEX):
                try:
                    write_index(target, rows, title="Tests of the last run", about=about)
                except OSError as error:
                    config.issue_config_time_warning(
                        pytest.PytestWarning(f"harrow: {target} could not be written: {error}"), 2
                    )

    def rows_of_run(self, config: pytest.Config) -> list[IndexRow]:
        """Return a row for each test that used Harrow; without one the modules of the page are not imported."""
        worker = config.stash[WORKER]
        run = worker.run_folder(worker.options(None, {}))
        used = run.exists() or any(test.uses_harrow for test in self._tests.values())
        return self.rows(run) if used else []

    def rows(self, run: Path) -> list[IndexRow]:
        """Return a row for each test of the run in the folder `run` that used Harrow."""
        from ..reports.index_page import IndexRow

        left = _test_folders(run)
        rows: list[IndexRow] = []
        attempts = Counter(nodeid for nodeid, _ in self._tests)
        for (nodeid, attempt), test in self._tests.items():
            name = folder_name(nodeid, attempt=attempt)
            own = [folder for folder in left if folder.name == name]
            folders = list(dict.fromkeys([*test.folders, *own]))
            left = [folder for folder in left if folder not in folders]
            if test.uses_harrow or folders:
                rows.append(
                    IndexRow(
                        test=named(nodeid, attempt, attempts[nodeid]),
                        outcome=test.outcome,
                        folders=tuple(folders),
                        pages=tuple(test.pages),
                        unjudged=tuple(test.unjudged),
                        seed=test.seed or _seed(folders),
                        command=test.command,
                        duration_s=test.duration_s,
                        reason=test.reason,
                        place=test.place,
                    )
                )
        rows += [
            IndexRow(test=folder.name, outcome="interrupted", folders=(folder,), seed=_seed([folder]))
            for folder in left
        ]
        return rows


def _outcome(report: pytest.TestReport) -> str:
    """Return the outcome; a test that pytest-rerunfailures runs again has failed in this attempt."""
    if report.outcome == "skipped" and hasattr(report, "wasxfail"):
        return "xfailed"
    return "failed" if str(report.outcome) == "rerun" else report.outcome


def _reason(report: pytest.TestReport) -> str:
    """Return why a test did not pass, in one line; empty where the verdict says it."""
    if report.outcome == "passed":
        return ""
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail.removeprefix('reason: ')}".removesuffix(": ")
    said: Any = getattr(report, "longrepr", None)
    if report.outcome == "skipped" and isinstance(said, tuple):
        return str(cast("tuple[str, int, str]", said)[-1])
    crash = getattr(said, "reprcrash", None)
    text = crash.message if crash is not None else said if isinstance(said, str) else ""
    first = next(iter(str(text).splitlines()), "")
    return "" if _VERDICT.match(first) else first


def _place(report: pytest.TestReport) -> tuple[str, int] | None:
    """Return the file and the line in which a test failed; the test's own where the failure has none."""
    if _outcome(report) != "failed":
        return None
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    if crash is not None:
        return str(crash.path), int(crash.lineno)
    location = getattr(report, "location", None)
    return (location[0], (location[1] or 0) + 1) if location is not None else None


def _test_folders(run: Path) -> list[Path]:
    """Return the folders of the tests of a run: below it, or with xdist below its workers' folders."""
    from .. import run_folder

    found = [*run.glob(f"*/{run_folder.RUN}"), *run.glob(f"*/*/{run_folder.RUN}")]
    return sorted(path.parent for path in found)


def _seed(folders: list[Path]) -> str:
    from .. import run_folder

    seeds = [run_folder.read_run(folder).get("seed") for folder in folders]
    return next((str(seed) for seed in seeds if seed is not None), "")
