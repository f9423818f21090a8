"""Links without frames: connections that carry the bytes of any protocol, for a relay in front of any service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .network import FrameHandler, Link, Peer


class RawLink(Link, Protocol):
    """One connection; `send` queues the bytes of its parts, without a size before them."""

    def finish_sending(self) -> None:
        """Send FIN after everything that was queued; the link still receives. Both directions ended: it closes."""
        ...


class RawHandler(FrameHandler, Protocol):
    """Takes what a raw link receives; `frame_received` gets the bytes of one read."""

    def input_ended(self) -> None:
        """The peer sends no more (FIN); it may still read. Called at most once, after everything that was read."""
        ...


MakeRawHandler = Callable[[RawLink], RawHandler]


class RawNetwork(Protocol):
    """The links of a host that runs a relay."""

    def listen_raw(self, name: str, make_handler: MakeRawHandler) -> None:
        """Serve on this host's listener `name`."""
        ...

    async def connect_raw(
        self, peer: Peer, host: str, port: int, make_handler: MakeRawHandler, *, timeout_ms: int
    ) -> RawLink:
        """Open a link to `peer`; OSError or TimeoutError when no process answers."""
        ...
