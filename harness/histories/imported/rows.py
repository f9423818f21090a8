"""The rows of an imported file: JSON lines, CSV or EDN, each row a mapping with the line on which it begins.

`read_rows` chooses the format by the file's name (`.jsonl`, `.json`, `.ndjson`, `.csv`, `.edn`). It knows no column:
`operations.py` does.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from .edn import read_edn
from .errors import ImportedHistoryError, import_error


class Row(NamedTuple):
    """A row of the file; `line` begins at 1."""

    line: int
    fields: Mapping[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file. Raises ImportedHistoryError with the line of what cannot be read."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise import_error(
            path.name,
            0,
            f"the format is not known by the name's end {path.suffix!r}",
            f"name the file with one of {', '.join(READERS)}",
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ImportedHistoryError(f"{path} cannot be read: {error}; expected a text file in UTF-8") from error
    rows = list(reader(text, path.name))
    if not rows:
        raise import_error(path.name, 0, "the file has no operation", "write one row an operation")
    return rows


def _json_lines(text: str, source: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise import_error(source, number, f"no JSON: {error}", "write one JSON object a line") from None
        if not isinstance(fields, dict):
            raise import_error(source, number, f"{line[:40]!r} is no object", "write one JSON object a line")
        yield Row(number, fields)


def _csv(text: str, source: str) -> Iterator[Row]:
    """Yield the rows below the heading; an empty cell is a column that the row does not have."""
    reader = csv.DictReader(text.splitlines(keepends=True), restkey="")
    try:
        for fields in reader:
            if "" in fields:
                raise import_error(
                    source,
                    reader.line_num,
                    "the row has more cells than the heading",
                    'quote a cell with a comma: "a,b"',
                )
            yield Row(reader.line_num, {str(name).strip(): cell for name, cell in fields.items() if cell})
    except csv.Error as error:
        raise import_error(source, reader.line_num, f"no CSV: {error}", "quote such cells") from None


def _edn(text: str, source: str) -> Iterator[Row]:
    """Yield the maps of a file that has one map after another, or one vector of maps."""
    for form in read_edn(text, source):
        several = isinstance(form.value, list)
        for fields in cast("Sequence[Any]", form.value) if several else [form.value]:
            if not isinstance(fields, dict):
                raise import_error(source, form.line, f"{fields!r} is no map", "write one map an operation")
            yield Row(form.line, cast("dict[str, Any]", fields))


READERS: dict[str, Callable[[str, str], Iterator[Row]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    ".csv": _csv,
    ".edn": _edn,
}
"""Formats by the end of the file's name."""
