"""Texts of untrusted bytes: what is not UTF-8 is substituted, as in Apache Kafka, and never refused.

Owns: `text_of_bytes`. Clients in C and Go send texts that are not UTF-8, most of all the metadata of committed offsets.
Kafka reads each text with Java's `new String(bytes, UTF_8)`: every malformed sequence becomes U+FFFD, so such a topic
name is an invalid name and such metadata is stored substituted.

A valid text costs what `bytes.decode` costs. The result for other bytes is Java's: Python replaces the same sequences,
except that Java takes a surrogate in three bytes (0xED, 0xA0 to 0xBF, a continuation byte) for one malformed sequence.
"""

from __future__ import annotations

import re

__all__ = ["text_of_bytes"]

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_MALFORMED = b"\xff"


def text_of_bytes(raw: bytes) -> str:
    """Return the text in these bytes, with U+FFFD for each malformed sequence."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_MALFORMED, raw).decode(errors="replace")
