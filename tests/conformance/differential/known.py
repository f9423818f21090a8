"""The known differences as data: rows of `docs/compatibility.toml`, which the comparison and the page both read.

Owns: the rows, when a row explains a difference, and the table that the page has between its two marks. A row:

    request    name of the request, or `*`
    versions   as in Kafka's message files: `0-13`, `4+`
    field      the path of the field without indexes of rows; `*` at the end stands for any rest
    kafka      Kafka's values as JSON, `*` for any value
    harrow     ours
    reason     why it stays; one sentence

Fails with ValueError, which names the row, when a row lacks a column.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from .message_files import Range
from .normal import Difference

ROOT = Path(__file__).parents[3]
DATA = ROOT / "docs" / "compatibility.toml"
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- rows of compatibility.toml -->", "<!-- end of the rows -->"
ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A difference that stays."""

    request: str
    versions: str
    field: str
    kafka: str
    harrow: str
    reason: str

    def explains(self, difference: Difference) -> bool:
        """True when this row is about the difference."""
        return (
            self.request in (ANY, difference.api)
            and difference.version in Range.parse(self.versions)
            and _matches_path(self.field, difference.path)
            and _matches(self.kafka, difference.kafka)
            and _matches(self.harrow, difference.harrow)
        )

    @property
    def row(self) -> str:
        """The row of the page's table."""
        cells = (
            self.request, self.versions, f"`{self.field}`", _cell(self.kafka), _cell(self.harrow), self.reason,
        )  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def _cell(value: str) -> str:
    return "any" if value == ANY else f"`{value}`"


def _matches_path(pattern: str, path: str) -> bool:
    if pattern.endswith(ANY):
        return path.startswith(pattern[:-1])
    return path == pattern


def _matches(pattern: str, value: object) -> bool:
    if pattern == ANY:
        return True
    return json.dumps(value, sort_keys=True) in _alternatives(pattern)


def _alternatives(pattern: str) -> list[str]:
    """Parses `6`, `"closed"` and `6 or 3`."""
    return [json.dumps(json.loads(each), sort_keys=True) for each in pattern.split(" or ")]


def known_differences(data: Path = DATA) -> list[Known]:
    """Reads the rows."""
    wanted = {field.name for field in fields(Known)}
    found: list[Known] = []
    for row in tomllib.loads(data.read_text()).get("difference", []):
        if set(row) != wanted:
            raise ValueError(
                f"{data.name}: row {row} has the columns {sorted(row)}, expected {sorted(wanted)}"
            )
        known = Known(**row)
        for pattern in (known.kafka, known.harrow):
            if pattern != ANY:
                _alternatives(pattern)
        Range.parse(known.versions)
        found.append(known)
    return found


def unexplained(found: Iterable[Difference], known: Iterable[Known]) -> list[Difference]:
    """Returns the differences that no row explains."""
    rows = list(known)
    return [each for each in found if not any(row.explains(each) for row in rows)]


def table(rows: Iterable[Known]) -> str:
    """Returns the page's table."""
    head = [
        "| request | versions | field | Kafka | Harrow | reason |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *(each.row for each in rows)])


def page_with(page: str, rows: Iterable[Known]) -> str:
    """Returns the page with its table made from the rows."""
    before, _, rest = page.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{behind}"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), known_differences()))
