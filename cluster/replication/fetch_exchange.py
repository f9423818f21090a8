"""Between a follower's link and its fetcher: an answer is taken in by the turn in which it comes.

Owns: `Exchange`, to which the link gives the answers of one connection's fetches, one after the other. Its
`ended` is settled once: when the fetcher's loop has to go on itself, by an error of the link, or by whatever
went wrong with an answer. After that it wants nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..host.seam import Promise
    from ..network.peers import PeerClient
    from .followed import Followed


class Ended(NamedTuple):
    """Why the answers stopped sending fetches."""

    error: int
    out_of_range: list[Followed]


class Exchange:
    """Where the link puts the answers of one connection's fetches: straight into the fetcher."""

    __slots__ = ("_answered", "_client", "ended")

    def __init__(
        self,
        client: PeerClient,
        ended: Promise[Ended],
        answered: Callable[[Exchange, PeerClient, memoryview], None],
    ) -> None:
        self._client = client
        self._answered = answered
        self.ended = ended

    def done(self) -> bool:
        """True when the loop goes on without it."""
        return self.ended.done()

    def set_result(self, result: memoryview, /) -> None:
        """An answer came; what goes wrong with it is the loop's."""
        try:
            self._answered(self, self._client, result)
        except Exception as error:  # raised again where the loop awaits it
            self.set_exception(error)

    def set_exception(self, error: BaseException, /) -> None:
        """There will be no answer."""
        if not self.ended.done():
            self.ended.set_exception(error)
