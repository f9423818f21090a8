"""Connections between simulated machines: who reaches whom, when, and what is lost.

Owns: every connection of the world (`Fabric`), its two directions (`Way`) and its two ends (`SimLink`, the seam's
`Link`). A way is a queue of frames, each with the time at which it arrives; latencies are drawn from the world's
seed, so that links overtake each other while each of them keeps its order, as TCP does.

Faults: rules of a machine (`host/knobs/link_rules.py`, as on the real host) block a way; what is under way then
waits and is delivered, in order, after healing. A rule that makes a link slow adds to the latency of what leaves.
A reset loses what has not arrived, on both sides. The end of a connection passes a blocked way no more than data
does. A machine whose power went answers nobody: its peers find out by their own timeouts, or when it is back
(RST).

Links are known by who they are: an accepted link is `unknown` to its handler until it names it, but rules apply
to it from the start.
"""

from __future__ import annotations

import random
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...errors import WireError
from ..knobs.link_rules import LinkRules
from ..seam import FrameHandler, Part, Peer, bytes_of
from .loop import NS_PER_MS, Life, SimLoop

if TYPE_CHECKING:
    from .network import SimNetwork

CLOSED_BY_PEER = "closed by the peer"
RESET_BY_PEER = "Connection reset by peer"
NS_PER_BYTE = 8
"""About 125 MB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long a frame is under way, in milliseconds: usually between `low` and `high`, seldom up to `spike`."""

    low: float = 0.05
    high: float = 0.6
    spike: float = 25.0
    spike_chance: float = 0.01


class Port:
    """A machine as the network sees it; outlives the processes on it."""

    __slots__ = ("delayed_frames", "identity", "lives", "name", "powered", "rules")

    def __init__(self, name: str, identity: Peer) -> None:
        self.name = name
        self.identity = identity
        self.rules = LinkRules()
        self.delayed_frames = 0
        """Frames that left late by a rule."""
        self.powered = True
        self.lives = 0


class Item(NamedTuple):
    """What is under way: a frame, or, with a reason, the end of the connection."""

    arrives_ns: int
    frame: bytes
    end: str


class Way:
    """One direction of a connection."""

    __slots__ = ("blocked", "connection", "fabric", "last_ns", "queue", "source", "target")

    def __init__(self, fabric: Fabric, connection: int) -> None:
        self.fabric = fabric
        self.connection = connection
        self.source: SimLink
        self.target: SimLink
        self.queue: deque[Item] = deque()
        self.last_ns = 0
        self.blocked = False

    def push(self, frame: bytes, end: str = "") -> None:
        """Send something."""
        fabric = self.fabric
        delay = fabric.latency_ns(self.source.port, self.target.port) + NS_PER_BYTE * len(frame)
        arrives = max(self.last_ns, fabric.loop.now_ns + delay)
        self.last_ns = arrives
        self.queue.append(Item(arrives, frame, end))
        if not self.blocked:
            fabric.loop.call_after(
                self.target.life, arrives - fabric.loop.now_ns, self.target.arrived
            )

    @property
    def held_bytes(self) -> int:
        """Bytes that a rule holds back here."""
        return sum(len(item.frame) for item in self.queue) if self.blocked else 0

    def apply(self) -> None:
        """Rules have changed: hold back, or let go what was held back."""
        source, target = self.source.port, self.target.port
        blocked = self.fabric.blocked(source, target)
        if blocked == self.blocked:
            return
        self.blocked = blocked
        if not blocked and self.queue:
            fabric, held = self.fabric, self.queue
            now_ns = fabric.loop.now_ns
            self.queue, self.last_ns = deque(), now_ns
            for item in held:
                self.last_ns = max(self.last_ns, now_ns + fabric.latency_ns(source, target))
                self.queue.append(item._replace(arrives_ns=self.last_ns))
                fabric.loop.call_after(self.target.life, self.last_ns - now_ns, self.target.arrived)


