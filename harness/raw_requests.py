"""Single requests of the Kafka protocol to one broker, each on a connection of its own.

For questions that no client library asks: open transactions, leader epochs, the log end offset of a follower. Blocking;
ClusterError when the broker does not respond in time. A caller with an event `stopped` gets StoppedError soon after it
is set: some requests, such as JoinGroup, are answered late.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from typing import Any

from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.cluster.wire import messages
from harrow.cluster.wire.headers import encode_request_header, parse_response_header

CLIENT_ID = "harrow"
TIMEOUT_S = 10.0
SIZE = struct.Struct(">i")


STOP_POLL_MS = 20


class StoppedError(ClusterError):
    """The caller was stopped while it waited."""


def ask(
    address: Address, api_key: int, version: int, entity: Any, *, timeout_s: float = TIMEOUT_S,
    client_id: str = CLIENT_ID, stopped: threading.Event | None = None,
) -> Any:  # fmt: skip
    """Send one request and return the response, as entities of `cluster.wire.messages`."""
    body = messages.encode_request(api_key, version, entity)
    header = encode_request_header(api_key, version, 1, client_id)
    try:
        with socket.create_connection(address, timeout_s) as connection:
            connection.sendall(SIZE.pack(len(header) + len(body)) + header + body)
            if stopped is not None:
                _await_response(connection, timeout_s, stopped)
            with connection.makefile("rb") as responses:
                frame = _exactly(responses, SIZE.unpack(_exactly(responses, SIZE.size))[0])
    except OSError as error:
        raise ClusterError(f"{address} did not answer API {api_key}: {error}") from error
    _, at = parse_response_header(api_key, version, frame)
    return messages.decode_response(api_key, version, frame, at)


def _await_response(connection: socket.socket, timeout_s: float, stopped: threading.Event) -> None:
    """Wait for the first byte of the response."""
    deadline = time.monotonic() + timeout_s
    watched = select.poll()
    watched.register(connection, select.POLLIN)
    while not watched.poll(STOP_POLL_MS):
        if stopped.is_set():
            raise StoppedError("the request was given up: its client was stopped")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")


def _exactly(responses: Any, size: int) -> bytes:
    data: bytes = responses.read(size)
    if len(data) != size:
        raise ConnectionResetError("the broker closed the connection before its response")
    return data
