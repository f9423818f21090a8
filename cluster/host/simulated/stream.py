"""Connections that carry bytes between two programs, as the kernels of their machines have them.

Owns: `SimStream`, one end of a connection, and `StreamListener`, a port at which a program waits for connections. What
is written leaves in segments, each with a latency of its own, and arrives in order (`fabric.py`); the two kernels
acknowledge it and keep what the program has not read, also of a program that is paused. At most `WINDOW_BYTES` are on
their way or unread; then the other side can send no more.

The end of a connection is that of TCP: FIN after everything that was sent, in each direction by itself; RST where bytes
arrive for which there is no reader any more, or a program ends with bytes that it has not read.

What may fail: `send` and `receive` raise OSError after a reset, once all that has arrived was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..seam import CLOSED_BY_PEER, Peer
from .fabric import RESET_BY_PEER, InFlightFrame, LinkDirection, NetworkNode
from .latency import NS_PER_BYTE
from .loop import Incarnation

if TYPE_CHECKING:
    from .network import SimNetwork

FIN = CLOSED_BY_PEER
ACKNOWLEDGED = "acknowledged"
"""`InFlightFrame.end` of a segment without bytes that says how many bytes the receiver has read in all."""
WINDOW_BYTES = 262_144
SEGMENT_BYTES = 1_448
"""Payload of an Ethernet frame; a smaller write is never cut."""
SEGMENTS_MOST = 11
"""So many segments travel together at most."""
SYN_AGAIN_MS = 1_000
"""How long a kernel waits before it knocks again at a port whose queue is full; then twice as long, and so on."""


class SimStream:
    """One end of a connection. Its program reads, writes and closes; the kernel does all else."""

    __slots__ = (
        "_acknowledged",
        "_announced",
        "_answered",
        "_error",
        "_fin_sent",
        "_input_ended",
        "_network",
        "_read",
        "_received",
        "_sent",
        "closed",
        "incarnation",
        "inward",
        "network_node",
        "outward",
        "peer",
        "process",
        "readable",
        "writable",
    )

    def __init__(self, network: SimNetwork, peer: Peer, inward: LinkDirection, outward: LinkDirection) -> None:
        self._network = network
        self.network_node: NetworkNode = network.network_node
        self.incarnation: Incarnation | None = None  # a kernel receives also for a program that is paused or dead
        self.process: Incarnation = network.incarnation
        self.peer = peer
        self.inward, self.outward = inward, outward
        self.readable: Callable[[], object] | None = None
        """Called in the program's loop when there is something to read, an end or an error included."""
        self.writable: Callable[[], object] | None = None
        """Called in the program's loop when there is room again, or an error."""
        self.closed = False
        """Whether the program has closed it, or ended."""
        self._received = bytearray()
        self._error: OSError | None = None
        self._input_ended = False
        self._fin_sent = False
        self._answered = False
        self._sent = self._acknowledged = 0  # bytes in all; what was sent and is not acknowledged fills the window
        self._read = self._announced = 0
        inward.target = outward.source = self
        network.links[self] = None

    def __repr__(self) -> str:
        return f"<SimStream {self.network_node.name} to {self.peer}>"

    # ----------------------------------------------------------------------------- the program's calls

    @property
    def has_input(self) -> bool:
        """Whether `receive` would return bytes, or the end, or raise."""
        return bool(self._received) or self._input_ended or self._error is not None

    def receive(self, size: int) -> bytes | None:
        """Take up to `size` bytes; b"" at the end of what the other side sends; None where nothing is there yet."""
        assert size > 0, f"{size} bytes are to be read"
        if self._received:
            data = bytes(self._received[:size])
            del self._received[:size]
            self._read += len(data)
            if self._read - self._announced >= WINDOW_BYTES // 4:
                self._announced = self._read
                self.outward.push(self._read.to_bytes(8, "big"), ACKNOWLEDGED)
            return data
        if self._error is not None:
            raise self._error
        return b"" if self._input_ended else None

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send what there is room for; return how many bytes that was. OSError after a reset."""
        assert not self._fin_sent, "a program writes before it ends its output"
        if self.closed:
            return len(data)  # the program has ended, and Python unwinds its code
        if self._error is not None:
            raise self._error
        taken = bytes(data[: max(0, WINDOW_BYTES - (self._sent - self._acknowledged))])
        at = 0
        while at < len(taken):
            size = len(taken) - at
            if size > SEGMENT_BYTES:
                size = min(size, SEGMENT_BYTES * self.inward.fabric.draw_segments(SEGMENTS_MOST))
            self.outward.push(taken[at : at + size])
            at += size
        self._sent += len(taken)
        return len(taken)

    def finish(self) -> None:
        """Send FIN after everything that was sent: shutdown(SHUT_WR)."""
        if not (self._fin_sent or self.closed or self._error is not None):
            self._fin_sent = True
            self.outward.push(b"", FIN)

    def close(self) -> None:
        """Close it, with FIN after everything that was sent, or RST where bytes were not read."""
        if self.closed:
            return
        if self._received:
            self.reset()
            return
        self.finish()
        self._close()
        self._forget_when_over(reset=False)

    def reset(self) -> None:
        """Close it with RST."""
        if not self.closed:
            if self._error is None:
                self.outward.push(b"", RESET_BY_PEER)
            self._close()

    def _close(self) -> None:
        self.closed = True
        self._received.clear()
        self._network.links.pop(self, None)

    # ---------------------------------------------------------------------------------- the kernel

    def arrived(self) -> None:
        """Take the segments that have arrived."""
        direction = self.inward
        queue, loop = direction.queue, direction.fabric.loop
        while queue and queue[0].arrives_ns <= loop.now_ns and not direction.blocked:
            self._take(queue.popleft())

    def _take(self, segment: InFlightFrame) -> None:
        if segment.end == ACKNOWLEDGED:
            read = int.from_bytes(segment.frame, "big")
            assert self._acknowledged <= read <= self._sent, f"{read} of {self._sent} bytes were read"
            self._acknowledged = read
            self._notify(self.writable)
        elif segment.end == FIN:
            assert not self._input_ended, "a direction ends once"
            self._input_ended = True
            self._notify(self.readable)
            self._forget_when_over(reset=False)
        elif segment.end:
            # the next call of a program that has seen the end is a write: EPIPE
            self._error = (
                BrokenPipeError(32, "Broken pipe")
                if self._input_ended
                else ConnectionResetError(104, "Connection reset by peer")
            )
            # the other side reads nothing any more; a reset from outside still arrives there
            self.outward.queue = deque(row for row in self.outward.queue if row.end == RESET_BY_PEER)
            self._notify(self.readable)
            self._notify(self.writable)
            self._forget_when_over(reset=True)
        elif self.closed:
            if not self._answered:
                self._answered = True
                self.outward.push(b"", RESET_BY_PEER)
        else:
            if (on_frame := self.inward.fabric.on_frame) is not None:
                on_frame(self.inward)
            self._received += segment.frame
            assert len(self._received) <= WINDOW_BYTES, "a kernel sends what the window has room for"
            self._notify(self.readable)

    def _notify(self, call: Callable[[], object] | None) -> None:
        if call is not None and not self.closed:
            self.inward.fabric.loop.call_soon(self.process, call)

    def _forget_when_over(self, *, reset: bool) -> None:
        """Forget the directions in which nothing arrives any more; what is still on its way obeys the link rules."""
        fabric = self.inward.fabric
        if reset or (self.closed and self._input_ended):
            fabric.ended(self.inward)
        if reset and not self.outward.queue:
            fabric.ended(self.outward)

    def die(self, *, silently: bool) -> None:
        """The program has ended, and the kernel closes its connection; `silently`: a power loss closes none."""
        if not silently:
            self.close()
        elif not self.closed:
            self._close()
            self.outward.queue.clear()
            self.inward.fabric.half_open.append(self.outward)

    def break_off(self) -> None:
        """Reset the connection from outside: both ends lose the bytes in flight."""
        for direction in (self.inward, self.outward):
            direction.queue.clear()
            direction.push(b"", RESET_BY_PEER)


class OwnDirection(LinkDirection):
    """One direction of a connection within a machine: no rule for links between machines acts on it."""

    __slots__ = ()
    within_machine = True

    def push(self, frame: bytes, end: str = "") -> None:
        """Send a segment, or the end."""
        fabric = self.fabric
        self.last_ns = max(self.last_ns, fabric.loop.now_ns + fabric.own_latency_ns() + NS_PER_BYTE * len(frame))
        self.queue.append(InFlightFrame(self.last_ns, frame, end))
        fabric.loop.call_after(self.target.incarnation, self.last_ns - fabric.loop.now_ns, self.target.arrived)

    def apply(self) -> None:
        """Nothing to do."""


class StreamListener:
    """A port at which a program accepts connections, until it closes the port or ends."""

    def __init__(
        self, network: SimNetwork, port: int, *, own_only: bool, backlog: int, accept: Callable[[SimStream], object]
    ) -> None:
        """`own_only`: programs of this machine alone reach it (127.0.0.1). `accept` runs in the program's loop."""
        self._network = network
        self._key = (network.network_node.name, port)
        self._backlog = max(1, backlog)
        self._accept = accept
        self._waiting: deque[SimStream] = deque()
        self.own_only = own_only
        ports = network.fabric.streams_listening
        if self._key in ports:
            raise OSError(98, f"error while attempting to bind on port {port}: address already in use")
        ports[self._key] = self
        network.on_end.append(self.close)

    @property
    def is_full(self) -> bool:
        """Whether no further connection is queued until the program accepts one."""
        return len(self._waiting) >= self._backlog

    def connected(self, client: Peer, inward: LinkDirection, outward: LinkDirection) -> None:
        """A client has connected: let the program accept it."""
        self._waiting.append(SimStream(self._network, client, inward, outward))
        self._network.loop.call_soon(self._network.incarnation, self._accept_next)

    def _accept_next(self) -> None:
        if self._waiting:  # else the port was closed
            self._accept(self._waiting.popleft())

    def close(self) -> None:
        """Accept no more connections; those that wait are reset, open ones stay open."""
        ports = self._network.fabric.streams_listening
        if ports.get(self._key) is self:  # else another start of the program has the port
            del ports[self._key]
        while self._waiting:
            self._waiting.popleft().reset()


