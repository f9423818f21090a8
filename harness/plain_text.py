"""Harrow's text on a terminal that cannot show all of it, such as with LANG=C or PYTHONIOENCODING=ascii.

Harrow's words are ASCII, except a few signs: `·` between parts of a line, `×` before a count, `…` for what was left
out. Where a stream cannot encode them, each is written as its ASCII form, and any other character as an escape, so that
no line is lost and none is escaped as a whole, which is what pytest does. A stream of UTF-8 is not touched.
"""

from __future__ import annotations

import codecs
import io
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNS = {"·": "-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->", "│": "|", "─": "-", "✓": "ok"}
HANDLER = "harrow.plain"
ESCAPES = range(0xDC80, 0xDD00)
"""Bytes of a file name that is no text (`surrogateescape`)."""
REPLACED = ("strict", "surrogateescape")
"""Error handlers that a stream has by default; another one, as in PYTHONIOENCODING=ascii:replace, stays."""


def write_plainly(stream: TextIO) -> Callable[[], None]:
    """Let a stream write Harrow's signs as ASCII where it cannot encode them; return what undoes that."""
    if not isinstance(stream, io.TextIOWrapper) or stream.errors not in REPLACED:
        return _nothing
    try:
        "".join(SIGNS).encode(stream.encoding)
    except UnicodeEncodeError:
        before = stream.errors
        stream.reconfigure(errors=HANDLER)
        return lambda: None if stream.closed else stream.reconfigure(errors=before)
    return _nothing


def encoded(text: str, stream: TextIO | None) -> bytes:
    """Return the bytes of a text in the encoding of a stream."""
    return text.encode(getattr(stream, "encoding", None) or "utf-8", HANDLER)


def _nothing() -> None:
    pass


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if ord(character) in ESCAPES:
        return bytes([ord(character) - 0xDC00]), error.start + 1
    return SIGNS.get(character, character.encode("ascii", "backslashreplace").decode()), error.start + 1


codecs.register_error(HANDLER, _plain)
