"""The two ends of one relayed connection: each passes what it receives to the other.

Invariants: bytes pass unchanged and in order. A link is not read while more than `UNSENT_MOST` bytes wait on the other.
The end of one direction (FIN) passes after its bytes, and the other direction goes on. A reset passes at once.
"""

from __future__ import annotations

from ..host.seam import RawLink

UNSENT_MOST = 1024 * 1024
CLOSED_HERE = "closed here"


class RelayedEnd:
    """The handler of one of the two links."""

    __slots__ = ("_ended", "_held", "_other", "_reset", "link")

    def __init__(self, link: RawLink, other: RawLink | None = None) -> None:
        """Without the other link nothing may be received yet: pause `link`, and call `connected`."""
        self.link = link
        self._other = other
        self._ended = self._reset = self._held = False

    def connected(self, other: RawLink) -> None:
        """Take the other link, and read this one."""
        self._other = other
        if self._reset:
            other.close(reset=True)
        else:
            self.link.resume()

    def frame_received(self, frame: bytes) -> None:
        """Pass the bytes of one read."""
        other = self._other
        assert other is not None, "a link is not read before the other is connected"
        other.send((frame,))
        if other.unsent_bytes > UNSENT_MOST and not self._held:
            self._held = True
            self.link.pause()
            other.when_unsent_below(UNSENT_MOST // 4, self._resume)

    def _resume(self) -> None:
        self._held = False
        self.link.resume()

    def input_ended(self) -> None:
        """Pass the end of this direction."""
        self._ended = True
        if self._other is not None:
            self._other.finish_sending()

    def link_closed(self, reason: str) -> None:
        """Reset the other link, unless both directions came to their end."""
        if reason == CLOSED_HERE:
            return
        self._reset = True
        if self._other is not None:
            self._other.close(reset=True)
