"""The bug: the worker counts the attempts of an input in memory. After each restart it begins with the first one."""

from __future__ import annotations

from collections import Counter

from retry_queue.records import Record
from retry_queue.worker import Attempts


def plant() -> None:
    """Count here, not in the header."""
    counts: Counter[tuple[str, int, int]] = Counter()

    def made(self: Attempts, record: Record) -> int:
        del self
        counts[record.origin] += 1
        return counts[record.origin] - 1

    Attempts.made = made
