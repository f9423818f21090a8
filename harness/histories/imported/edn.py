"""A reader of EDN, as far as the histories of Jepsen use it: nil, booleans, numbers, texts, keywords and collections.

`read_edn` returns the top-level forms with the line on which each begins. A keyword or a symbol becomes its name as a
text (`:ok` is "ok"), a vector, a list or a set becomes a list, a map a dict (a vector as key becomes a tuple), a ratio
a float. A tag (`#jepsen.history.Op`) is passed over and its form is taken. `#_` and comments are passed over.

A reader of its own, because an error must name the line, which the libraries for EDN do not say. Format:
https://github.com/edn-format/edn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from .errors import import_error

TOKEN = re.compile(
    r"""(?P<space>[\s,]+|;[^\n]*)
    |(?P<open>\#\{|[(\[{])
    |(?P<close>[)\]}])
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<discard>\#_)
    |(?P<tag>\#[A-Za-z][\w.*+!?$%&=<>/-]*)
    |(?P<char>\\(?:newline|return|space|tab|u[0-9a-fA-F]{4}|.))
    |(?P<atom>[^\s,;()\[\]{}"\\]+)""",
    re.VERBOSE | re.DOTALL,
)
CLOSES = {"(": ")", "[": "]", "{": "}", "#{": "}"}
INTEGER = re.compile(r"[+-]?\d+N?")
FLOAT = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
RATIO = re.compile(r"([+-]?\d+)/(\d+)")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
CHARACTERS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t"}
WORDS: dict[str, Any] = {"nil": None, "true": True, "false": False}


class Form(NamedTuple):
    """A top-level form and its first line."""

    line: int
    value: Any


class _Open(NamedTuple):
    """A collection that is not closed yet."""

    bracket: str
    line: int
    items: list[Any]


def read_edn(text: str, source: str) -> Iterator[Form]:
    """Yield the top-level forms. `source` is the file's name, for errors. Raises ImportedHistoryError with the line."""
    opened: list[_Open] = []
    discards: list[int] = [0]
    at, line, began = 0, 1, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise import_error(source, line, f"{text[at : at + 20]!r} is no EDN", REMEDY)
        kind, token = match.lastgroup, match.group()
        here, at = line, match.end()
        line += token.count("\n")
        if kind in ("space", "tag"):
            continue
        if kind == "discard":
            discards[-1] += 1
            continue
        if kind == "open":
            began = began if opened else here
            opened.append(_Open(token, here, []))
            discards.append(0)
            continue
        if kind == "close":
            value = _closed(opened, token, source, here)
            discards.pop()
        else:
            began = began if opened else here
            value = _atom(str(kind), token)
        if discards[-1]:
            discards[-1] -= 1
        elif opened:
            opened[-1].items.append(value)
        else:
            yield Form(began, value)
    if opened:
        first = opened[-1]
        raise import_error(source, first.line, f"{first.bracket!r} is never closed", "the file may be cut off")


REMEDY = "expected one map an operation, such as {:type :ok, :f :poll, :process 0, :value [[:poll {}]]}"


def _closed(opened: list[_Open], token: str, source: str, line: int) -> Any:
    if not opened or CLOSES[opened[-1].bracket] != token:
        wanted = CLOSES[opened[-1].bracket] if opened else "nothing"
        raise import_error(source, line, f"{token!r} closes nothing, expected {wanted}", REMEDY)
    bracket, begun, items = opened.pop()
    if bracket != "{":
        return items
    if len(items) % 2:
        raise import_error(source, begun, "a map has a key without a value", REMEDY)
    return {_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _key(value: Any) -> Any:
    """Return a value that can be the key of a dict."""
    if isinstance(value, list):
        return tuple(_key(item) for item in cast("Sequence[Any]", value))
    return str(cast("object", value)) if isinstance(value, dict) else value


def _atom(kind: str, token: str) -> Any:
    if kind == "text":
        return ESCAPE.sub(_unescaped, token[1:-1])
    if kind == "char":
        name = token[1:]
        return CHARACTERS.get(name) or (chr(int(name[1:], 16)) if len(name) == 5 else name)
    if token in WORDS:
        return WORDS[token]
    if INTEGER.fullmatch(token):
        return int(token.rstrip("N"))
    if FLOAT.fullmatch(token):
        return float(token.rstrip("M"))
    ratio = RATIO.fullmatch(token)
    if ratio:
        return int(ratio[1]) / int(ratio[2])
    return token.lstrip(":")


def _unescaped(match: re.Match[str]) -> str:
    name = match[1]
    return chr(int(name[1:], 16)) if len(name) == 5 else ESCAPED.get(name, name)
