"""The mark of tests that only `make long` runs: those with a JVM of their own, and searches over seeds."""

from __future__ import annotations

import os

import pytest

long_run = pytest.mark.skipif(
    os.environ.get("HARROW_LONG") != "1",
    reason="HARROW_LONG is not 1: `make long` runs tests with a JVM of their own and searches over seeds",
)