async def connect_stream(network: SimNetwork, target: NetworkNode, port: int) -> SimStream:
    """Connect to a port of a program's machine; ConnectionRefusedError where no program listens there.

    It waits as long as the link between the two machines is blocked.
    """
    fabric, own = network.fabric, target is network.network_node
    wait_ms = SYN_AGAIN_MS
    while True:
        if not own:
            await network.passable(target)
        await network.pass_latency(target)
        if not own:
            await network.passable(target)
        listener = fabric.streams_listening.get((target.name, port))
        if listener is None or (listener.own_only and not own):
            await network.pass_latency(target)
            why = "" if listener is None else f": it is served on 127.0.0.1 of {target.identity.name!r} alone"
            raise ConnectionRefusedError(111, f"Connect call failed ({target.identity.name!r}, {port}){why}")
        if not listener.is_full:
            break
        await network.wait_ms(wait_ms)
        wait_ms *= 2
    there, back = fabric.connection(OwnDirection if own else LinkDirection)
    stream = SimStream(network, target.identity, back, there)
    listener.connected(network.network_node.identity, there, back)
    for direction in (there, back):
        direction.apply()
    try:
        await network.pass_latency(target)
        if not own:
            await network.passable(target)
    except BaseException:
        stream.close()
        raise
    return stream
