"""What only `make long` runs: tests with a JVM of their own, and searches with more seeds and examples.

A search that costs seconds has two sizes. That of the suite finds a rule that is broken in general, each run with
other examples. That of `make long` looks for what needs a rare combination.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

Item = TypeVar("Item")
LONG = os.environ.get("HARROW_LONG") == "1"

long_run = pytest.mark.skipif(
    not LONG, reason="HARROW_LONG is not 1: `make long` runs tests with a JVM of their own and searches over seeds"
)


def seeds(suite: range, long: range) -> range:
    """Return the seeds of a search: `suite` in `make test`, `long` in `make long`."""
    return long if LONG else suite


def some(items: Sequence[Item], suite: int) -> list[Item]:
    """Return the items of a search: `suite` of them, evenly spaced, in `make test`, all of them in `make long`."""
    return list(items) if LONG else [items[at * len(items) // suite] for at in range(suite)]


def examples(suite: int, long: int) -> settings:
    """Return the settings of a property test with so many examples in `make test` and in `make long`."""
    return settings(max_examples=long if LONG else suite)
