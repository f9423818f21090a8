"""Topic ids (KIP-516): creates them, writes them as text and parses the text.

Owns: the only import of `uuid` in broker code. Ids come from the host's random numbers, never from the machine's.
The text has Kafka's form: URL-safe base64 without padding, 22 characters. A new id's text never begins with a dash,
so that command line tools do not take it for an option (Kafka's `Uuid.randomUuid`).
`topic_id_of` raises ValueError for a text that is not a topic id.
"""

from __future__ import annotations

import base64
import random
from uuid import UUID

__all__ = ["UUID", "draw_topic_id", "text_of", "topic_id_of"]

_RESERVED_BELOW = 100
_BYTES = 16


def draw_topic_id(source: random.Random) -> UUID:
    """Returns a new version 4 UUID from the random numbers of `source`."""
    while True:
        drawn = UUID(int=source.getrandbits(128), version=4)
        if drawn.int >= _RESERVED_BELOW and not text_of(drawn).startswith("-"):
            return drawn


def text_of(topic_id: UUID) -> str:
    """Returns the id as Kafka writes it in the registry and in `partition.metadata`."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_of(text: str) -> UUID:
    """Parses the text that `text_of` writes; ValueError for anything else."""
    raw = base64.urlsafe_b64decode(text + "==")
    if len(raw) != _BYTES:
        raise ValueError(f"{text!r} is not a topic id: it must be base64 text of {_BYTES} bytes")
    return UUID(bytes=raw)
