"""Banned words and the variable name `one`: their number in each folder may only fall.

`docs/glossary.md` lists the phrases that are not used. This test counts them in docstrings and comments, counts the
assignments to a variable `one`, and compares the counts with `tests/tidy_words_allowed.json`. A folder without an entry
must have none. After a rewrite, write the new, lower counts with

    python tests/test_tidy_words.py
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("cluster", "faults", "harness", "package", "tests", "benchmarks")
ALLOWED = ROOT / "tests" / "tidy_words_allowed.json"
ONE = "variable `one`"
PHRASES = {
    "told": "receives, reports, returns",
    "anew": "again; rebuilds",
    "whoever": "the caller, the client",
    "nobody": "name the component",
    "somebody": "name the component",
    "but for": "except",
    "of now": "current",
    "for it may": "because the … may",
    "knows of": "stores, received",
    "under way": "in progress, in flight",
    "all the while": "meanwhile, until",
}
"""Phrase -> what to write in its place."""
PATTERNS = {
    phrase: re.compile(rf"\b{phrase.replace(' ', chr(92) + 's+')}\b", re.IGNORECASE)
    for phrase in PHRASES
}

Counts = dict[str, dict[str, int]]
"""Folder -> phrase -> count."""


def prose(source: str) -> Iterator[str]:
    """Yields every comment and every docstring, attribute docstrings included."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text: object = node.value.value
            if isinstance(text, str):
                yield text


def assignments_to_one(source: str) -> int:
    """Counts the variables, loop variables and parameters of the name `one`."""
    return sum(
        (isinstance(node, ast.Name) and node.id == "one" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "one")
        for node in ast.walk(ast.parse(source))
    )


def folder_of(path: Path) -> str:
    """Returns the folder that a file is counted in: at most two levels below the root."""
    return "/".join(path.relative_to(ROOT).parent.parts[:2])


def counts_in_the_tree() -> Counts:
    """Counts the phrases and the variables in every folder; a folder and a phrase without any are absent."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        if path == Path(__file__).resolve():
            continue
        source = path.read_text()
        counter = found.setdefault(folder_of(path), Counter())
        for text in prose(source):
            for phrase, pattern in PATTERNS.items():
                counter[phrase] += len(pattern.findall(text))
        counter[ONE] += assignments_to_one(source)
    return {
        folder: {phrase: count for phrase, count in sorted(counter.items()) if count}
        for folder, counter in sorted(found.items())
        if counter.total()
    }


FOUND = counts_in_the_tree()


@pytest.mark.parametrize("phrase", [*PHRASES, ONE])
def test_no_folder_has_more_of_a_banned_word_than_before(phrase: str) -> None:
    allowed: Counts = json.loads(ALLOWED.read_text())
    more = {
        folder: f"{counts[phrase]} instead of at most {allowed.get(folder, {}).get(phrase, 0)}"
        for folder, counts in FOUND.items()
        if counts.get(phrase, 0) > allowed.get(folder, {}).get(phrase, 0)
    }
    instead = PHRASES.get(phrase, "name the thing: broker, row, segment, partition")
    assert not more, f"{phrase}: write {instead}; found {more}"


def test_phrases_are_found_in_comments_and_docstrings_only() -> None:
    source = (
        'def f(one):\n    """It is told\n    but\n    for this."""\n'
        "    # whoever asks\n    told = 'anew'\n    return [one for one in told]\n"
    )
    texts = list(prose(source))
    hits = [
        phrase for phrase, pattern in PATTERNS.items() for text in texts if pattern.search(text)
    ]
    assert sorted(hits) == ["but for", "told", "whoever"]
    assert assignments_to_one(source) == 2


if __name__ == "__main__":
    ALLOWED.write_text(json.dumps(FOUND, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{ALLOWED} written\n")
