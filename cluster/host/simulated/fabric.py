"""All connections between simulated machines: which machine reaches which, when frames arrive, and what is lost.

Owns: the machines as the network sees them (`Port`), every connection's two directions (`Way`), and the world's network
(`Fabric`). A way is a queue of frames, each with its time of arrival. Latencies are drawn from the world's seed
(`latency.py`), so that links overtake each other while each of them keeps its order, as TCP does.

Faults: rules of a machine (`host/knobs/link_rules.py`, as on the real host) block a way; frames in flight then wait
and are delivered, in order, after healing. A slow link adds to every latency. A reset loses the frames in flight, in
both directions. A blocked way holds the end of a connection back, as it holds data back. A machine without power sends
nothing: its peers notice by their own timeouts, or by a reset (RST) when it runs again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..knobs.link_rules import LinkRules
from ..seam import Peer
from .latency import NS_PER_BYTE, Latency
from .loop import Life, SimLoop

RESET_BY_PEER = "Connection reset by peer"


class Port:
    """A machine as the network sees it; outlives the processes on it."""

    __slots__ = ("delayed_frames", "identity", "lives", "name", "powered", "rules")

    def __init__(self, name: str, identity: Peer) -> None:
        self.name = name
        self.identity = identity
        self.rules = LinkRules()
        self.delayed_frames = 0
        """Number of frames that a link rule delayed."""
        self.powered = True
        self.lives = 0


class WayEnd(Protocol):
    """One end of a connection: `SimLink`."""

    @property
    def port(self) -> Port:
        """The machine."""
        ...

    @property
    def life(self) -> Life:
        """The current incarnation of the process on the machine."""
        ...

    def arrived(self) -> None:
        """Deliver the frames that have arrived."""
        ...


class Item(NamedTuple):
    """Something in flight: a frame, or, with a reason, the end of the connection."""

    arrives_ns: int
    frame: bytes
    end: str


class Way:
    """One direction of a connection."""

    __slots__ = ("blocked", "connection", "fabric", "last_ns", "queue", "source", "target")

    def __init__(self, fabric: Fabric, connection: int) -> None:
        self.fabric = fabric
        self.connection = connection
        self.source: WayEnd
        self.target: WayEnd
        self.queue: deque[Item] = deque()
        self.last_ns = 0
        self.blocked = False

    def push(self, frame: bytes, end: str = "") -> None:
        """Put a frame, or the end of the connection, in flight."""
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
        """Bytes that a link rule holds back in this direction."""
        return sum(len(item.frame) for item in self.queue) if self.blocked else 0

    def apply(self) -> None:
        """Link rules have changed: hold back the frames in flight, or deliver the held frames."""
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


class Fabric:
    """All connections of the world, and which machine owns which port."""

    def __init__(self, loop: SimLoop, rng: random.Random, latency: Latency | None = None) -> None:
        self.loop = loop
        self._random = rng
        self.latency = latency or Latency()
        self.ports: dict[str, Port] = {}
        self.owners: dict[int, Port] = {}
        """The machine that each TCP port belongs to, also while no process listens."""
        self.listening: dict[int, Callable[[Port, Way, Way], WayEnd]] = {}
        """By TCP port: makes the accepted end of a connection, from the client's machine and the two directions."""
        self.half_open: list[Way] = []
        self._ways: dict[Way, None] = {}
        self._made = 0
        self._waiting: list[Callable[[], None]] = []

    def latency_ns(self, source: Port, target: Port) -> int:
        """Draw the latency of a frame from `source` to `target`."""
        delay_ms = source.rules.delay_ms(target.identity)
        if delay_ms:
            source.delayed_frames += 1
        return self.latency.draw_ns(self._random, delay_ms)

    @staticmethod
    def blocked(source: Port, target: Port) -> bool:
        """True when rules of either machine hold back frames from `source` to `target`."""
        return (
            source.rules.blocked(target.identity).outward
            or target.rules.blocked(source.identity).inward
        )

    def passable(self, client: Port, server: Port) -> bool:
        """True when a handshake between the two would succeed."""
        return (
            client.powered
            and server.powered
            and not self.blocked(client, server)
            and not self.blocked(server, client)
        )

    def connection(self) -> tuple[Way, Way]:
        """The two directions of a new connection."""
        self._made += 1
        ways = Way(self, self._made), Way(self, self._made)
        self._ways.update(dict.fromkeys(ways))
        return ways

    def ended(self, way: Way) -> None:
        """Deliver nothing more in this direction."""
        self._ways.pop(way, None)

    def changed(self) -> None:
        """Link rules or power have changed: apply them to every connection and try waiting handshakes again."""
        for way in list(self._ways):
            way.apply()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_changed(self, call: Callable[[], None]) -> None:
        """Run `call` at the next change."""
        self._waiting.append(call)

    def power_is_back(self, port: Port) -> None:
        """Reset the connections with this machine's earlier incarnation at their other end."""
        half_open, self.half_open = self.half_open, []
        for way in half_open:
            if way.source.port is port:
                way.push(b"", RESET_BY_PEER)
            else:
                self.half_open.append(way)
