"""docs/mutants.md has each mutant as the catalogue has it; `python tests/documents/test_mutants_page.py` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from harrow.harness.mutants.catalogue import CLIENT, MUTANTS, Mutant

PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"
BEGIN, END = "<!-- mutants: generated -->", "<!-- end of the mutants -->"
COLUMNS = ("name", "what it does", "in", "breaks", "shown by")


def row(mutant: Mutant) -> str:
    where = "Python clients" if mutant.where == CLIENT else "clients of any language"
    breaks = ", ".join(sorted(mutant.breaks))
    cells = (f"`{mutant.name}`", mutant.words, where, breaks, mutant.shown_by or "no fault is needed")
    return f"| {' | '.join(cells)} |"


def table() -> list[str]:
    return [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}", *map(row, MUTANTS)]


def test_the_page_has_each_mutant_as_the_catalogue_describes_it() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    found, _, after = rest.partition(END)
    assert before and after, f"{PAGE.name} has no place for the table"
    assert found.split("\n") == ["", "", *table(), "", ""], "run: python tests/documents/test_mutants_page.py"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    lines = "\n".join([BEGIN, "", *table(), "", END])
    PAGE.write_text(pattern.sub(lambda _: lines, text), encoding="utf-8")
