"""Prints values as Java does, where Python's output differs.

Owns: UTF-8 with replacement, `OptionalLong`, and Jackson's compact JSON. Bytes are base64 in JSON, as in Kafka's
generated converters; the order of keys is the order of the fields.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence

Json = None | int | str | bytes | Sequence["Json"] | Mapping[str, "Json"]
"""The value of a field of a message."""

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT = "\ufffd".encode()
_ESCAPE = re.compile(r"\\(?:u00[0-9a-f]{2}|.)")


def text(data: bytes) -> str:
    """Decodes as Java's `new String(data, UTF_8)`: a replacement character for each malformed sequence.

    A surrogate that is encoded in three bytes is a single malformed sequence for Java and three for Python.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def optional_long(value: int) -> str:
    """Formats as Java's `OptionalLong.toString`; a negative number stands for an empty value."""
    return f"OptionalLong[{value}]" if value >= 0 else "OptionalLong.empty"


def json_text(value: Json) -> str:
    """Formats as Jackson's `ObjectNode.toString`: no spaces, no escapes above ASCII, upper-case control escapes."""
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_base64)
    return _ESCAPE.sub(_capitals, plain) if "\\u00" in plain else plain


def _capitals(escape: re.Match[str]) -> str:
    return "\\u" + escape[0][2:].upper() if escape[0][1] == "u" else escape[0]


def _base64(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be a value of a message")
