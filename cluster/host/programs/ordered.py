"""Futures and tasks of asyncio that a set keeps in the same order in each run.

The hash of asyncio's own is their address in memory, so that the order in which `asyncio.wait` returns them, or a set
has them, differs between two processes. The hash of these is their number in the order of creation.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


class OrderedFuture(asyncio.Future[T]):
    """A future whose hash is its number."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class OrderedTask(asyncio.Task[T]):
    """A task whose hash is its number."""

    def __init__(self, number: int, coroutine: Any, **options: Any) -> None:
        self._number = number  # asyncio hashes a task while it makes it
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number
