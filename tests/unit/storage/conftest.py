"""Tests leave logs open, as a crash does; their descriptors are given back after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from storage_host import close_all


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    close_all()
