"""A relay in front of any TCP service: bytes pass unchanged, faults hold back, delay, limit and reset them (K2)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from echo_service import EchoService
from harrow.cluster.relay_supervisor import Relay
from waiting import HANGS_S, until

CLIENTS = ["client *"]


@pytest.fixture
def service() -> Iterator[EchoService]:
    service = EchoService(last=b"bye")
    yield service
    service.close()


@pytest.fixture
def relay(tmp_path: Path, service: EchoService) -> Iterator[Relay]:
    with Relay(tmp_path / "store", "store", service.address) as relay:
        yield relay


def connected(relay: Relay) -> socket.socket:
    return socket.create_connection(relay.address, timeout=HANGS_S)


def send_and_end(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def received(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := client.recv(size - len(found))):
        found += data
    return found


def test_bytes_pass_unchanged_and_each_direction_ends_for_itself(relay: Relay, service: EchoService) -> None:
    sent = bytes(range(256)) * 40_000  # 10 MB, more than the buffers of all sockets hold
    with connected(relay) as client:
        sender = threading.Thread(target=send_and_end, args=(client, sent))
        sender.start()
        assert received(client, len(sent)) == sent
        sender.join(HANGS_S)
        assert received(client, 10) == b"bye", "after its end of input a client still reads"
    until(lambda: service.ended == ["end"])
    until(lambda: relay.control("links")["links"] == [])
    assert relay.control("relay") == {"connections": 1, "refused": 0}


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_what_is_blocked_waits_and_is_delivered_afterwards(relay: Relay, direction: str) -> None:
    with connected(relay) as client:
        client.sendall(b"a")
        assert received(client, 1) == b"a"
        relay.control("links.block", peers=CLIENTS, direction=direction)
        client.sendall(b"bcd")
        held = "held_out_bytes" if direction == "out" else "held_in_bytes"
        until(lambda: relay.control("links")[held] == 3)
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(HANGS_S)
        relay.control("links.heal", mode="deliver")
        assert received(client, 3) == b"bcd"


def test_an_end_of_input_does_not_pass_a_blocked_link(relay: Relay, service: EchoService) -> None:
    with connected(relay) as client:
        client.sendall(b"a")
        assert received(client, 1) == b"a"
        relay.control("links.block", peers=CLIENTS, direction="out")
        client.shutdown(socket.SHUT_WR)
        until(lambda: service.ended == ["end"])
        until(lambda: relay.control("links")["held_out_bytes"] == 3)
        relay.control("links.heal", mode="deliver")
        assert received(client, 10) == b"bye"


def test_a_connection_that_is_opened_while_all_is_blocked_waits(relay: Relay) -> None:
    relay.control("links.block", peers=CLIENTS)
    with connected(relay) as client:
        client.sendall(b"early")
        until(lambda: relay.control("links")["held_in_bytes"] == 5)
        relay.control("links.heal", mode="deliver")
        assert received(client, 5) == b"early"


def test_held_connections_can_be_reset_by_the_healing(relay: Relay, service: EchoService) -> None:
    with connected(relay) as client:
        client.sendall(b"a")
        assert received(client, 1) == b"a"
        relay.control("links.block", peers=CLIENTS)
        client.sendall(b"b")
        until(lambda: relay.control("links")["held_in_bytes"] == 1)
        relay.control("links.heal", mode="reset")
        with pytest.raises(ConnectionResetError):
            received(client, 1)
    until(lambda: service.ended == ["ConnectionResetError"])


def test_a_reset_reaches_both_sides(relay: Relay, service: EchoService) -> None:
    with connected(relay) as client:
        client.sendall(b"a")
        assert received(client, 1) == b"a"
        assert relay.control("links.reset", peers=CLIENTS) == {"links": 1}
        with pytest.raises(ConnectionResetError):
            received(client, 1)
    until(lambda: service.ended == ["ConnectionResetError"])


def test_frozen_connections_stay_open_and_new_ones_work(relay: Relay) -> None:
    with connected(relay) as old, connected(relay) as new:
        for client in (old, new):
            client.sendall(b"a")
            assert received(client, 1) == b"a"
        new.close()
        until(lambda: len(relay.control("links")["links"]) == 2)
        assert relay.control("links.freeze", peers=CLIENTS) == {"links": 1}
        old.sendall(b"b")
        until(lambda: relay.control("links")["held_in_bytes"] == 1)
        with connected(relay) as later:
            later.sendall(b"c")
            assert received(later, 1) == b"c"
        relay.control("links.heal")
        assert received(old, 1) == b"b"


@pytest.mark.parametrize(
    ("op", "more"), [("links.slow", {"delay_ms": 200}), ("links.throttle", {"bytes_per_s": 5_000})]
)
def test_a_slow_or_limited_link_delivers_late_and_whole(relay: Relay, op: str, more: dict[str, int]) -> None:
    with connected(relay) as client:
        relay.control(op, peers=CLIENTS, **more)
        client.sendall(bytes(2_000))
        assert received(client, 2_000) == bytes(2_000)
        assert relay.control("links")["delayed_bytes"] > 0
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert received(client, 10) == b"lastbye"


def test_a_service_that_does_not_run_resets_its_clients(relay: Relay, service: EchoService) -> None:
    service.close()
    with pytest.raises(ConnectionResetError), connected(relay) as client:  # while connecting, or just after
        received(client, 1)
    assert relay.control("relay") == {"connections": 1, "refused": 1}
