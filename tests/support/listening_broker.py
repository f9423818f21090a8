"""A listening socket that stands for a foreign broker, so that a test decides on every byte that the broker sends."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.wire import messages
from harrow.cluster.wire.headers import encode_response_header

SIZE = struct.Struct(">i")
HANGS_S = 30.0


class ListeningBroker:
    """A port, and the connections that the test accepts."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.settimeout(HANGS_S)
        self.address: tuple[str, int] = self._listener.getsockname()
        self._accepted: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for accepted in self._accepted:
            accepted.close()

    def accept(self) -> socket.socket:
        """Returns the next connection."""
        accepted, _ = self._listener.accept()
        accepted.settimeout(HANGS_S)
        self._accepted.append(accepted)
        return accepted


def read_frame(connection: socket.socket) -> bytes:
    """Reads one frame; ConnectionError at the end of the connection."""
    return _exactly(connection, SIZE.unpack(_exactly(connection, 4))[0])


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionResetError(f"closed after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)


def frame(body: bytes) -> bytes:
    """The bytes of a frame."""
    return SIZE.pack(len(body)) + body


def response(api_key: int, version: int, correlation_id: int, entity: object) -> bytes:
    """The frame of a response."""
    body = messages.encode(messages.response_writer(api_key, version), entity)
    return frame(encode_response_header(api_key, version, correlation_id) + body)


@contextmanager
def behind_a_proxy(folder: Path, *, tap: bool = True) -> Generator[tuple[ListeningBroker, Proxy]]:
    """Puts a proxy in front of a new listening broker; its own connection, which sends nothing, is accepted."""
    with ListeningBroker() as broker, Proxy(folder, {1: broker.address}, tap=tap) as proxy:
        broker.accept()
        yield broker, proxy


@contextmanager
def connected(broker: ListeningBroker, proxy: Proxy) -> Generator[tuple[socket.socket, socket.socket]]:
    """A client's socket at the proxy, and the broker's socket of the same connection."""
    with contextlib.closing(socket.create_connection(proxy.addresses[1], HANGS_S)) as client:
        yield client, broker.accept()
