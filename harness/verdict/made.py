"""The verdicts of one `Harrow`: all of them in their order, with the page of each, and the words that show them.

The n-th verdict of a run folder is `verdict-<n>.json` with the page `report-<n>.html`, the first one `verdict.json`
with `report.html` (`run_folder.numbered`). So a test that calls `verify` twice, and tests that share a cluster, keep
every verdict: a later one replaces none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import run_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..checks import Verdict


class MadeVerdicts:
    """The verdicts of one run; `repeat` returns how the run is repeated: a command, or its seed."""

    def __init__(self, folder: Path, repeat: Callable[[], str]) -> None:
        self._folder = folder
        self._repeat = repeat
        self.verdicts: list[Verdict] = []
        """All verdicts so far, the newest last."""
        self._listeners: list[Callable[[Verdict], None]] = []

    def on_verdict(self, call: Callable[[Verdict], None]) -> None:
        """Call `call` with each verdict."""
        self._listeners.append(call)

    @property
    def next_number(self) -> int:
        """The number of the verdict that is made now, from 1 up."""
        return len(self.verdicts) + 1

    def publish(self, verdict: Verdict) -> Verdict:
        """Add a verdict, and tell who listens."""
        assert all(made is not verdict for made in self.verdicts), "a verdict has one number, and is published once"
        self.verdicts.append(verdict)
        for call in self._listeners:
            call(verdict)
        return verdict

    def file_of(self, verdict: Verdict) -> Path:
        """Return the file of one of `verdicts` in the run folder; that of the newest for any other verdict."""
        numbers = (number for number, made in enumerate(self.verdicts, 1) if made is verdict)
        number = next(numbers, max(1, len(self.verdicts)))
        return self._folder / run_folder.numbered(run_folder.VERDICT, number)

    def explained(self, verdict: Verdict) -> str:
        """Return the text of a verdict, with its page and how the run is repeated."""
        report = self._shown_page(verdict)
        return f"{verdict}\n  report: {report}\n  repeat with: {self._repeat()}"

    def line(self, verdict: Verdict) -> str:
        """Return one line for the terminal or a JUnit property."""
        from ..checks.verdict_text import summary_line

        return f"{summary_line(verdict)} · {self._shown_page(verdict)}"

    def _shown_page(self, verdict: Verdict) -> str:
        return run_folder.shown(run_folder.page_of(self.file_of(verdict)))
