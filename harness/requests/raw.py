"""Requests of the Kafka protocol to one broker, over a blocking connection.

For questions that no client library asks: open transactions, leader epochs, the log end offset of a follower.
`Connection` is a client's end with its requests in flight; `ask` sends one request over a connection of its own.
Each wait has a deadline, and ends soon after an event `stopped` of the caller is set (StoppedError): some requests,
such as JoinGroup, are answered late.
What may fail: OSError of a connection, NoResponseError of `ask`; WireError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import threading
import time
from typing import Any, Self

from harrow.cluster.errors import ClusterError, WireError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.client_requests import SIZE, ClientRequest

CLIENT_ID = "harrow"
TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
"""A response may be late by the rules of the protocol; a connection is not."""
STOP_POLL_MS = 20


class NoResponseError(ClusterError, OSError):
    """A broker could not be reached, or did not respond in time."""


class StoppedError(ClusterError):
    """The caller was stopped while it waited."""


def ask(
    address: Address,
    request: ClientRequest,
    *,
    timeout_s: float = TIMEOUT_S,
    client_id: str = CLIENT_ID,
    stopped: threading.Event | None = None,
) -> Any:
    """Send one request and return the response, as an entity of `cluster.wire.messages`."""
    try:
        with Connection(address, client_id, min(timeout_s, CONNECT_TIMEOUT_S), stopped) as connection:
            return connection.exchange(request, timeout_s)
    except OSError as error:
        raise NoResponseError(f"{address} did not answer API {request.api_key}: {error}") from error


class Connection:
    """A connection to the first of the host's addresses that accepts; requests and responses in their order."""

    _socket: socket.socket

    def __init__(
        self,
        address: Address,
        client_id: str = CLIENT_ID,
        timeout_s: float = CONNECT_TIMEOUT_S,
        stopped: threading.Event | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`timeout_s`: until each address must have accepted, and until a handshake of TLS must be done."""
        self._client_id = client_id
        self._stopped = stopped
        self._in_flight: dict[int, ClientRequest] = {}
        self._correlation_id = 0
        refused: OSError = ConnectionError("its host has no address")
        for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            self._socket = socket.socket(family, kind, protocol)
            try:
                self._connect(where, time.monotonic() + timeout_s)
                if tls is not None:
                    self._encrypt(tls, address.host, timeout_s)
            except BaseException as error:
                self._socket.close()
                if not isinstance(error, OSError):
                    raise
                refused = error
            else:
                return
        raise refused

    def _connect(self, where: Any, deadline: float) -> None:
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex(where)
        if code == errno.EINPROGRESS:
            self._wait(select.POLLOUT, deadline)
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))

    def _encrypt(self, tls: ssl.SSLContext, host: str, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._socket.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def exchange(self, request: ClientRequest, timeout_s: float = TIMEOUT_S) -> Any:
        """Send a request and return its response."""
        deadline = time.monotonic() + timeout_s
        sent = self.send_request(request, timeout_s)
        correlation_id, response = self.receive(deadline - time.monotonic())
        if correlation_id != sent:
            raise WireError(f"response #{correlation_id} to request #{sent}")
        return response

    def send_request(self, request: ClientRequest, timeout_s: float = TIMEOUT_S) -> int:
        """Send a request without waiting for its response; return its correlation id."""
        self._correlation_id += 1
        self._in_flight[self._correlation_id] = request
        self.send_bytes(request.frame(self._correlation_id, self._client_id), timeout_s)
        return self._correlation_id

    def receive(self, timeout_s: float = TIMEOUT_S) -> tuple[int, Any]:
        """Return the next response with its correlation id."""
        deadline = time.monotonic() + timeout_s
        frame = self._exactly(SIZE.unpack(self._exactly(SIZE.size, deadline))[0], deadline)
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        request = self._in_flight.pop(correlation_id, None)
        if request is None:
            raise WireError(f"a response #{correlation_id} to a request that was never sent")
        return correlation_id, request.response(frame)

    def send_bytes(self, data: bytes, timeout_s: float = TIMEOUT_S) -> None:
        """Send bytes as they are."""
        deadline = time.monotonic() + timeout_s
        left = memoryview(data)
        while left:
            self._wait(select.POLLOUT, deadline)
            with contextlib.suppress(ssl.SSLWantWriteError):
                left = left[self._socket.send(left) :]

    def _exactly(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            if not self._has_decrypted():
                self._wait(select.POLLIN, deadline)
            try:
                chunk = self._socket.recv(size - len(data))
            except ssl.SSLWantReadError:  # a part of a record has arrived
                continue
            if not chunk:
                raise ConnectionResetError("the broker closed the connection before its response")
            data += chunk
        return bytes(data)

    def _has_decrypted(self) -> bool:
        """True when TLS has bytes of which no poll says that they are there."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _wait(self, events: int, deadline: float) -> None:
        """Wait for one of the events of `select.poll`; StoppedError, TimeoutError."""
        watched = select.poll()
        watched.register(self._socket, events)
        while not watched.poll(STOP_POLL_MS):
            if self._stopped is not None and self._stopped.is_set():
                raise StoppedError("the request was given up: its client was stopped")
            if time.monotonic() > deadline:
                raise TimeoutError("timed out")
