"""Single requests of the harness: each wait ends when the client is stopped, and each has a bound (J2)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import SIZE, client_request
from harrow.harness.requests import raw as raw_requests
from harrow.harness.requests.raw import StoppedError, ask

LATE_S = 60.0
SOON_S = 20.0
REQUEST = client_request(ApiKey.API_VERSIONS, 0)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
        yield server


def address_of(server: socket.socket) -> Address:
    return Address(*server.getsockname())


def fill(server: socket.socket) -> list[socket.socket]:
    """Fill the queue of a listener that accepts nothing, so that the next connection is not opened."""
    held: list[socket.socket] = []
    while len(held) < 64:
        client = socket.socket()
        client.settimeout(0.3)
        held.append(client)
        try:
            client.connect(server.getsockname())
        except TimeoutError:
            return held
    raise AssertionError("the queue is never full here")


def failure(address: Address, stopped: threading.Event | None, timeout_s: float = LATE_S) -> Exception:
    with pytest.raises(ClusterError) as raised:
        ask(address, REQUEST, stopped=stopped, timeout_s=timeout_s)
    return raised.value


def stopped_soon(address: Address, begun: Callable[[], object]) -> None:
    """Ask with a long timeout, stop when `begun` returns, and expect the end of the wait."""
    stopped = threading.Event()
    found: list[Exception] = []
    thread = threading.Thread(target=lambda: found.append(failure(address, stopped)))
    thread.start()
    begun()
    stopped.set()
    began_s = time.monotonic()
    thread.join(LATE_S)
    assert time.monotonic() - began_s < SOON_S
    assert isinstance(found[0], StoppedError)


def test_a_wait_for_a_connection_ends_when_the_client_is_stopped(listener: socket.socket) -> None:
    held = fill(listener)
    stopped_soon(address_of(listener), lambda: None)
    for client in held:
        client.close()


def test_a_wait_for_the_rest_of_a_response_ends_when_the_client_is_stopped(listener: socket.socket) -> None:
    accepted: list[socket.socket] = []

    def begin() -> None:
        accepted.append(listener.accept()[0])
        accepted[0].recv(64)
        accepted[0].sendall(SIZE.pack(100) + b"half")

    stopped_soon(address_of(listener), begin)
    accepted[0].close()


def test_a_connection_that_is_not_opened_has_a_bound_of_its_own(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_requests, "CONNECT_TIMEOUT_S", 0.2)
    held = fill(listener)
    began_s = time.monotonic()
    error = failure(address_of(listener), None)
    assert "did not answer API 18: timed out" in str(error)
    assert time.monotonic() - began_s < SOON_S
    for client in held:
        client.close()


def test_a_refused_connection_is_an_error_at_once(listener: socket.socket) -> None:
    address = address_of(listener)
    listener.close()
    assert "refused" in str(failure(address, None)).lower()


def test_a_response_in_parts_is_read(listener: socket.socket) -> None:
    frame = bytes([0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 18, 0, 0, 0, 3])  # no error, one API: 18, versions 0 to 3

    def serve() -> None:
        link, _ = listener.accept()
        with link:
            link.recv(1024)
            for byte in SIZE.pack(len(frame)) + frame:
                link.sendall(bytes([byte]))

    thread = threading.Thread(target=serve)
    thread.start()
    response = ask(address_of(listener), REQUEST)
    thread.join()
    (row,) = response.api_keys
    assert (int(response.error_code), row.api_key, row.max_version) == (0, 18, 3)
