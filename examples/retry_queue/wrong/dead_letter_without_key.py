"""The bug: a dead letter has no key, so that a replay sends it to another partition than its input."""

from __future__ import annotations

from dataclasses import replace

from retry_queue.records import Record
from retry_queue.worker import Attempts


def plant() -> None:
    """Remove the key."""
    dead = Attempts.dead

    def without_key(self: Attempts, record: Record, attempts: int, reason: str) -> Record:
        return replace(dead(self, record, attempts, reason), key=None)

    Attempts.dead = without_key
