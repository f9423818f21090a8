"""The error of an imported history: which file and line, what is wrong there, and what to write."""

from __future__ import annotations

from ..format import HistoryError


class ImportedHistoryError(HistoryError):
    """A file of operations cannot be read as a history."""


def import_error(source: str, line: int, problem: str, remedy: str) -> ImportedHistoryError:
    """Return the error on one line of the file `source`; `line` 0: of the whole file."""
    place = f"{source}, line {line}" if line else source
    return ImportedHistoryError(f"{place}: {problem}; {remedy} (docs/histories.md)")
