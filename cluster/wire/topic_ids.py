"""Topic ids (KIP-516): drawn, written as text and read back.

Owns: the one import of `uuid` in the rooms; ids are drawn from the host's random, never from the machine's.
The text is Kafka's: URL-safe base64 without padding, 22 characters; a text never begins with a dash, so
that tools do not take it for an option (Kafka's Uuid.randomUuid).
May fail: `topic_id_of` with ValueError for a text that is none.
"""

from __future__ import annotations

import base64
import random
from uuid import UUID

__all__ = ["UUID", "draw_topic_id", "text_of", "topic_id_of"]

_RESERVED_BELOW = 100
_BYTES = 16


def draw_topic_id(source: random.Random) -> UUID:
    """A fresh version 4 UUID from `source`."""
    while True:
        drawn = UUID(int=source.getrandbits(128), version=4)
        if drawn.int >= _RESERVED_BELOW and not text_of(drawn).startswith("-"):
            return drawn


def text_of(topic_id: UUID) -> str:
    """The id as Kafka writes it in the registry and in `partition.metadata`."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_of(text: str) -> UUID:
    """The id that `text_of` wrote; ValueError for anything else."""
    raw = base64.urlsafe_b64decode(text + "==")
    if len(raw) != _BYTES:
        raise ValueError(f"{text!r} is not a topic id")
    return UUID(bytes=raw)
