"""The pages of docs/ are complete: each anomaly, fault, option and public name has its place (J1, L1, L5, L6)."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import harrow
import pytest
from harrow.faults import FAULTS
from harrow.faults.dependency_faults import DEPENDENCY_FAULTS
from harrow.faults.planning import RANDOM_FAULTS
from harrow.harness.checks.anomaly_kinds import SEVERITY
from harrow.harness.checks.guarantees import ALL_ANOMALIES, FORBIDDEN, SIMULATED
from harrow.harness.checks.known_anomalies import described
from harrow.harness.plugin.options import OPTIONS

ROOT = Path(__file__).parents[2]
PLACEHOLDER = "…"


@cache
def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def cells(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table after a text."""
    lines = text_of(page).partition(heading)[2].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| ---"))
    rows: list[list[str]] = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip()[1:-1].split("|")])
    return rows


def sections() -> dict[str, str]:
    """Return the sections on anomalies, by name, in the order of the page."""
    chapter = text_of("guarantees").partition("## Anomalies\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### `([\w-]+)`$", chapter, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_anomaly_has_a_section_in_the_order_of_severity() -> None:
    assert list(sections()) == [kind.name for kind in SEVERITY if kind.name in ALL_ANOMALIES]


@pytest.mark.parametrize("name", sorted(ALL_ANOMALIES))
def test_a_section_has_the_words_of_the_verdict_an_example_causes_and_a_remedy(name: str) -> None:
    section = sections()[name]
    sentences = {described(name, count).removesuffix(f" ({name})") for count in range(1, 60)}
    (quoted,) = re.findall(r"^> (.+)$", section, re.MULTILINE)
    assert quoted in sentences
    for part in ("Example", "Causes", "What to do"):
        assert f"* **{part}**: " in section


def test_the_anomalies_of_simulations_are_named() -> None:
    chapter = text_of("guarantees").partition("### Only in simulations")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z]+-[a-z-]+|unexpected)`", chapter)) == SIMULATED


def test_the_table_of_guarantees_says_what_each_forbids() -> None:
    head = text_of("guarantees").partition("| anomaly |")[2].partition("\n")[0]
    columns = [re.findall(r"`([\w-]+)`", cell) for cell in head.split("|")[:-1]]
    found: dict[str, set[str]] = {name: set() for column in columns for name in column}
    listed: list[str] = []
    for row in cells("guarantees", "| anomaly |"):
        names = re.findall(r"\[`([\w-]+)`\]", row[0])
        listed += names
        for column, cell in zip(columns, row[1:], strict=True):
            assert cell in ("", "invalid")
            for guarantee in column if cell else ():
                found[guarantee] |= set(names)
    assert sorted(listed) == sorted(ALL_ANOMALIES)
    assert found == {name: set(anomalies) for name, anomalies in FORBIDDEN.items()}


@cache
def texts_of_the_code() -> list[str]:
    """Return every text of the harness and of the waits for convergence; `…` stands for what the code inserts."""
    files = [*(ROOT / "harness").rglob("*.py"), ROOT / "cluster" / "convergence.py"]
    found: list[str] = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
                )
    return found


def says(phrase: str) -> bool:
    """Whether a text of the code contains the phrase; `…` of the page stands for any text."""
    pattern = re.compile(".*".join(re.escape(part.strip()) for part in phrase.split(PLACEHOLDER)))
    return any(pattern.search(text) for text in texts_of_the_code())


def test_every_doubt_of_the_page_is_a_text_of_the_code() -> None:
    rows = cells("guarantees", "| the verdict says |")
    phrases = [phrase for row in rows for phrase in re.findall(r"`([^`]+)`", row[0])]
    assert len(phrases) > 20
    unknown = [phrase for phrase in phrases if not says(phrase)]
    assert not unknown, unknown
    assert not says("no such doubt … at all")


def test_the_page_of_faults_lists_every_fault_and_every_random_kind() -> None:
    listed = re.findall(r"^\| `(\w+)\(", text_of("faults"), re.MULTILINE)
    dependencies = {kind.kind for kind in DEPENDENCY_FAULTS if f"{kind.written}(dependency(" in text_of("faults")}
    assert sorted(set(listed) & set(FAULTS) | dependencies) == sorted(FAULTS)
    (row,) = re.findall(r"^\| `kinds=\(…\)` \| (.*) \|$", text_of("faults"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", row)) == sorted(RANDOM_FAULTS)


README_MOST = 6_000
"""Characters: what it is, ten lines, two commands and where to read on. Pages of docs/ have the rest."""


def test_the_readme_is_read_in_two_minutes() -> None:
    assert 4_000 < len((ROOT / "README.md").read_text()) < README_MOST


CHANGELOG_MOST = 8_000
"""Characters, until there is a release: what a user must change and what is offered; `git log` has the rest."""


def test_the_changelog_is_short_before_the_first_release() -> None:
    assert 2_000 < len((ROOT / "CHANGELOG.md").read_text()) < CHANGELOG_MOST


def test_the_page_of_options_lists_every_option_with_its_ini_setting_and_marker() -> None:
    rows = cells("fixtures-and-options", "## Options")
    listed = [re.findall(r"--[\w-]+", row[0])[0] for row in rows]
    assert sorted(listed) == sorted(spec.flag for spec in OPTIONS)
    for spec in OPTIONS:
        row = rows[listed.index(spec.flag)]
        assert row[1] == f"`{spec.ini}`"
        assert bool(row[2]) == (spec.marker or spec.name == "set")


def test_every_public_name_is_on_a_page() -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    pages = pages.partition("# Glossary")[0] + (ROOT / "README.md").read_text()
    assert [name for name in harrow.__all__ if not re.search(rf"\b{name}\b", pages)] == []


def test_the_page_of_examples_lists_every_example() -> None:
    examples = ROOT / "examples"
    listed = re.findall(r"^\| \[(\w+)\]", (examples / "README.md").read_text(), re.MULTILINE)
    folders = [path.parent.name for path in examples.glob("*/README.md")]
    assert sorted(listed) == sorted(folders)
