"""What GitHub Actions shows of a run: a table of verdicts in the summary of the step, and annotations of failed tests.

Registered in the process that collects all reports, where GITHUB_STEP_SUMMARY or GITHUB_ACTIONS is set. The table is
appended once, in Markdown, the worst test first: the test, its verdict, the guarantee, what was found, the command that
repeats it, the path of its page. Lines `::error file=…,line=…::…` are printed only with GITHUB_ACTIONS=true, because
nothing reads them elsewhere. Bounded: `ROWS_MOST` rows (a step's summary has 1 MiB) and `ANNOTATIONS_MOST` annotations
(GitHub shows ten of a step). May fail: nothing; a summary that cannot be written is a warning of pytest.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .. import run_folder
from .workers import WORKER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _pytest.terminal import TerminalReporter

    from ..reports.index_page import IndexRow, JudgedTest
    from .run_index import RunIndex

ROWS_MOST = 200
ANNOTATIONS_MOST = 10
FAILED = ("invalid", "unknown", "failed")
HEAD = "| test | verdict | guarantee | found | repeat with | page |\n| --- | --- | --- | --- | --- | --- |"
MARKUP = frozenset("\\`*_{}[]<>()#+!|~&\"'")


class GithubSummary:
    """A pytest plugin. `summary`: the file that GITHUB_STEP_SUMMARY names, or empty; `annotates`: in GitHub Actions."""

    def __init__(self, index: RunIndex, *, summary: str, annotates: bool) -> None:
        self._index = index
        self._summary = summary
        self._annotates = annotates
        self._annotations: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Append the table to the summary of the step, unless no test used Harrow."""
        rows = self._index.rows_of_run(session.config)
        if not rows:
            return
        from ..reports.index_page import worst_first

        tests = worst_first(rows)
        if self._annotates:
            base = Path(os.environ.get("GITHUB_WORKSPACE") or session.config.rootpath)
            self._annotations = annotations_of(tests, session.config.rootpath, base)
        if self._summary:
            worker = session.config.stash[WORKER]
            try:
                with open(self._summary, "a", encoding="utf-8") as file:
                    file.write(table(tests, f"run {worker.run}, seed {worker.seed}"))
            except OSError as error:
                session.config.issue_config_time_warning(
                    pytest.PytestWarning(f"harrow: GITHUB_STEP_SUMMARY={self._summary} could not be written: {error}"),
                    2,
                )

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the annotations; GitHub reads them from the log and does not show the lines."""
        for line in self._annotations:
            terminalreporter.ensure_newline()
            terminalreporter.write_line(line)


def table(tests: Sequence[JudgedTest], about: str) -> str:
    """Return the table as Markdown, with a heading that counts the states."""
    counts = Counter(test.state for test in tests)
    counted = ", ".join(f"{count} {state}" for state, count in counts.items())
    lines = [f"### Harrow: {counted}", "", HEAD, *map(_row, tests[:ROWS_MOST])]
    if len(tests) > ROWS_MOST:
        lines += ["", f"and {len(tests) - ROWS_MOST:,} more tests in index.html"]
    return "\n".join([*lines, "", _cell(about), "", ""])


def _row(test: JudgedTest) -> str:
    row, verdict = test.row, test.verdict
    guarantees = ", ".join(verdict["guarantees"]) if verdict else ""
    pages = [run_folder.shown(page) for page in test.pages() if page.is_file()]
    cells = [
        f"<code>{_cell(row.test)}</code>",
        f"**{test.state.upper()}**",
        _cell(guarantees),
        "<br>".join(map(_cell, test.sentences())),
        f"<code>{_cell(row.command)}</code>" if row.command else "",
        "<br>".join(f"<code>{_cell(page)}</code>" for page in pages),
    ]
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    shown = "".join(f"&#{ord(sign)};" if sign in MARKUP else sign for sign in text)
    return " ".join(shown.split())


def annotations_of(tests: Sequence[JudgedTest], root: Path, base: Path) -> list[str]:
    """Return a workflow command for each failed test. `root`: of pytest; `base`: the folder of the repository."""
    failed = [test for test in tests if test.state in FAILED and test.row.place is not None]
    return [_annotation(test.row, test.sentences(), root, base) for test in failed[:ANNOTATIONS_MOST]]


def _annotation(row: IndexRow, sentences: Sequence[str], root: Path, base: Path) -> str:
    assert row.place is not None
    path, line = root / row.place[0], row.place[1]
    file = path.relative_to(base) if path.is_relative_to(base) else path
    message = "\n".join([*sentences, f"repeat with: {row.command}"] if row.command else sentences)
    title = f"harrow: {row.test}"
    return f"::error file={_property(str(file))},line={line},title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Escape the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
