"""The code blocks of a Markdown page. markdown-it-py finds them; this module knows what they are for.

A reader sees what a block is: the first line of a file is a comment with its name (`# shop.py`), and in a `console`
block a command begins with `$`. A block that cannot run has a comment directly before it, which says why:

    <!-- not run: needs a Spark cluster -->
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

NOT_RUN = re.compile(r"<!-- not run: (?P<reason>\S.*?) -->\s*")
COMMENT = re.compile(r"<!--\s*not[ -]run.*", re.DOTALL)
NAMED = re.compile(r"# (?P<name>[\w./-]+\.(?:py|ini|toml|ya?ml))\n")
IS_TEST = re.compile(r"^(?:(?:async )?def test_|class Test)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a console block with the lines of output that the page shows for it."""

    text: str
    shown: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The command's words, without a comment at its end."""
        return shlex.split(self.text, comments=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One code block."""

    page: str
    line: int
    """Of its first line of code, from 1 up."""
    language: str
    code: str
    not_run: str | None = None
    """Why the page says that it cannot run."""

    @property
    def place(self) -> str:
        """Where it is, for messages: `docs/faults.md:12`."""
        return f"{self.page}:{self.line}"

    @property
    def name(self) -> str | None:
        """The file that the block is, by its first line."""
        named = NAMED.match(self.code)
        return None if named is None else named["name"]

    @property
    def has_tests(self) -> bool:
        """Whether pytest finds a test in it."""
        return self.language == "python" and IS_TEST.search(self.code) is not None

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block. AssertionError where output comes before the first command."""
        found: list[tuple[str, list[str]]] = []
        for line in self.code.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip():
                assert found, f"{self.place}: a console block begins with a command: $ …"
                found[-1][1].append(line)
        return [Command(text=text, shown=tuple(shown)) for text, shown in found]


def read_blocks(text: str, page: str) -> list[Block]:
    """Return the code blocks of a page. AssertionError for a `not run` comment without a reason or without a block."""
    blocks: list[Block] = []
    reason: str | None = None
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "html_block" and COMMENT.match(token.content):
            match = NOT_RUN.fullmatch(token.content)
            assert match, f"{page}: {token.content.strip()}: expected <!-- not run: the reason -->"
            reason = match["reason"]
        elif token.type == "fence":
            line = (token.map or [0])[0] + 2
            blocks.append(Block(page=page, line=line, language=token.info.strip(), code=token.content, not_run=reason))
            reason = None
        else:
            assert reason is None, f"{page}: no code block follows <!-- not run: {reason} -->"
    return blocks


def blocks_of(page: Path, root: Path) -> list[Block]:
    """Return the code blocks of a file."""
    return read_blocks(page.read_text(encoding="utf-8"), page.relative_to(root).as_posix())
