"""Phrases that docs/glossary.md replaces do not return: the tree may hold at most so many of each.

A bound is only lowered, never raised: a change that removes a phrase lowers its bound, until it is 0.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "cluster", "docs", "faults", "harness", "package", "tests")
LISTS_THEM = (Path(__file__), ROOT / "docs" / "glossary.md")
BOUNDS = {
    "told": 469,
    "anew": 60,
    "whoever": 31,
    "nobody": 149,
    "somebody": 21,
    "everybody": 13,
    "but for": 12,
    "of now": 7,
    "of a moment": 0,
    "under way": 48,
    "stands still": 24,
    "knows of": 9,
    "hears of": 10,
    "heard of": 11,
    "vouches for": 7,
    "for one in": 151,
}
"""Phrase to the number of times that it may occur; the glossary says what to write instead."""


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


def places(phrase: str) -> list[str]:
    return [f"{path}:{line}" for path, text in texts().items() for line in find(phrase, text)]


@pytest.mark.parametrize(("phrase", "bound"), BOUNDS.items())
def test_a_replaced_phrase_does_not_return(phrase: str, bound: int) -> None:
    found = places(phrase)
    assert len(found) <= bound, f"{phrase!r}: {len(found)} times, {bound} allowed; {found[:20]}"


def test_a_phrase_is_found_in_text_in_names_and_over_a_line() -> None:
    text = "It is told.\ndef test_what_is_told_twice() -> None: ...\n# nothing but\n# for this; retold, tolds"
    assert find("told", text) == [1, 2]
    assert find("but for", text) == [3]
