"""One end of a simulated connection: `Link` of the seam.

An accepted link is `unknown` to its handler until the handler names its peer. Link rules apply to it from the start,
because the fabric knows both machines.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...errors import WireError
from ..seam import FrameHandler, Part, Peer, bytes_of
from .after_delivery import Delivery
from .fabric import RESET_BY_PEER, Port, Way
from .loop import Life

CLOSED_BY_PEER = "closed by the peer"


@dataclass(slots=True, kw_only=True, eq=False)
class SimLinkContext:
    """State that all links of one incarnation share."""

    port: Port
    life: Life
    delivery: Delivery
    log: Callable[[str, str], None]
    links: dict[SimLink, None] = field(default_factory=dict["SimLink", None])
    """The open links, in the order of their creation."""


class SimLink:
    """One end of a connection; `Link` of the seam."""

    __slots__ = (
        "_context", "_handler", "_paused", "closed", "inward", "life", "max_frame_bytes", "outward", "peer",
        "port",
    )  # fmt: skip

    def __init__(
        self, context: SimLinkContext, peer: Peer, inward: Way, outward: Way, max_frame_bytes: int
    ) -> None:
        self._context = context
        self._handler: FrameHandler | None = None
        self._paused = False
        self.peer = peer
        self.port: Port = context.port
        self.life: Life = context.life
        self.inward = inward
        self.outward = outward
        self.max_frame_bytes = max_frame_bytes
        self.closed = False
        inward.target = outward.source = self
        context.links[self] = None

    def start(self, handler: FrameHandler) -> None:
        """Start to deliver frames."""
        self._handler = handler
        self.arrived()

    # ------------------------------------------------------------------ seam

    @property
    def unsent_bytes(self) -> int:
        """Bytes that a rule holds back on this link."""
        return self.outward.held_bytes

    def send(self, parts: Sequence[Part]) -> None:
        """Queue one frame; on a closed link nothing happens."""
        if not self.closed:
            self.outward.push(joined(parts))

    def close(self, *, reset: bool = False) -> None:
        """End the link; with `reset` at once, and frames in flight are lost."""
        if self.closed:
            return
        self._end("reset here" if reset else "closed here")
        if reset:
            self.outward.queue.clear()
        self.outward.push(b"", RESET_BY_PEER if reset else CLOSED_BY_PEER)

    def pause(self) -> None:
        """Deliver no more frames until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Deliver frames again, from the next turn of the loop on."""
        if self._paused:
            self._paused = False
            self.inward.fabric.loop.call_soon(self.life, self.arrived)

    # -------------------------------------------------------------- arrivals

    def arrived(self) -> None:
        """Deliver the frames that have arrived, as far as the handler and the rules allow."""
        self._context.delivery.run(self._arrived)

    def _arrived(self) -> None:
        way = self.inward
        queue, loop = way.queue, way.fabric.loop
        while (
            queue
            and queue[0].arrives_ns <= loop.now_ns
            and not (way.blocked or self._paused)
            and (self._handler is not None or self.closed)
        ):
            item = queue.popleft()
            if item.end:
                self._peer_ended(item.end)
                return
            if not self.closed:
                self._deliver(item.frame)
                if self.life.paused:  # a failpoint stopped it in the middle
                    loop.call_soon(self.life, self.arrived)
                    return

    def _deliver(self, frame: bytes) -> None:
        handler = self._handler
        assert handler is not None
        if not 0 < len(frame) <= self.max_frame_bytes:
            most = self.max_frame_bytes
            self._refuse("warning", f"a frame of {len(frame)} bytes where 1 to {most} are allowed")
            return
        try:
            handler.frame_received(frame)
        except WireError as error:
            self._refuse("warning", str(error))
        except Exception as error:  # a handler's bug ends its link, not the broker
            self._refuse("error", f"handler failed\n{''.join(traceback.format_exception(error))}")

    def _refuse(self, level: str, reason: str) -> None:
        self._context.log(level, f"closing the link to {self.peer}: {reason}")
        if not self.closed:
            self._end(reason)
            self.outward.push(b"", CLOSED_BY_PEER)

    # ----------------------------------------------------------------- ending

    def _peer_ended(self, reason: str) -> None:
        self.inward.fabric.ended(self.inward)
        if not self.closed:
            # the peer reads no more frames; a reset from outside still arrives at both ends
            way = self.outward
            way.queue = deque(item for item in way.queue if item.end)
            self._end(reason)

    def _end(self, reason: str) -> None:
        """Close this end; the handler's `link_closed` runs once, in a later turn."""
        self.closed = True
        self._context.links.pop(self, None)
        if self._handler is not None:
            self.inward.fabric.loop.call_soon(self.life, self._handler.link_closed, reason)

    def die(self, *, silently: bool) -> None:
        """The process was killed, so its kernel closes the connection; `silently` (power loss): nothing is sent."""
        if self.closed:
            return
        self.closed = True
        self._context.links.pop(self, None)
        if silently:
            self.outward.queue.clear()
            self.inward.fabric.half_open.append(self.outward)
        else:
            self.outward.push(b"", CLOSED_BY_PEER)

    def break_off(self) -> None:
        """Reset the connection from outside: both ends lose the frames in flight."""
        for way in (self.inward, self.outward):
            way.queue.clear()
            way.push(b"", RESET_BY_PEER)


def joined(parts: Sequence[Part]) -> bytes:
    """One copy of a frame's parts, file regions included."""
    return b"".join(map(bytes_of, parts))
