"""Connections of a program with brokers as asyncio sees them: transports over the links of the fabric.

A link carries whole frames of Kafka's protocol, a transport carries bytes: `FrameCutter` cuts what the program writes
into frames, and each frame that arrives is given to the program's protocol with its size before it. Two programs have
connections of bytes (`stream_transport.py`).

Owns: `LinkTransport`, the open connection of a program; it is the handler of its link.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Any

from ..seam import CLOSED_BY_PEER, Link

SIZE = struct.Struct(">i")


class FrameCutter:
    """Cuts a stream of bytes into frames: four bytes with the size, and so many bytes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def cut(self, data: bytes | bytearray | memoryview) -> Iterable[bytes]:
        """Add bytes; yield the frames that are complete, without their sizes."""
        rest = self._rest
        rest += data
        at = 0
        while len(rest) - at >= SIZE.size:
            (size,) = SIZE.unpack_from(rest, at)
            end = at + SIZE.size + max(0, size)
            if end > len(rest):
                break
            yield bytes(rest[at + SIZE.size : end])
            at = end
        del rest[:at]


class LinkTransport(asyncio.Transport):
    """One open connection of a program."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, link: Link, peer: tuple[str, int], own: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peer, "sockname": own, "socket": None, "sslcontext": None, "ssl_object": None})
        self._loop = loop
        self._link = link
        self._cutter = FrameCutter()
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._reading = True
        self._lost = False

    # ------------------------------------------------------------------------------ the program

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what arrives to this protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        assert self._protocol is not None, "a connection has a protocol before it is the program's"
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; nothing happens on a connection that is closed."""
        if self._closing:
            return
        for frame in self._cutter.cut(data):
            self._link.send([frame])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """False: a connection closes in both directions."""
        return False

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Close the connection after what was written."""
        self._end(reset=False)

    def abort(self) -> None:
        """Close the connection at once."""
        self._end(reset=True)

    def _end(self, *, reset: bool) -> None:
        if not self._closing:
            self._closing = True
            self._link.close(reset=reset)

    def is_reading(self) -> bool:
        """Whether what arrives is given to the protocol."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Give the protocol nothing until `resume_reading`."""
        if self._reading:
            self._reading = False
            self._link.pause()

    def resume_reading(self) -> None:
        """Give the protocol what arrives."""
        if not self._reading:
            self._reading = True
            self._link.resume()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing to do: a simulated link takes everything at once."""

    def get_write_buffer_size(self) -> int:
        """Return how many bytes a fault holds back."""
        return self._link.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return asyncio's defaults."""
        return (16_384, 65_536)

    # ---------------------------------------------------------------------------------- the link

    def frame_received(self, frame: bytes) -> None:
        """Give a frame to the protocol, in the next turn of the program's loop."""
        self._loop.call_soon(self._received, SIZE.pack(len(frame)) + frame)

    def _received(self, data: bytes) -> None:
        protocol = self._protocol
        if self._lost or self._closing or protocol is None:
            return
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data:
                buffer: Any = protocol.get_buffer(len(data))
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
                protocol.buffer_updated(count)
                data = data[count:]
        else:
            assert isinstance(protocol, asyncio.Protocol), f"{protocol!r} is a protocol of streams"
            protocol.data_received(data)

    def link_closed(self, reason: str) -> None:
        """Tell the protocol that the connection has ended."""
        self._loop.call_soon(self._connection_lost, reason)

    def _connection_lost(self, reason: str) -> None:
        if self._lost:
            return
        self._lost = True
        own, self._closing = self._closing, True
        protocol = self._protocol
        if protocol is None:
            return
        error: Exception | None = None
        if not own and reason != CLOSED_BY_PEER:
            error = ConnectionResetError(104, "Connection reset by peer")
        elif not own and isinstance(protocol, asyncio.Protocol):
            protocol.eof_received()
        protocol.connection_lost(error)
