"""The bug: a dead letter does not say why the input failed."""

from __future__ import annotations

from dataclasses import replace

from retry_queue.records import REASON, Record
from retry_queue.worker import Attempts


def plant() -> None:
    """Remove the header."""
    dead = Attempts.dead

    def without_reason(self: Attempts, record: Record, attempts: int, reason: str) -> Record:
        letter = dead(self, record, attempts, reason)
        return replace(letter, headers=tuple(it for it in letter.headers if it[0] != REASON))

    Attempts.dead = without_reason
