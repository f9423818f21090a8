"""The proxy between brokers: rules of either broker hold back, delay and reset what one sends to another (J2, K2)."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.listeners import Address
from harrow.cluster.ports import LOOPBACK, ReservedPort
from harrow.cluster.proxy_supervisor import PeerLink, Proxy
from harrow.harness.backends.apache.kafka_listeners import can_relay
from long_runs import some
from waiting import until

pytestmark = pytest.mark.skipif(not can_relay(), reason="this machine lacks 127.0.0.0/8")

SIZE = struct.Struct(">I")
DELAY_MS = 250


class Wire:
    """One end of a connection that carries frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(20)

    def send(self, frame: bytes) -> None:
        self.sock.sendall(SIZE.pack(len(frame)) + frame)

    def receive(self) -> bytes:
        """The next frame; ConnectionError at the end of the connection."""
        return self._exactly(SIZE.unpack(self._exactly(4))[0])

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise ConnectionError("closed in order")
            data += part
        return data


class Brokers:
    """Three listening sockets in place of brokers, and the proxy between them."""

    def __init__(self, folder: Path, closing: contextlib.ExitStack) -> None:
        self._closing = closing
        ports = {node: ReservedPort() for node in (1, 2, 3)}
        for port in ports.values():
            closing.callback(port.release)
        self._own = {node: Address(LOOPBACK, port.number) for node, port in ports.items()}
        self.listening: dict[int, socket.socket] = {}
        self._accepted: list[tuple[int, socket.socket]] = []
        for node in self._own:
            self.listen(node)
        links = [
            PeerLink(source, target, self._between(source, target), self._own[target])
            for source in self._own
            for target in self._own
            if source != target
        ]
        self.proxy = closing.enter_context(Proxy(folder, self._own, tap=False, peer_links=links))

    def listen(self, node: int) -> None:
        sock = self._closing.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(self._own[node])
        sock.listen()
        sock.settimeout(20)
        self.listening[node] = sock

    def _between(self, source: int, target: int) -> Address:
        return Address(f"127.77.{source}.{target}", self._own[target].port)

    def dial(self, source: int, target: int) -> Wire:
        """Connect as one broker to another; the connection stands when the proxy listens there."""
        found: list[socket.socket] = []

        def connected() -> bool:
            found.append(socket.create_connection(self._between(source, target), 20))
            return True

        until(connected, "the proxy listens", amid=(OSError,))
        return Wire(self._closing.enter_context(found[0]))

    def connect(self, source: int, target: int) -> tuple[Wire, Wire]:
        """Both ends of a connection from one broker to another, after a frame has passed each way."""
        here = self.dial(source, target)
        here.send(b"first")
        there = self.accept(target, b"first")
        there.send(b"back")
        assert here.receive() == b"back"
        return here, there

    def accept(self, node: int, first: bytes) -> Wire:
        """The connection whose first frame this is; the proxy's own connections send nothing."""
        waiting: list[Wire] = []
        while True:
            sock, _ = self.listening[node].accept()
            self._accepted.append((node, self._closing.enter_context(sock)))
            waiting.append(Wire(sock))
            for wire in waiting:
                wire.sock.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    if wire.sock.recv(1, socket.MSG_PEEK):
                        wire.sock.settimeout(20)
                        assert wire.receive() == first
                        return wire

    def die(self, node: int) -> None:
        """Close all sockets of a broker, as the kernel does with those of a process that ends."""
        for other, sock in self._accepted:
            if other == node:
                sock.close()
        with contextlib.suppress(OSError):
            self.listening[node].shutdown(socket.SHUT_RDWR)
        self.listening[node].close()

    def serves(self, source: int, target: int) -> bool:
        """Whether the proxy listens for connections of one broker to another."""
        with socket.socket() as probe:
            return probe.connect_ex(self._between(source, target)) == 0

    def op(self, node: int, op: str, **fields: object) -> dict[str, Any]:
        return self.proxy.control(node, op, **fields)

    def held(self, node: int) -> tuple[int, int]:
        found = self.op(node, "links")
        return found["held_in_bytes"], found["held_out_bytes"]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with contextlib.ExitStack() as closing:
        yield Brokers(tmp_path, closing)


def test_frames_of_any_size_pass_whole_and_in_order(brokers: Brokers) -> None:
    here, there = brokers.connect(1, 2)
    frames = [bytes([number]) * size for number, size in enumerate((1, 70_000, 5_000_000, 3))]
    for frame in frames:
        here.send(frame)
        assert there.receive() == frame
        there.send(frame[::-1])
        assert here.receive() == frame[::-1]