class SimLink:
    """One end of a connection; `Link` of the seam."""

    __slots__ = (
        "_handler", "_network", "_paused", "closed", "inward", "life", "max_frame_bytes", "outward", "peer",
        "port",
    )  # fmt: skip

    def __init__(
        self, network: SimNetwork, peer: Peer, inward: Way, outward: Way, max_frame_bytes: int
    ) -> None:
        self._network = network
        self._handler: FrameHandler | None = None
        self._paused = False
        self.peer = peer
        self.port: Port = network.port
        self.life: Life = network.life
        self.inward = inward
        self.outward = outward
        self.max_frame_bytes = max_frame_bytes
        self.closed = False
        inward.target = outward.source = self
        network.links[self] = None

    def start(self, handler: FrameHandler) -> None:
        """Begin to deliver."""
        self._handler = handler
        self.arrived()

    # ------------------------------------------------------------------ seam

    @property
    def unsent_bytes(self) -> int:
        """Bytes that a rule holds back here."""
        return self.outward.held_bytes

    def send(self, parts: Sequence[Part]) -> None:
        """Queue one frame; on a closed link nothing happens."""
        if not self.closed:
            self.outward.push(joined(parts))

    def close(self, *, reset: bool = False) -> None:
        """End it; with `reset` at once and without what has not arrived."""
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
            self._network.loop.call_soon(self.life, self.arrived)

    # -------------------------------------------------------------- arrivals

    def arrived(self) -> None:
        """Deliver what has arrived, as far as the handler and the rules let it."""
        self._network.delivery.run(self._arrived)

    def _arrived(self) -> None:
        way, loop = self.inward, self._network.loop
        queue = way.queue
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
        self._network.log(level, f"closing the link to {self.peer}: {reason}")
        if not self.closed:
            self._end(reason)
            self.outward.push(b"", CLOSED_BY_PEER)

    # ----------------------------------------------------------------- ending

    def _peer_ended(self, reason: str) -> None:
        self._network.fabric.ended(self.inward)
        if not self.closed:
            # nobody reads what is under way to the peer; but a reset from outside is under way to both
            way = self.outward
            way.queue = deque(item for item in way.queue if item.end)
            self._end(reason)

    def _end(self, reason: str) -> None:
        """Tell the handler once, in a later turn."""
        self.closed = True
        self._network.links.pop(self, None)
        if self._handler is not None:
            self._network.loop.call_soon(self.life, self._handler.link_closed, reason)

    def die(self, *, silently: bool) -> None:
        """Its process was killed, and the kernel says so to the peer; or its power went, and nobody does."""
        if self.closed:
            return
        self.closed = True
        self._network.links.pop(self, None)
        if silently:
            self.outward.queue.clear()
            self._network.fabric.half_open.append(self.outward)
        else:
            self.outward.push(b"", CLOSED_BY_PEER)

    def break_off(self) -> None:
        """Reset the connection from outside: both ends lose what has not arrived."""
        for way in (self.inward, self.outward):
            way.queue.clear()
            way.push(b"", RESET_BY_PEER)


def joined(parts: Sequence[Part]) -> bytes:
    """A frame's parts, file regions included, as one copy."""
    return b"".join(map(bytes_of, parts))


class Fabric:
    """All connections of the world, and who owns which port."""

    def __init__(self, loop: SimLoop, rng: random.Random, latency: Latency | None = None) -> None:
        self.loop = loop
        self._random = rng
        self.latency = latency or Latency()
        self.ports: dict[str, Port] = {}
        self.owners: dict[int, Port] = {}
        """Whose machine a TCP port belongs to, whether anybody listens or not."""
        self.listening: dict[int, Callable[[SimNetwork, Way, Way], SimLink]] = {}
        self.half_open: list[Way] = []
        self._ways: dict[Way, None] = {}
        self._made = 0
        self._waiting: list[Callable[[], None]] = []

    def latency_ns(self, source: Port, target: Port) -> int:
        """How long something is under way, this time."""
        how, draw = self.latency, self._random.random
        ms = how.low + (how.high - how.low) * draw()
        if draw() < how.spike_chance:
            ms += how.spike * draw()
        slow_ms = source.rules.delay_ms(target.identity)
        if slow_ms:
            ms += slow_ms
            source.delayed_frames += 1
        return int(ms * NS_PER_MS)

    @staticmethod
    def blocked(source: Port, target: Port) -> bool:
        """True when rules of either machine hold back what goes from `source` to `target`."""
        return (
            source.rules.blocked(target.identity).outward
            or target.rules.blocked(source.identity).inward
        )

    def passable(self, one: Port, other: Port) -> bool:
        """True when a handshake between the two would succeed."""
        return (
            one.powered
            and other.powered
            and not self.blocked(one, other)
            and not self.blocked(other, one)
        )

    def connection(self) -> tuple[Way, Way]:
        """The two directions of a new connection."""
        self._made += 1
        ways = Way(self, self._made), Way(self, self._made)
        self._ways.update(dict.fromkeys(ways))
        return ways

    def ended(self, way: Way) -> None:
        """Nothing comes on it any more."""
        self._ways.pop(way, None)

    def changed(self) -> None:
        """Rules or power have changed: ways are held back or let go, handshakes are tried again."""
        for way in list(self._ways):
            way.apply()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_changed(self, call: Callable[[], None]) -> None:
        """Run `call` at the next change."""
        self._waiting.append(call)

    def power_is_back(self, port: Port) -> None:
        """Whoever still holds a connection with this machine's earlier life hears a reset."""
        half_open, self.half_open = self.half_open, []
        for way in half_open:
            if way.source.port is port:
                way.push(b"", RESET_BY_PEER)
            else:
                self.half_open.append(way)
