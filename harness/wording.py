"""Small parts of sentences that several messages share. It imports nothing, so that every room may use it."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return "1 record" or "1,031 records"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def times(count: int) -> str:
    """Return "once" or "2 times"."""
    return "once" if count == 1 else f"{count} times"
