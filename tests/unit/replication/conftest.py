"""Ends what a simulated test left running: a coroutine must not outlive its loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .sim_host import OPEN


@pytest.fixture(autouse=True)
def close_simulated_loops() -> Iterator[None]:
    """Close every virtual loop that the test made."""
    yield
    while OPEN:
        OPEN.pop().close()
