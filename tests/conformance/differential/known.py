"""The known differences as data: rows of `docs/compatibility.toml`, which the comparison and the page both read.

Owns: the rows, when a row explains a difference, and the table that the page has between its two marks. A row:

    request    name of the request, or `*`
    versions   as in Kafka's message files: `0-13`, `4+`
    field      the path of the field without indexes of rows; `*` at the end stands for any rest, `{list}` at the end
               for each name of that list in `[names]`
    kafka      Kafka's values as JSON, `*` for any value
    harrow     ours
    reason     why it stays; one sentence

Fails with ValueError, which names the row, when a row lacks a column.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
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
    names: tuple[str, ...] = ()
    """What the list in the field's braces has."""

    def explains(self, difference: Difference) -> bool:
        """True when this row is about the difference."""
        return (
            self.request in (ANY, difference.api)
            and difference.version in Range.parse(self.versions)
            and self._is_at(difference.path)
            and _matches(self.kafka, difference.kafka)
            and _matches(self.harrow, difference.harrow)
        )

    def _is_at(self, path: str) -> bool:
        before, brace, _ = self.field.partition("{")
        if brace:
            return path.startswith(before) and path.removeprefix(before) in self.names
        return path.startswith(before[:-1]) if before.endswith(ANY) else path == before

    @property
    def list_name(self) -> str:
        """The name of the list in the field's braces; empty without one."""
        return self.field.partition("{")[2].rstrip("}")

    @property
    def row(self) -> str:
        """The row of the page's table."""
        cells = (self.request, self.versions, f"`{self.field}`", _cell(self.kafka), _cell(self.harrow), self.reason)
        return "| " + " | ".join(cells) + " |"


def _cell(value: str) -> str:
    return "any" if value == ANY else f"`{value}`"


def _matches(pattern: str, value: object) -> bool:
    if pattern == ANY:
        return True
    return json.dumps(value, sort_keys=True) in _alternatives(pattern)


def _alternatives(pattern: str) -> list[str]:
    """Parses `6`, `"closed"` and `6 or 3`."""
    return [json.dumps(json.loads(each), sort_keys=True) for each in pattern.split(" or ")]


def known_differences(data: Path = DATA) -> list[Known]:
    """Reads the rows."""
    wanted = {field.name for field in fields(Known)} - {"names"}
    found: list[Known] = []
    read = tomllib.loads(data.read_text())
    lists: dict[str, list[str]] = read.get("names", {})
    for row in read.get("difference", []):
        if set(row) != wanted:
            raise ValueError(f"{data.name}: row {row} has the columns {sorted(row)}, expected {sorted(wanted)}")
        known = Known(**row)
        if known.list_name:
            if known.list_name not in lists:
                raise ValueError(f"{data.name}: row {row} names a list that [names] does not have")
            known = replace(known, names=tuple(lists[known.list_name]))
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
    """Returns the page's table, and below it the lists that its fields name."""
    head = ["| request | versions | field | Kafka | Harrow | reason |", "| --- | --- | --- | --- | --- | --- |"]
    rows = list(rows)
    lists = {each.list_name: each.names for each in rows if each.list_name}
    named = [
        line
        for name, names in lists.items()
        for line in ("", f"`{{{name}}}`: {', '.join(f'`{each}`' for each in names)}.")
    ]
    return "\n".join([*head, *(each.row for each in rows), *named])


def page_with(page: str, rows: Iterable[Known]) -> str:
    """Returns the page with its table made from the rows."""
    before, _, rest = page.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{behind}"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), known_differences()))
