"""The time of the retry queue: milliseconds since the epoch, which neither jump nor run backwards."""

from __future__ import annotations

import time


class SteadyClock:
    """Reads the wall clock once, and counts with the monotonic clock from there.

    A correction of the wall clock by an hour would make everything that waits due at once, or late by an hour.
    """

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> int:
        """Return the time."""
        return int(self._offset_ms + time.monotonic() * 1000)
