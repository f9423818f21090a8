"""One end of a simulated connection: `Link` of the seam.

The peer of an accepted link is `unknown` until the handler names it. Link rules apply to the link from the start,
because the fabric stores both machines.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...errors import WireError
from ..seam import CLOSED_BY_PEER, FrameHandler, Part, Peer, bytes_of
from .after_delivery import DeferredCalls
from .fabric import RESET_BY_PEER, LinkDirection, NetworkNode, OpenLink
from .loop import Incarnation


@dataclass(slots=True, kw_only=True, eq=False)
class SimLinkContext:
    """What all links of one incarnation share."""

    network_node: NetworkNode
    incarnation: Incarnation
    deferred_calls: DeferredCalls
    log: Callable[[str, str], None]
    links: dict[OpenLink, None] = field(default_factory=dict[OpenLink, None])
    """The open links and streams, in the order in which they were made."""


class SimLink:
    """One end of a connection; `Link` of the seam."""

    __slots__ = (
        "_context",
        "_handler",
        "_paused",
        "closed",
        "incarnation",
        "inward",
        "max_frame_bytes",
        "network_node",
        "outward",
        "peer",
        "wire_error_level",
    )

    def __init__(
        self, context: SimLinkContext, peer: Peer, inward: LinkDirection, outward: LinkDirection, max_frame_bytes: int
    ) -> None:
        self._context = context
        self._handler: FrameHandler | None = None
        self._paused = False
        self.peer = peer
        self.network_node: NetworkNode = context.network_node
        self.incarnation: Incarnation = context.incarnation
        self.inward = inward
        self.outward = outward
        self.max_frame_bytes = max_frame_bytes
        self.wire_error_level = "warning"
        self.closed = False
        inward.target = outward.source = self
        context.links[self] = None

    def start(self, handler: FrameHandler) -> None:
        """Begin to deliver."""
        self._handler = handler
        self.arrived()

    # ------------------------------------------------------------------ seam

    @property
    def certificate(self) -> bytes | None:
        """None: TLS is not simulated."""
        return None

    def when_established(self, call: Callable[[], object]) -> None:
        """Run `call` at once: there is no handshake."""
        call()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that a rule holds back here."""
        return self.outward.held_bytes

    def when_unsent_below(self, limit: int, call: Callable[[], object]) -> None:  # noqa: ARG002 - the seam's parameter
        """Run `call` on the next turn: a simulated link takes everything at once, and a rule may hold it back."""
        self.inward.fabric.loop.call_soon(self.incarnation, call)

    def send(self, parts: Sequence[Part]) -> None:
        """Queue one frame; on a closed link nothing happens."""
        if not self.closed:
            self.outward.push(joined(parts))

    def close(self, *, reset: bool = False) -> None:
        """Close the link; with `reset` at once, and frames in flight are lost."""
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
            self.inward.fabric.loop.call_soon(self.incarnation, self.arrived)

    # -------------------------------------------------------------- arrivals

    def arrived(self) -> None:
        """Deliver the arrived frames, unless the handler paused the link or a rule blocks it."""
        self._context.deferred_calls.run(self._arrived)

    def _arrived(self) -> None:
        direction = self.inward
        queue, loop = direction.queue, direction.fabric.loop
        while (
            queue
            and queue[0].arrives_ns <= loop.now_ns
            and not (direction.blocked or self._paused)
            and (self._handler is not None or self.closed)
        ):
            queued = queue.popleft()
            if queued.end:
                self._peer_ended(queued.end)
                return
            if not self.closed:
                if (on_frame := direction.fabric.on_frame) is not None:
                    on_frame(direction)
                self._deliver(queued.frame)
                if self.incarnation.paused:  # a failpoint paused the process in this delivery
                    loop.call_soon(self.incarnation, self.arrived)
                    return

    def _deliver(self, frame: bytes) -> None:
        handler = self._handler
        assert handler is not None
        if not 0 < len(frame) <= self.max_frame_bytes:
            most = self.max_frame_bytes
            self._refuse(self.wire_error_level, f"a frame of {len(frame)} bytes where 1 to {most} are allowed")
            return
        try:
            handler.frame_received(frame)
        except WireError as error:
            self._refuse(self.wire_error_level, str(error))
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
            # the peer reads no frames any more; a reset from outside still arrives at both ends
            direction = self.outward
            direction.queue = deque(queued for queued in direction.queue if queued.end)
            self._end(reason)

    def _end(self, reason: str) -> None:
        """Close this end; the handler's `link_closed` runs once, in a later turn."""
        self.closed = True
        self._context.links.pop(self, None)
        if self._handler is not None:
            self.inward.fabric.loop.call_soon(self.incarnation, self._handler.link_closed, reason)

    def die(self, *, silently: bool) -> None:
        """Close the connection of a killed process, as the kernel does; `silently`: a power loss closes none."""
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
        for direction in (self.inward, self.outward):
            direction.queue.clear()
            direction.push(b"", RESET_BY_PEER)


def joined(parts: Sequence[Part]) -> bytes:
    """A frame's parts, file regions included, as one copy."""
    return b"".join(map(bytes_of, parts))
