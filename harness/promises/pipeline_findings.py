"""What the reducers of a pipeline's checks yield: counts, and the first findings of each name.

A finding names records by their places and is plain JSON; `pipeline_words.py` reads the records again and explains it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

Row = dict[str, Any]
MISSING, DUPLICATE, UNEXPECTED = "missing-output", "duplicate-output", "unexpected-output"
WRONG, LATE, OUT_OF_ORDER = "wrong-output", "commit-before-output", "out-of-order-output"
BOTH, WITHOUT_REASON = "output-and-dead-letter", "dead-letter-without-reason"
TOO_MANY, EARLY = "too-many-attempts", "attempt-before-due"
DUE_ORDER = "due-out-of-order"
PLACES = ("input", "output", "after_input", "after_output", "letter", "retry", "attempt", "first")
"""The fields of a finding that are places: a reducer yields them as JSON, and who merges reads them again."""
SHOWN = 20
"""How many findings of each name a task reports."""


class Place(NamedTuple):
    """Where a row's record is."""

    chunk: int
    row: int
    part: int
    partition: int
    offset: int


def place_of(row: Row, suffix: str = "") -> Place:
    """Return the place in a row of a frame."""
    names = ("chunk", "row", "part", "partition", "offset")
    return Place(*(row[name + suffix] for name in names))


class Findings:
    """Counts of a bucket, and the first findings of each name."""

    def __init__(self, groups: int) -> None:
        self.counts: Counter[str] = Counter()
        self.late = [0] * groups
        self.matched = 0
        self._shown: dict[str, list[Row]] = {}

    def add(self, name: str, unit: Place | None, output: Place | None, **more: Any) -> None:
        """Count a finding, and keep it if it is among the first."""
        self.counts[name] += 1
        self.show(name, unit, output, **more)

    def show(self, name: str, unit: Place | None, output: Place | None, **more: Any) -> None:
        """Keep a finding if it is among the first of its name (and group)."""
        unknown = [field for field, given in more.items() if isinstance(given, Place) and field not in PLACES]
        assert not unknown, f"{unknown} of a finding are places; add them to PLACES"
        kept = self._shown.setdefault(f"{name} {more.get('group', '')}", [])
        if len(kept) < SHOWN:
            kept.append({"name": name, "input": unit, "output": output, **more})

    def result(self) -> Row:
        """Return counts and findings as plain JSON."""
        findings = [finding for kept in self._shown.values() for finding in kept]
        counts = {**self.counts, "matched": self.matched}
        return {"counts": counts, "late": self.late, "findings": findings}
