"""Phrases that docs/glossary.md replaces do not return: the tree may hold at most so many of each.

A bound is only lowered, never raised: a change that removes a phrase lowers its bound, until it is 0.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "cluster", "docs", "faults", "harness", "package", "tests")
LISTS_THEM = (Path(__file__), ROOT / "docs" / "glossary.md")
BOUNDS = {
    "told": 1,
    "anew": 0,
    "whoever": 0,
    "nobody": 7,
    "somebody": 0,
    "everybody": 4,
    "but for": 0,
    "of now": 0,
    "of a moment": 0,
    "under way": 2,
    "stands still": 0,
    "knows of": 0,
    "hears of": 1,
    "heard of": 0,
    "vouches for": 0,
    "for one in": 0,
}
"""Phrase to the number of times that it may occur; the glossary says what to write instead."""

VARIABLES_ONE_MAX = 4
"""Number of variables, loop variables and parameters with the name `one`; write `broker`, `row`, `segment`."""


def find(phrase: str, text: str) -> list[int]:
    """Return the line of each occurrence; a phrase may go over a line's end and into a name."""
    words = r"[\s_]+(?:#\s*)?".join(map(re.escape, phrase.split()))
    pattern = re.compile(rf"(?<![^\W_]){words}(?![^\W_])", re.IGNORECASE)
    return [text.count("\n", 0, match.start()) + 1 for match in pattern.finditer(text)]


@cache
def texts() -> dict[str, str]:
    files = [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*"))]
    return {
        p.relative_to(ROOT).as_posix(): p.read_text()
        for p in sorted(files)
        if p.suffix in (".md", ".py") and p not in LISTS_THEM
    }


@cache
def words_of() -> dict[str, set[str]]:
    return {path: set(re.findall(r"[^\W_]+", text.lower())) for path, text in texts().items()}


def places(phrase: str) -> list[str]:
    words = set(phrase.lower().split())
    return [
        f"{path}:{line}" for path, text in texts().items() if words <= words_of()[path] for line in find(phrase, text)
    ]


@pytest.mark.xdist_group("words")  # one worker reads the tree
@pytest.mark.parametrize(("phrase", "bound"), BOUNDS.items())
def test_a_replaced_phrase_does_not_return(phrase: str, bound: int) -> None:
    found = places(phrase)
    assert len(found) <= bound, f"{phrase!r}: {len(found)} times, {bound} allowed; {found[:20]}"


def variables_one(source: str) -> list[int]:
    """Return the line of each variable, loop variable and parameter with the name `one`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Name) and node.id == "one" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "one")
    ]


def test_variables_do_not_get_the_name_one() -> None:
    found = [
        f"{path}:{line}"
        for path, text in texts().items()
        if path.endswith(".py") and re.search(r"\bone\b\s*(?:[=:,)]|in\b)", text)
        for line in variables_one(text)
    ]
    assert len(found) <= VARIABLES_ONE_MAX, f"{len(found)} variables `one`; {found[:20]}"


def test_a_variable_one_is_found_where_it_gets_its_value() -> None:
    source = "def f(one):\n    return one\n[one for one in rows]\none: int = 1\n"
    assert sorted(variables_one(source)) == [1, 3, 4]


def test_a_phrase_is_found_in_text_in_names_and_over_a_line() -> None:
    text = "It is told.\ndef test_what_is_told_twice() -> None: ...\n# nothing but\n# for this; retold, tolds"
    assert find("told", text) == [1, 2]
    assert find("but for", text) == [3]
