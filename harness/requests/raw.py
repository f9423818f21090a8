"""Single requests of the Kafka protocol to one broker, each on a connection of its own.

For questions that no client library asks: open transactions, leader epochs, the log end offset of a follower. Blocking;
ClusterError when the broker does not respond in time. A caller with an event `stopped` gets StoppedError soon after it
is set: some requests, such as JoinGroup, are answered late.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Generator
from typing import Any

from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.cluster.wire import messages
from harrow.cluster.wire.headers import encode_request_header, parse_response_header

CLIENT_ID = "harrow"
TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
"""A response may be late by the rules of the protocol; a connection is not."""
SIZE = struct.Struct(">i")
STOP_POLL_MS = 20


class StoppedError(ClusterError):
    """The caller was stopped while it waited."""


def ask(
    address: Address,
    api_key: int,
    version: int,
    entity: Any,
    *,
    timeout_s: float = TIMEOUT_S,
    client_id: str = CLIENT_ID,
    stopped: threading.Event | None = None,
) -> Any:
    """Send one request and return the response, as entities of `cluster.wire.messages`."""
    body = messages.encode_request(api_key, version, entity)
    header = encode_request_header(api_key, version, 1, client_id)
    try:
        with _connected(address, min(timeout_s, CONNECT_TIMEOUT_S), stopped) as connection:
            waiter = _Waiter(connection, timeout_s, stopped)
            waiter.send(SIZE.pack(len(header) + len(body)) + header + body)
            frame = waiter.receive(SIZE.unpack(waiter.receive(SIZE.size))[0])
    except OSError as error:
        raise ClusterError(f"{address} did not answer API {api_key}: {error}") from error
    _, at = parse_response_header(api_key, version, frame)
    return messages.decode_response(api_key, version, frame, at)


class _Waiter:
    """Waits on one socket that does not block, until a deadline, and until the caller is stopped."""

    def __init__(self, connection: socket.socket, timeout_s: float, stopped: threading.Event | None) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s
        self._stopped = stopped

    def wait(self, events: int) -> None:
        """Wait for one of the events of `select.poll`; StoppedError, TimeoutError."""
        watched = select.poll()
        watched.register(self._connection, events)
        while not watched.poll(STOP_POLL_MS):
            if self._stopped is not None and self._stopped.is_set():
                raise StoppedError("the request was given up: its client was stopped")
            if time.monotonic() > self._deadline:
                raise TimeoutError("timed out")

    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self.wait(select.POLLOUT)
            left = left[self._connection.send(left) :]

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self.wait(select.POLLIN)
            chunk = self._connection.recv(size - len(data))
            if not chunk:
                raise ConnectionResetError("the broker closed the connection before its response")
            data += chunk
        return bytes(data)


@contextlib.contextmanager
def _connected(address: Address, timeout_s: float, stopped: threading.Event | None) -> Generator[socket.socket]:
    """Yield a socket that does not block, connected to the first of the host's addresses that accepts."""
    refused: OSError = ConnectionError("its host has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as connection:
            connection.setblocking(False)
            try:
                _connect(connection, where, _Waiter(connection, timeout_s, stopped))
            except OSError as error:
                refused = error
                continue
            yield connection
            return
    raise refused


def _connect(connection: socket.socket, where: Any, waiter: _Waiter) -> None:
    code = connection.connect_ex(where)
    if code == errno.EINPROGRESS:
        waiter.wait(select.POLLOUT)
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
