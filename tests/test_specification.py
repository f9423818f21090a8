"""docs/specification.md explains every code that the tree names, and tests drive every entry that it marks done.

A code is a letter from A to H or J to N and a number. Docstrings, comments and documents name them.
The lists of test files in the specification are derived from the codes that test files name:
`python tests/test_specification.py` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPECIFICATION = ROOT / "docs" / "specification.md"
FOLDERS = ("benchmarks", "cluster", "docs", "faults", "harness", "package", "tests")
SUFFIXES = (".md", ".py")
CODE = re.compile(r"\b[A-HJ-N][1-9]\d?\b")
ENTRY = re.compile(
    r"^### (?P<code>\S+) .+\n\n(?P<behaviour>(?!###|- Status:)\S(?:(?!###|- Status:).*\n)+)"
    r"- Status: (?P<status>.+(?:\n  .+)*)\n- Tests:(?P<tests>.*(?:\n  .+)*)\n",
    re.MULTILINE,
)
STATUS = re.compile(r"done|planned|partly: \S(?:.|\n)*")
NONE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One behaviour of the specification."""

    code: str
    behaviour: str
    status: str
    tests: tuple[str, ...]


def read_entries(text: str) -> list[Entry]:
    return [
        Entry(
            code=match["code"],
            behaviour=match["behaviour"].strip(),
            status=match["status"],
            tests=tuple(re.findall(r"`(.+?)`", match["tests"])),
        )
        for match in ENTRY.finditer(text)
    ]


def codes_in(text: str) -> set[str]:
    return set(CODE.findall(text))


def undefined_codes(text: str, defined: set[str]) -> list[str]:
    return sorted(codes_in(text) - defined)


def find_files_to_read() -> list[Path]:
    folders = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return sorted(p for p in (*ROOT.glob("*.md"), *folders) if p.suffix in SUFFIXES and p != Path(__file__))


@cache
def find_tests_by_code() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path != Path(__file__):
            for code in codes_in(path.read_text()):
                found.setdefault(code, []).append(str(path.relative_to(ROOT / "tests")))
    return found


def format_tests(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or NONE


def with_tests_written(text: str) -> str:
    """Return the specification with every list of test files derived from the tests."""
    named = find_tests_by_code()

    def rewrite(match: re.Match[str]) -> str:
        before = text[match.start() : match.start("tests")]
        return f"{before} {format_tests(named.get(match['code'], []))}\n"

    return ENTRY.sub(rewrite, text)


TEXT = SPECIFICATION.read_text()
ENTRIES = read_entries(TEXT)
DEFINED = {entry.code for entry in ENTRIES}


def test_every_heading_is_a_complete_entry_with_a_code_of_its_own() -> None:
    headings = re.findall(r"^### (\S+)", TEXT, re.MULTILINE)
    assert len(headings) > 80
    assert headings == [entry.code for entry in ENTRIES], "each entry needs a behaviour, a Status and a Tests line"
    assert len(DEFINED) == len(headings), "a code is explained twice"
    assert all(CODE.fullmatch(code) for code in DEFINED)


def test_every_code_in_a_file_is_explained() -> None:
    paths = find_files_to_read()
    assert len(paths) > 500
    found = {p.relative_to(ROOT): undefined_codes(p.read_text(), DEFINED) for p in paths}
    missing = [f"{path} names {codes}" for path, codes in found.items() if codes]
    assert not missing, f"{missing}; add them to {SPECIFICATION.name}"


def wrong_statuses(entries: list[Entry]) -> Iterator[str]:
    """Yield what is wrong with the status and the tests of each entry."""
    for entry in entries:
        named = find_tests_by_code().get(entry.code, [])
        if not STATUS.fullmatch(entry.status):
            yield f"{entry.code}: status {entry.status!r}"
        if list(entry.tests) != named:
            yield f"{entry.code}: {entry.tests} != {named}; run `python tests/{Path(__file__).name}`"
        if entry.status == "done" and not named:
            yield f"{entry.code} is marked done, but no test file names it"


def test_every_status_is_true_to_the_tests() -> None:
    wrong = list(wrong_statuses(ENTRIES))
    assert not wrong, "\n".join(wrong)


def test_a_wrong_status_is_found() -> None:
    entry = ENTRIES[0]
    assert list(wrong_statuses([replace(entry, status="finished")]))
    assert list(wrong_statuses([replace(entry, tests=("no_such_test.py",))]))
    unnamed = replace(entry, code="Z9", status="done", tests=())
    assert list(wrong_statuses([unnamed])) == ["Z9 is marked done, but no test file names it"]


def test_codes_are_told_from_other_words() -> None:
    text = "I32, G1a, C#1, 4B11, B11x, SIGKILL, KIP-101, G0 and A0 are none; (B11), C1-C8 and `D4`: are"
    assert codes_in(text) == {"B11", "C1", "C8", "D4"}
    assert undefined_codes(text, {"B11", "C1", "D4"}) == ["C8"]


def test_an_incomplete_entry_is_not_read() -> None:
    complete = "### B1 Files\n\nFiles lie there.\n\n- Status: done\n- Tests: `a.py`, `b.py`\n"
    assert read_entries(complete)[0].tests == ("a.py", "b.py")
    for line in ("Files lie there.\n", "- Status: done\n", "- Tests: `a.py`, `b.py`\n"):
        assert not read_entries(complete.replace(line, ""))


if __name__ == "__main__":
    SPECIFICATION.write_text(with_tests_written(TEXT))
