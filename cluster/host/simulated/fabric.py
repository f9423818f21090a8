"""All connections between simulated machines: which machine reaches which, when frames arrive, and what is lost.

Owns: the machines as the network sees them (`NetworkNode`), the two directions of every connection (`LinkDirection`),
and the world's network (`Fabric`). A direction is a queue of frames, each with its time of arrival. Latencies are
drawn from the world's seed (`latency.py`), so that frames of different links overtake each other while each link keeps
its order, as TCP does.

Faults: rules of a machine (`host/knobs/link_rules.py`, as on the real host) block a direction; its frames in flight
then wait and are delivered, in order, after healing. A slow link adds to every latency, a throttled one to the time at
which a frame leaves. A reset loses the frames in flight, in both directions. The end of a connection waits in a blocked
direction as data does. A machine without power sends nothing: its peers detect that by their own timeouts, or by a
reset (RST) when the machine has power again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..knobs.bandwidth import Bandwidth
from ..knobs.link_rules import LinkRules
from ..seam import Peer
from .latency import NS_PER_BYTE, Latency
from .loop import Incarnation, SimLoop

RESET_BY_PEER = "Connection reset by peer"


class NetworkNode:
    """A machine as the network sees it; it outlives the processes on the machine."""

    __slots__ = ("address", "bandwidth", "delayed_frames", "identity", "incarnations", "name", "powered", "rules")

    def __init__(self, name: str, identity: Peer, address: str = "") -> None:
        self.name = name
        self.address = address
        """What the programs of other machines see of it; brokers are on the loopback address of every machine."""
        self.identity = identity
        self.rules = LinkRules()
        self.bandwidth = Bandwidth()
        self.delayed_frames = 0
        """Number of frames that a link rule sent late."""
        self.powered = True
        self.incarnations = 0


class LinkEnd(Protocol):
    """One end of a connection: `SimLink`, or `SimStream`."""

    @property
    def network_node(self) -> NetworkNode:
        """The machine."""
        ...

    @property
    def incarnation(self) -> Incarnation | None:
        """The incarnation of the process that receives; None: the machine itself does."""
        ...

    def arrived(self) -> None:
        """Deliver what has arrived."""
        ...


class OpenLink(Protocol):
    """A connection as faults see it: `SimLink`, or `SimStream`."""

    @property
    def peer(self) -> Peer:
        """The process at the other end."""
        ...

    @property
    def inward(self) -> LinkDirection:
        """What arrives."""
        ...

    @property
    def outward(self) -> LinkDirection:
        """What is sent."""
        ...

    def break_off(self) -> None:
        """Reset it from outside."""
        ...

    def die(self, *, silently: bool) -> None:
        """The process has ended; `silently`: without power."""
        ...


class Listening(Protocol):
    """Where a program accepts connections of bytes: `StreamListener`."""

    own_only: bool

    @property
    def is_full(self) -> bool:
        """Whether its queue is full."""
        ...

    def connected(self, client: Peer, inward: LinkDirection, outward: LinkDirection) -> None:
        """A client has connected."""
        ...


class InFlightFrame(NamedTuple):
    """A frame in flight or, where `end` is a reason, the end of the connection (`stream.py` has one more)."""

    arrives_ns: int
    frame: bytes
    end: str


class LinkDirection:
    """One direction of a connection."""

    __slots__ = ("blocked", "connection", "fabric", "frozen", "last_ns", "queue", "source", "target")
    within_machine = False
    """Whether faults of links leave it alone, because it does not leave its machine."""

    def __init__(self, fabric: Fabric, connection: int) -> None:
        self.fabric = fabric
        self.connection = connection
        self.source: LinkEnd
        self.target: LinkEnd
        self.queue: deque[InFlightFrame] = deque()
        self.last_ns = 0
        self.blocked = False
        self.frozen = False
        """Whether a fault holds back everything on this one connection."""

    def push(self, frame: bytes, end: str = "") -> None:
        """Send a frame or, with `end`, the end of the connection."""
        fabric, source, target = self.fabric, self.source.network_node, self.target.network_node
        delay = fabric.latency_ns(source, target) + NS_PER_BYTE * len(frame)
        leaves = fabric.departure_ns(source, target, len(frame))
        arrives = max(self.last_ns, leaves + delay)
        self.last_ns = arrives
        self.queue.append(InFlightFrame(arrives, frame, end))
        if not self.blocked:
            fabric.loop.call_after(self.target.incarnation, arrives - fabric.loop.now_ns, self.target.arrived)

    @property
    def held_bytes(self) -> int:
        """Bytes that a link rule holds back in this direction."""
        return sum(len(queued.frame) for queued in self.queue) if self.blocked else 0

    def apply(self) -> None:
        """Apply changed link rules: hold back the frames in flight, or deliver the held frames."""
        source, target = self.source.network_node, self.target.network_node
        blocked = self.frozen or self.fabric.blocked(source, target)
        if blocked == self.blocked:
            return
        self.blocked = blocked
        if not blocked and self.queue:
            self.send_again()

    def send_again(self) -> None:
        """Send the frames in flight now: what held them back is gone."""
        source, target = self.source.network_node, self.target.network_node
        fabric, held = self.fabric, self.queue
        now_ns = fabric.loop.now_ns
        self.queue, self.last_ns = deque(), now_ns
        for frame in held:
            self.last_ns = max(self.last_ns, now_ns + fabric.latency_ns(source, target))
            self.queue.append(frame._replace(arrives_ns=self.last_ns))
            fabric.loop.call_after(self.target.incarnation, self.last_ns - now_ns, self.target.arrived)


class Fabric:
    """All connections of the world, and which machine owns which port."""

    def __init__(self, loop: SimLoop, rng: random.Random, latency: Latency | None = None) -> None:
        self.loop = loop
        self._random = rng
        self.latency = latency or Latency()
        self.network_nodes: dict[str, NetworkNode] = {}
        self.owners: dict[int, NetworkNode] = {}
        """The machine that each TCP port belongs to, also while no process listens."""
        self.listening: dict[int, Callable[[NetworkNode, LinkDirection, LinkDirection], LinkEnd]] = {}
        """By TCP port: makes the accepted end of a connection, from the client's machine and the two directions."""
        self.streams_listening: dict[tuple[str, int], Listening] = {}
        """By machine and TCP port: where programs accept connections of bytes."""
        self.on_frame: Callable[[LinkDirection], None] | None = None
        """Called with each frame that is delivered, before its receiver handles it."""
        self.half_open: list[LinkDirection] = []
        self._directions: dict[LinkDirection, None] = {}
        self._made = 0
        self._waiting: list[Callable[[], None]] = []
        self.waiting_handshakes: list[tuple[Incarnation, NetworkNode, NetworkNode]] = []
        """Which incarnation waits to connect from which machine to which."""

    def waiting_connects(self, node: NetworkNode) -> int:
        """How many live processes wait to connect to this machine, or wait on it."""
        return sum(
            incarnation.alive and node in (client, server) for incarnation, client, server in self.waiting_handshakes
        )

    def latency_ns(self, source: NetworkNode, target: NetworkNode) -> int:
        """Draw the latency of a frame from `source` to `target`."""
        delay_ms = source.rules.delay_ms(target.identity)
        if delay_ms:
            source.delayed_frames += 1
        return self.latency.draw_ns(self._random, delay_ms)

    def own_latency_ns(self) -> int:
        """Draw the latency of a segment within a machine."""
        return self.latency.draw_ns(self._random, 0)

    def draw_segments(self, most: int) -> int:
        """Draw how many segments of a large write travel together: 1 to `most`."""
        return self._random.randint(1, most)

    def end_throttle(self, source: NetworkNode) -> None:
        """Send now what waits for the bandwidth of `source`."""
        if source.bandwidth.busy_until_ns > self.loop.now_ns:
            for direction in list(self._directions):
                if direction.source.network_node is source and not direction.blocked:
                    direction.send_again()
        source.bandwidth.clear()

    def departure_ns(self, source: NetworkNode, target: NetworkNode, size: int) -> int:
        """Return when a frame that is sent now leaves `source`: later where a rule limits what it sends."""
        rate = source.rules.bytes_per_s(target.identity)
        if not rate:
            return self.loop.now_ns
        source.delayed_frames += 1
        return source.bandwidth.departure_ns(self.loop.now_ns, size, rate)

    @staticmethod
    def blocked(source: NetworkNode, target: NetworkNode) -> bool:
        """True when rules of either machine hold back frames from `source` to `target`."""
        return source.rules.blocked(target.identity).outward or target.rules.blocked(source.identity).inward

    def passable(self, client: NetworkNode, server: NetworkNode) -> bool:
        """True when a handshake between the two would succeed."""
        return (
            client.powered and server.powered and not self.blocked(client, server) and not self.blocked(server, client)
        )

    def connection(self, kind: type[LinkDirection] = LinkDirection) -> tuple[LinkDirection, LinkDirection]:
        """The two directions of a new connection."""
        self._made += 1
        directions = kind(self, self._made), kind(self, self._made)
        self._directions.update(dict.fromkeys(directions))
        return directions

    def ended(self, direction: LinkDirection) -> None:
        """No further frame arrives in this direction."""
        self._directions.pop(direction, None)

    def changed(self) -> None:
        """Link rules or power have changed: apply them to every connection and try waiting handshakes again."""
        for direction in list(self._directions):
            direction.apply()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_changed(self, call: Callable[[], None]) -> None:
        """Run `call` at the next change."""
        self._waiting.append(call)

    def power_restored(self, node: NetworkNode) -> None:
        """Reset, at their other end, the connections with this machine's earlier incarnation."""
        half_open, self.half_open = self.half_open, []
        for direction in half_open:
            if direction.source.network_node is node:
                direction.push(b"", RESET_BY_PEER)
            else:
                self.half_open.append(direction)
