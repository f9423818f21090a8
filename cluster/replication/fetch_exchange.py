"""Between a follower's link and its fetcher: a response is processed in the turn of the loop in which it arrives.

Owns: `FetchExchange`, to which the link gives the responses of one connection's fetches, one after the other.
Its `ended` promise is resolved once: when the fetcher's loop itself has to go on, by an error of the link, or by an
exception while a response was processed. After that the exchange takes no more responses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..host.seam import Promise
    from ..network.peers import PeerClient
    from .followed_partition import FollowedPartition


class FetchesEnded(NamedTuple):
    """Why responses do not send the next fetch any more."""

    error: int
    out_of_range: list[FollowedPartition]


class FetchExchange:
    """The receiver of one connection's fetch responses."""

    __slots__ = ("_answered", "_client", "ended")

    def __init__(
        self,
        client: PeerClient,
        ended: Promise[FetchesEnded],
        answered: Callable[[FetchExchange, PeerClient, memoryview], None],
    ) -> None:
        self._client = client
        self._answered = answered
        self.ended = ended

    def done(self) -> bool:
        """True when the fetcher's loop goes on without this exchange."""
        return self.ended.done()

    def set_result(self, result: memoryview, /) -> None:
        """A response came; an exception while it is processed is raised in the fetcher's loop."""
        try:
            self._answered(self, self._client, result)
        except Exception as error:  # raised again where the loop awaits `ended`
            self.set_exception(error)

    def set_exception(self, error: BaseException, /) -> None:
        """No response will come."""
        if not self.ended.done():
            self.ended.set_exception(error)
