"""The two ends of one relayed connection: each passes what it receives to the other.

Invariants: bytes pass unchanged and in order. A link is not read while more than `UNSENT_MOST` bytes wait on the other.
The end of one direction (FIN) passes after its bytes, and the other direction goes on. A reset passes at once.
"""

from __future__ import annotations

from ..host.seam import RawLink
from ..network.passing_end import PassingEnd

UNSENT_MOST = 1024 * 1024
CLOSED_HERE = "closed here"


class RelayedEnd(PassingEnd[RawLink]):
    """The handler of one of the two links."""

    __slots__ = ("_reset",)

    def __init__(self, link: RawLink, other: RawLink | None = None) -> None:
        """Without the other link nothing may be received yet: pause `link`, and call `connected`."""
        super().__init__(link, other, UNSENT_MOST)
        self._reset = False

    def connected(self, other: RawLink) -> None:
        """Take the other link, and read this one."""
        self._other = other
        if self._reset:
            other.close(reset=True)
        else:
            self.link.resume()

    def input_ended(self) -> None:
        """Pass the end of this direction."""
        if self._other is not None:
            self._other.finish_sending()

    def link_closed(self, reason: str) -> None:
        """Reset the other link, unless both directions came to their end."""
        if reason == CLOSED_HERE:
            return
        self._reset = True
        if self._other is not None:
            self._other.close(reset=True)