@pytest.mark.parametrize(
    ("ruled", "way"), some([(1, "in"), (1, "out"), (1, "both"), (2, "in"), (2, "out"), (2, "both")], suite=2)
)
def test_a_rule_of_either_broker_holds_back_a_direction_until_it_heals(brokers: Brokers, ruled: int, way: str) -> None:
    here, there = brokers.connect(1, 2)
    ends = {1: here, 2: there}
    mine, other = ends[ruled], ends[3 - ruled]
    brokers.op(ruled, "links.block", peers=[f"broker {3 - ruled}"], direction=way)
    other.send(b"to the ruled broker")
    mine.send(b"from the ruled broker")
    holds = {"in": (True, False), "out": (False, True), "both": (True, True)}[way]
    until(lambda: tuple(map(bool, brokers.held(ruled))) == holds, f"held: {holds}")
    assert brokers.held(3 - ruled) == (0, 0), "the other broker has no rule"
    assert _arrives(mine) is not holds[0]
    assert _arrives(other) is not holds[1]
    brokers.op(ruled, "links.heal", mode="deliver")
    assert mine.receive() == b"to the ruled broker"
    assert other.receive() == b"from the ruled broker"
    assert brokers.op(ruled, "links")["rules"] == []


def _arrives(wire: Wire) -> bool:
    wire.sock.settimeout(0.3)
    try:
        return bool(wire.sock.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        wire.sock.settimeout(20)


def test_a_rule_between_two_brokers_leaves_the_third_alone(brokers: Brokers) -> None:
    cut_off, _ = brokers.connect(1, 2)
    brokers.op(1, "links.block", peers=["broker 2"])
    cut_off.send(b"held")
    until(lambda: brokers.held(1)[1] > 0, "bytes are held back")
    brokers.connect(1, 3)
    brokers.connect(3, 1)
    brokers.connect(2, 3)


def test_healing_by_a_reset_ends_both_sides_and_loses_what_was_held(brokers: Brokers) -> None:
    here, there = brokers.connect(1, 2)
    brokers.op(2, "links.block", peers=["broker *"])
    here.send(b"lost")
    until(lambda: brokers.held(2)[0] > 0, "bytes are held back")
    assert brokers.op(2, "links.heal", mode="reset")["links"] >= 1
    for wire in (here, there):
        with pytest.raises(ConnectionError):
            wire.receive()
    brokers.connect(1, 2)


def test_a_connection_that_was_opened_under_a_rule_passes_after_healing(brokers: Brokers) -> None:
    brokers.connect(1, 2)
    brokers.op(2, "links.block", peers=["broker *"])
    later = brokers.dial(1, 2)
    later.send(b"later")
    until(lambda: brokers.held(2)[0] > 0, "bytes are held back")
    brokers.op(2, "links.heal", mode="deliver")
    assert brokers.accept(2, b"later")


def test_a_slow_broker_sends_late_and_receives_at_once(brokers: Brokers) -> None:
    here, there = brokers.connect(1, 2)
    brokers.op(1, "links.slow", peers=["broker *"], delay_ms=DELAY_MS)
    begun = time.monotonic()
    here.send(b"late")
    assert there.receive() == b"late"
    assert time.monotonic() - begun >= DELAY_MS / 1000 - 0.05
    assert brokers.op(1, "links")["delayed_bytes"] > 0
    there.send(b"soon")
    assert here.receive() == b"soon"
    assert brokers.op(2, "links")["delayed_bytes"] == 0


def test_a_throttled_broker_sends_slowly_to_all_its_peers_together(brokers: Brokers) -> None:
    pairs = [brokers.connect(1, 2), brokers.connect(1, 3)]
    brokers.op(1, "links.throttle", peers=["broker *"], bytes_per_s=20_000)
    begun = time.monotonic()
    for here, _ in pairs:
        here.send(b"x" * 2_000)
    for _, there in pairs:
        assert there.receive() == b"x" * 2_000
    assert time.monotonic() - begun >= 4_000 / 20_000 - 0.01
    assert brokers.op(1, "links")["delayed_bytes"] > 0


def test_a_reset_counts_the_connections_of_both_ways(brokers: Brokers) -> None:
    ends = [*brokers.connect(1, 2), *brokers.connect(3, 1)]
    brokers.connect(2, 3)
    assert brokers.op(1, "links.reset", peers=["broker *"])["links"] == 2
    for wire in ends:
        with pytest.raises(ConnectionError):
            wire.receive()
    assert brokers.op(1, "links.reset", peers=["broker *"])["links"] == 0


def test_an_end_ends_the_other_side_and_a_dead_broker_refuses_connections(brokers: Brokers) -> None:
    here, there = brokers.connect(1, 2)
    there.send(b"last words")
    there.sock.close()
    assert here.receive() == b"last words"
    with pytest.raises(ConnectionError):
        here.receive()
    brokers.die(2)
    until(lambda: not brokers.serves(1, 2), "the proxy does not listen for a dead broker")
    assert brokers.serves(1, 3)
    brokers.listen(2)
    brokers.connect(1, 2)


def test_a_side_that_does_not_read_stops_the_other(brokers: Brokers) -> None:
    here, there = brokers.connect(1, 2)
    here.sock.settimeout(0.5)
    sent, frame = 0, b"x" * 1_000_000
    with contextlib.suppress(TimeoutError):
        while sent < 200:
            here.send(frame)
            sent += 1
    assert sent < 100, "the proxy keeps a bounded number of bytes"
    for _ in range(sent):
        assert there.receive() == frame
