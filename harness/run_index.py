"""Collects the tests of a pytest run, and writes its index when the run ends (`reports/index_page.py`).

Registered by the plugin in the process that collects all reports: xdist's controller, or the only process. It writes
`<out>/index.html`, and a copy into the folder of the run, which later runs do not replace. A run that was interrupted
has an index too: a test whose report never came is found by the folder that it left.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .workers import WORKER, folder_name

if TYPE_CHECKING:
    from .reports.index_page import IndexRow

PROPERTY = "harrow."
REPEAT = "repeat with: "


@dataclass(slots=True)
class _TestOfRun:
    """What the reports of one test said so far."""

    outcome: str = "interrupted"
    """Until the report of its call: a run that is interrupted ends after the report of the set-up."""
    duration_s: float = 0.0
    folders: list[Path] = field(default_factory=list[Path])
    seed: str = ""
    command: str = ""
    uses_harrow: bool = False


class RunIndex:
    """A pytest plugin that collects reports and writes the index."""

    def __init__(self) -> None:
        self._tests: dict[str, _TestOfRun] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep outcome, duration, folders and the repeat command of a test."""
        test = self._tests.setdefault(report.nodeid, _TestOfRun())
        test.duration_s += report.duration
        ended = report.when == "call" or report.outcome != "passed"
        if ended and test.outcome != "failed":
            test.outcome = report.outcome
        for name, value in report.user_properties:
            if not name.startswith(PROPERTY):
                continue
            test.uses_harrow = True
            if name.startswith(f"{PROPERTY}folder") and Path(str(value)) not in test.folders:
                test.folders.append(Path(str(value)))
            elif name.startswith(f"{PROPERTY}seed"):
                test.seed = test.seed or str(value)
        for title, text in report.sections:
            if title == "harrow" and text.startswith(REPEAT):
                test.uses_harrow, test.command = True, text.removeprefix(REPEAT).strip()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the index, unless no test used Harrow."""
        worker = session.config.stash[WORKER]
        run = worker.run_folder(worker.options(None, {}))
        if not run.exists() and not any(test.uses_harrow for test in self._tests.values()):
            return  # the modules of the page are not imported
        rows = self.rows(run)
        if rows:
            from harrow.cluster.errors import HarrowError

            from .reports.index_page import INDEX, write_index

            with contextlib.suppress(HarrowError, OSError):  # the tests have reported it
                worker.prepare_out()
            about = [f"run {run.name}, seed {worker.seed}"]
            for target in (run / INDEX, run.parent / INDEX):
                try:
                    write_index(target, rows, title="Tests of the last run", about=about)
                except OSError as error:
                    session.config.issue_config_time_warning(
                        pytest.PytestWarning(f"harrow: {target} could not be written: {error}"), 2
                    )

    def rows(self, run: Path) -> list[IndexRow]:
        """Return a row for each test of the run in the folder `run` that used Harrow."""
        from .reports.index_page import IndexRow

        left = _test_folders(run)
        rows: list[IndexRow] = []
        for nodeid, test in self._tests.items():
            own = [folder for folder in left if folder.name == folder_name(nodeid)]
            folders = list(dict.fromkeys([*test.folders, *own]))
            left = [folder for folder in left if folder not in folders]
            if test.uses_harrow or folders:
                rows.append(
                    IndexRow(
                        test=nodeid, outcome=test.outcome, folders=tuple(folders), seed=test.seed or _seed(folders),
                        command=test.command, duration_s=test.duration_s,
                    )
                )  # fmt: skip
        rows += [
            IndexRow(
                test=folder.name, outcome="interrupted", folders=(folder,), seed=_seed([folder])
            )
            for folder in left
        ]
        return rows


def _test_folders(run: Path) -> list[Path]:
    """Return the folders of the tests of a run: below it, or with xdist below its workers' folders."""
    from . import run_folder

    found = [*run.glob(f"*/{run_folder.RUN}"), *run.glob(f"*/*/{run_folder.RUN}")]
    return sorted(path.parent for path in found)


def _seed(folders: list[Path]) -> str:
    from . import run_folder

    seeds = [run_folder.read_run(folder).get("seed") for folder in folders]
    return next((str(seed) for seed in seeds if seed is not None), "")
