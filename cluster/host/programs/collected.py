"""`CollectedNumbers`: what `os.urandom` is in a process before it runs simulated programs."""

from __future__ import annotations

import random


class CollectedNumbers:
    """Bytes that are the same in each process; a module that imported `os.urandom` by its name holds this object."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # noqa: S311 - repeatable, not secret

    def __call__(self, size: int, /) -> bytes:
        """Return so many bytes."""
        assert size >= 0, f"{size} bytes"
        return self._random.randbytes(size)
