"""The index of a pytest run: one static HTML page with all tests that used Harrow, the worst first.

Owns: `IndexRow`, one test, `worst_first`, which reads the verdicts, and `write_index`. The page has no script and uses
no network. Its size is bounded: `ROWS_MOST` tests, and of each the first sentences of its verdict. It reads only
the files of the verdicts in each run folder.
"""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from .. import run_folder
from ..checks.verdict_text import shortened
from .findings import verdict_model
from .page_model import VerdictModel
from .recorded_run import read_object

INDEX = "index.html"
ROWS_MOST = 1_000
SENTENCES_MOST = 3
TEXT_MOST = 400
ORDER = ("invalid", "unknown", "failed", "interrupted", "xfailed", "passed", "valid", "skipped")
"""States of a test, the worst first. A failed test has the state of its worst verdict that is not valid; a test that
passed without a valid verdict (because it expects anomalies, or calls no `verify`) is `passed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """One test of the run."""

    test: str
    outcome: str
    """pytest's: passed, failed, skipped, xfailed; or interrupted, when the run ended before the test."""
    folders: tuple[Path, ...] = ()
    """The folders of its Harrow fixtures."""
    pages: tuple[Path, ...] = ()
    """The pages of its verdicts; of a folder that has none of them, all pages count: the test reported nothing."""
    unjudged: tuple[Path, ...] = ()
    """Those of `folders` on whose cluster it asked for no verdict; other tests may have."""
    seed: str = ""
    command: str = ""
    """The command that repeats the test."""
    duration_s: float | None = None
    reason: str = ""
    """Why the test did not pass, where the verdict does not say it."""
    place: tuple[str, int] | None = None
    """Of a failed test: the file and the line, from 1 up, in which it failed."""


def write_index(target: Path, rows: Sequence[IndexRow], *, title: str, about: Sequence[str] = ()) -> Path:
    """Write the page `target` and return it. Links are relative to its folder. `about`: lines below the title."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(render(rows, target.parent, title=title, about=about), encoding="utf-8")
    partial.replace(target)
    return target


def render(rows: Sequence[IndexRow], base: Path, *, title: str, about: Sequence[str] = ()) -> str:
    """Return the page; `base`: the folder to which its links are relative."""
    tests = worst_first(rows)
    counts = Counter(test.state for test in tests)
    summary = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
    assets = resources.files(__package__ or "harrow.harness.reports")
    style = assets.joinpath("page.css").read_text(encoding="utf-8")
    lines = [f'<p class="promise">{_text(line)}</p>' for line in (*about, summary or "no test used Harrow")]
    body = "\n".join(test.html(base) for test in tests[:ROWS_MOST])
    if len(tests) > ROWS_MOST:
        body += f'<p class="empty">{len(tests) - ROWS_MOST:,} more tests in the folder of the run</p>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_text(title)} · Harrow</title>
<style>
{style}
</style>
</head>
<body>
<main>
<div class="head"><div><div class="brand">Harrow</div><h1>{_text(title)}</h1>
{chr(10).join(lines)}</div></div>
{body}
</main>
</body>
</html>
"""


def worst_first(rows: Sequence[IndexRow]) -> list[JudgedTest]:
    """Return the tests with what their verdicts say, the worst first."""
    return sorted(map(JudgedTest, rows), key=lambda test: (ORDER.index(test.state), test.row.test))


class JudgedTest:
    """One test with its state, one of `ORDER`, and what its worst verdict says."""

    def __init__(self, row: IndexRow) -> None:
        self.row = row
        self._verdicts = {
            run_folder.page_of(path): model
            for path in self._files()
            if (model := verdict_model(read_object(path))) is not None
        }
        known = sorted(self._verdicts.values(), key=lambda model: ORDER.index(model["status"]))
        self.verdict: VerdictModel | None = known[0] if known else None
        """The worst one: a valid verdict does not hide another of the same test."""
        self.state = self._state()

    def _files(self) -> list[Path]:
        """Return the files of the verdicts of this test, also where other tests share its folder."""
        found: list[Path] = []
        for folder in self.row.folders:
            if folder in self.row.unjudged:
                continue
            files = run_folder.verdict_files(folder)
            own = [path for path in files if run_folder.page_of(path) in self.row.pages]
            found += own or files
        return found

    def pages(self) -> list[Path]:
        """Return the pages of the verdicts, and the page of each folder without a verdict."""
        pages = list(self._verdicts)
        judged = {page.parent for page in pages}
        without = [folder for folder in self.row.folders if folder not in judged]
        return pages + [folder / run_folder.REPORT for folder in without]

    def _state(self) -> str:
        status = self.verdict["status"] if self.verdict else ""
        if self.row.outcome == "passed":
            return "valid" if status == "valid" else "passed"
        if self.row.outcome == "failed":
            return status if status in ("invalid", "unknown") else "failed"
        return self.row.outcome if self.row.outcome in ORDER else "failed"

    def html(self, base: Path) -> str:
        """Return the test's card; `base`: the folder to which its links are relative."""
        row = self.row
        look = self.state if self.state in ("invalid", "unknown", "valid") else "plain"
        badge = f'<span class="badge {look}">{self.state.upper()}</span>'
        name = f'<code class="name">{_text(row.test)}</code>'
        links = [self._link(page, base) for page in self.pages()]
        facts = [f"{row.duration_s:.1f} s" if row.duration_s is not None else ""]
        facts += [f"seed <code>{_text(row.seed)}</code>" if row.seed else "", *links]
        parts = [f'<div class="top">{badge}{name}</div>']
        parts += [f'<p class="kind">{_text(text)}</p>' for text in self.sentences()]
        parts.append(f'<p class="facts">{" · ".join(fact for fact in facts if fact)}</p>')
        if row.command:
            parts.append(f'<p class="repeat">Repeat with <code>{_text(row.command)}</code></p>')
        return f'<section class="card found test {look}">{"".join(parts)}</section>'

    def _link(self, page: Path, base: Path) -> str:
        shown = page if page.is_file() else page.parent
        if not shown.exists():
            return ""
        label = "report" if shown is page else "folder"
        if len(self._verdicts) > 1 and page in self._verdicts:
            label += f": {self._verdicts[page]['status']}"
        return f'<a href="{quote(os.path.relpath(shown, base))}">{label}</a>'

    def sentences(self) -> list[str]:
        """Return why the test did not pass, and what the verdict found: a few sentences of bounded length."""
        reason = [shortened(self.row.reason, TEXT_MOST)] if self.row.reason else []
        return reason + self._sentences_of_verdict()

    def _sentences_of_verdict(self) -> list[str]:
        if self.verdict is None:
            return []
        kinds = self.verdict["kinds"]
        found = [
            kind["text"] + "; the guarantee allows this"
            if kind["allowed"]
            else ": ".join([kind["text"], *kind["causes"][:1]])
            for kind in kinds
        ]
        if self.verdict["status"] == "unknown" and self.state not in ("passed", "skipped"):
            found = [*self.verdict["reasons"], *found]
        hidden = len(found) - SENTENCES_MOST
        more = [f"and {hidden} more"] if hidden > 0 else []
        return [shortened(text, TEXT_MOST) for text in found[:SENTENCES_MOST]] + more


def _text(text: str) -> str:
    return html.escape(text)
