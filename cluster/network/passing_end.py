"""One end of a connection that is passed on: what this link receives is sent on the other link (K2).

Owns: the way of the bytes, and the backpressure. A link is not read while more than `unsent_most` bytes wait on the
other. How a connection begins and ends differs between frames (`proxy/peer_links.py`) and bytes (`relay/process.py`).
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ..host.seam import Link

LinkT = TypeVar("LinkT", bound=Link)


class PassingEnd(Generic[LinkT]):
    """The part of a link's handler that passes what the link receives to `other`."""

    __slots__ = ("_held", "_other", "_unsent_most", "link")

    def __init__(self, link: LinkT, other: LinkT | None, unsent_most: int) -> None:
        """Without the other link nothing may be received yet: pause `link`."""
        self.link = link
        self._other: LinkT | None = other
        self._unsent_most = unsent_most
        self._held = False

    def frame_received(self, frame: bytes) -> None:
        """Pass one frame, or the bytes of one read."""
        other = self._other
        assert other is not None, "a link is not read before the other is connected"
        other.send((frame,))
        if other.unsent_bytes > self._unsent_most and not self._held:
            self._held = True
            self.link.pause()
            other.when_unsent_below(self._unsent_most // 4, self._resume)

    def _resume(self) -> None:
        self._held = False
        self.link.resume()
