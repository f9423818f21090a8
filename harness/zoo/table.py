"""The table of the zoo, for a terminal and for docs/zoo.md.

Each row is a bug: how many trials found it, and the 95 % interval of that rate; the median seconds until it was found;
the median faults of the runs that found it and of their shrunk schedules; and which checks fired.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harrow.cluster.errors import ConfigError
from harrow.faults.zoo.bug import Bug
from rich.table import Table

from .trial import Trial

COLUMNS = ("no.", "bug", "found", "95 %", "s", "faults", "shrunk", "seen as")
SIMULATED = ("<!-- harrow zoo: begin -->", "<!-- harrow zoo: end -->")
"""Between these lines of a page `harrow zoo --write` puts the table."""
ON_PROCESSES = ("<!-- harrow zoo --real: begin -->", "<!-- harrow zoo --real: end -->")
"""Between these lines `harrow zoo --real --write` puts its table."""
Marks = tuple[str, str]
CHECKS_SHOWN = 3
WIDTHS = {"bug": 12, "seen as": 16}
"""Of columns whose text may be broken, at least."""
NOTHING = "none"
Z_95 = 1.959964
"""The 97.5 % quantile of the normal distribution: an interval of 95 %."""


def wilson_interval(found: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate by Wilson's score (E. B. Wilson, JASA 1927); (0, 1) without a trial."""
    if not 0 <= found <= trials:
        raise ValueError(f"{found} of {trials} trials")
    if trials == 0:
        return 0.0, 1.0
    rate, square = found / trials, Z_95 * Z_95
    middle = rate + square / (2 * trials)
    spread = Z_95 * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    whole = 1 + square / trials
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All trials of one bug."""

    bug: Bug
    trials: Sequence[Trial]
    shrunk: Sequence[int] = field(default_factory=tuple[int, ...])
    """How many faults remained, of each schedule that was shrunk."""

    @property
    def found(self) -> Sequence[Trial]:
        """The trials that found it."""
        return [trial for trial in self.trials if trial.found]

    @property
    def rate(self) -> float:
        """The part of the trials that found it; 0 without a trial."""
        return len(self.found) / len(self.trials) if self.trials else 0.0

    def cells(self) -> tuple[str, ...]:
        """Return the row, as `COLUMNS` says."""
        low, high = wilson_interval(len(self.found), len(self.trials))
        checks = Counter(name for trial in self.found for name in trial.anomalies)
        names = sorted(checks, key=lambda name: (name not in self.bug.seen_as, -checks[name], name))
        return (
            str(self.bug.number),
            self.bug.known_as,
            f"{len(self.found)} of {len(self.trials)}",
            f"{low * 100:.0f}-{high * 100:.0f}",
            _median([trial.seconds for trial in self.found], ".1f"),
            _median([trial.faults for trial in self.found], ".0f"),
            _median(self.shrunk, ".0f"),
            ", ".join(names[:CHECKS_SHOWN]) or NOTHING,
        )


def _median(values: Sequence[float], form: str) -> str:
    return format(statistics.median(values), form) if values else NOTHING


def terminal_table(rows: Iterable[Measured], title: str) -> Table:
    """Return the table for a terminal."""
    table = Table(title=title, title_justify="left")
    for name in COLUMNS:
        words = name in ("bug", "seen as")
        table.add_column(
            name, justify="left" if words else "right", no_wrap=not words, min_width=WIDTHS.get(name), overflow="fold"
        )
    for row in rows:
        table.add_row(*row.cells())
    return table


def markdown(rows: Iterable[Measured], before: str = "") -> str:
    """Return the table for a page; anomalies are code. Rows of `before` stay where their bug was not measured now."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    by_number = {number_of(line): line for line in before.splitlines() if number_of(line)}
    for row in rows:
        *cells, names = row.cells()
        checks = names if names == NOTHING else ", ".join(f"`{name}`" for name in names.split(", "))
        by_number[row.bug.number] = f"| {' | '.join([*cells, checks])} |"
    return "\n".join([*lines, *(by_number[number] for number in sorted(by_number))])


def number_of(line: str) -> int:
    """Return the bug's number of a row of the table; 0 for another line."""
    first = line.split("|")[1].strip() if line.count("|") > len(COLUMNS) else ""
    return int(first) if first.isdigit() else 0


def check_page(page: Path, marks: Marks = SIMULATED) -> None:
    """Raise ConfigError where a page has no place for the table."""
    begin, end = marks
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ConfigError(
            f"{page} has no place for the table; add the two lines {begin} and {end}, each once and in this order"
        )


def write_into(page: Path, rows: Iterable[Measured], marks: Marks = SIMULATED) -> None:
    """Replace the rows of the measured bugs between the two marks of a page."""
    check_page(page, marks)
    begin, end = marks
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    old, _, after = rest.partition(end)
    text = markdown(rows, old)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
