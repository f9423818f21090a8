"""Whether a foreign broker accepts connections at one of its addresses, watched all the time.

Owns: one connection to the address, on which nothing is sent. Its end says at once that the broker has died, and then
a connection is tried every `PROBE_MS`. A connection that times out says nothing (a paused broker, a host behind a
firewall), and neither does one for which this process has no descriptor left: nothing is reported then.

What may fail: `on_up` raises ConfigError where a port cannot be bound; the task that runs the watch ends with it.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial

from ..host.seam import FrameHandler, Host, Link, Peer, Promise
from ..listeners import Address

CONNECT_TIMEOUT_MS = 10_000
PROBE_MS = 20
OWN_TROUBLE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
"""Errors of this machine, such as after thousands of connections of clients: the broker may be well."""


async def watch_upstream(
    host: Host,
    peer: Peer,
    upstream: Callable[[], Address],
    *,
    on_up: Callable[[], Awaitable[None]],
    on_down: Callable[[], None],
    watched: Promise[None],
) -> None:
    """Call `on_up` when the broker accepts connections and `on_down` when it refuses; `watched` after one attempt."""
    while True:
        ended: Promise[None] = host.tasks.promise()
        try:
            await host.network.connect(peer, *upstream(), partial(_watch_handler, ended), timeout_ms=CONNECT_TIMEOUT_MS)
        except TimeoutError:
            ended.set_result(None)
        except OSError as error:
            if error.errno not in OWN_TROUBLE:
                on_down()
            ended.set_result(None)
        else:
            await on_up()
        if not watched.done():
            watched.set_result(None)
        if ended.done():
            await host.tasks.sleep(PROBE_MS)
        await ended


class WatchHandler:
    """The FrameHandler of the connection on which nothing is sent."""

    __slots__ = ("_ended",)

    def __init__(self, ended: Promise[None]) -> None:
        self._ended = ended

    def frame_received(self, frame: bytes) -> None:
        """Nothing: the broker was asked nothing."""

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - the seam's parameter
        """The broker has closed the connection, or it has died."""
        if not self._ended.done():
            self._ended.set_result(None)


def _watch_handler(ended: Promise[None], _link: Link) -> FrameHandler:
    return WatchHandler(ended)
