"""The table of bugs in `docs/zoo.md` is what the modules of the zoo say (M1).

`python tests/documents/test_zoo_page.py` writes it; `harrow zoo --write` writes the tables of what was measured.
"""

from __future__ import annotations

import re
from pathlib import Path

from harrow.faults.zoo.bug import Bug
from harrow.harness.zoo.catalog import ZOO

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
BEGIN, END = "<!-- bugs: generated -->", "<!-- end of bugs -->"
COLUMNS = ("number", "name", "in Kafka", "what is wrong", "needs", "found as", "found by", "command")


def row(bug: Bug) -> str:
    wrong = bug.title.partition(": ")[2]
    found_as = ", ".join(f"`{name}`" for name in sorted(bug.seen_as))
    found_by = "directed" if bug.in_order is None else "directed, events"
    cells = (bug.number, bug.known_as, bug.versions, wrong, bug.needs, found_as, found_by, f"`harrow zoo {bug.name}`")
    return f"| {' | '.join(map(str, cells))} |"


def table() -> list[str]:
    return [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}", *map(row, ZOO)]


def test_the_page_has_each_bug_as_its_module_describes_it() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    found, _, after = rest.partition(END)
    assert before and after, f"{PAGE.name} has no place for the table"
    assert found.split("\n") == ["", "", *table(), "", ""], "run: python tests/documents/test_zoo_page.py"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    lines = "\n".join([BEGIN, "", *table(), "", END])
    PAGE.write_text(pattern.sub(lambda _: lines, text), encoding="utf-8")
