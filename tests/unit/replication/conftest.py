"""Closes the simulations of a test: a coroutine must not outlive its event loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .simulation import OPEN


@pytest.fixture(autouse=True)
def close_simulations() -> Iterator[None]:
    """Close every simulation that the test created; each must have ended without an unhandled exception."""
    yield
    while OPEN:
        OPEN.pop().close()
