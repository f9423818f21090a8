"""A connection between two programs as asyncio sees it: a transport of bytes over a `SimStream`.

Owns: `StreamTransport`. Its calls, their order and what the protocol is called with are those of asyncio's own
transport of sockets: a buffer of writes above the kernel's window, with its limits; half-closed connections;
`connection_lost` with the error of the connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from collections.abc import Callable, Iterable
from typing import Any

from ..simulated.stream import SimStream

RECEIVE_BYTES = 262_144
HIGH_BYTES = 65_536
"""Above so many buffered bytes asyncio asks the protocol to stop."""
Address = tuple[str, int]


class ProgramSocket:
    """What a program may ask of the socket of a connection, or of a server."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, own: Address, peer: Address | None = None) -> None:
        self._own, self._peer = own, peer

    def __repr__(self) -> str:
        return f"<simulated socket {self._own}>"

    def getsockname(self) -> Address:
        """Return its own address."""
        return self._own

    def getpeername(self) -> Address:
        """Return the address of the other side; OSError where there is none."""
        if self._peer is None:
            raise OSError(107, "Transport endpoint is not connected")
        return self._peer

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def setsockopt(self, *_: object) -> None:
        """Nothing to do."""

    def getsockopt(self, *_: object) -> int:
        """Return 0."""
        return 0

    def setblocking(self, flag: bool) -> None:
        """Nothing to do: no call of a simulated connection blocks."""

    def gettimeout(self) -> float:
        """Return 0.0, as of each socket of asyncio."""
        return 0.0


class StreamTransport(asyncio.Transport):
    """One end of a connection between programs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: SimStream,
        number: int,
        *,
        own: Address,
        peer: Address,
        on_lost: Callable[[StreamTransport], object] | None = None,
    ) -> None:
        """`number`: its hash, so that a set of transports has one order. `on_lost`: its server's."""
        found = {"peername": peer, "sockname": own, "socket": ProgramSocket(own, peer)}
        super().__init__({**found, "sslcontext": None, "ssl_object": None})
        self._loop = loop
        self._stream = stream
        self._number = number
        self._on_lost = on_lost
        self._context = contextvars.copy_context()
        self._protocol: asyncio.BaseProtocol | None = None
        self._buffer = bytearray()
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._protocol_paused = False
        self._reading = True
        self._read_planned = False
        self._flush_planned = False
        self._input_over = False
        self._eof = False
        self._closing = False
        self._lost = False
        """Whether `connection_lost` was called, or will be in the next turn."""

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection to its protocol, and begin to read."""
        self._protocol = protocol
        try:
            protocol.connection_made(self)
        finally:
            self._stream.readable, self._stream.writable = self._plan_read, self._plan_flush
            self._plan_read()

    # ------------------------------------------------------------------------------------- reading

    def _plan_read(self) -> None:
        if not self._read_planned and self.is_reading() and not self._input_over and self._stream.has_input:
            self._read_planned = True
            self._loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._read_planned = False
        protocol = self._protocol
        if self._lost or not self.is_reading() or self._input_over or protocol is None:
            return
        try:
            ended = self._receive_into(protocol)
            if ended:
                self._input_over = True
                if not protocol.eof_received():  # type: ignore[attr-defined]  # of both kinds of protocol
                    self.close()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal(error)
        else:
            self._plan_read()

    def _receive_into(self, protocol: asyncio.BaseProtocol) -> bool:
        """Give the protocol what there is; return whether the other side has ended."""
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer: Any = protocol.get_buffer(-1)
            data = self._stream.receive(len(buffer))
            if data:
                buffer[: len(data)] = data
                protocol.buffer_updated(len(data))
        else:
            data = self._stream.receive(RECEIVE_BYTES)
            if data:
                protocol.data_received(data)  # type: ignore[attr-defined]  # a protocol of streams
        return data is not None and not data

    def is_reading(self) -> bool:
        """Whether what arrives is given to the protocol."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Give the protocol nothing until `resume_reading`."""
        self._reading = False

    def resume_reading(self) -> None:
        """Give the protocol what arrives."""
        if not self._reading and not self._closing:
            self._reading = True
            self._plan_read()

    # ------------------------------------------------------------------------------------- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, or buffer them where the other side reads too slowly."""
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost or not data:
            return
        rest = memoryview(data).cast("B")
        if not self._buffer:
            try:
                rest = rest[self._stream.send(rest) :]
            except OSError as error:
                self._fatal(error)
                return
            if not rest:
                return
        self._buffer += rest
        self._pause_protocol()

    def _pause_protocol(self) -> None:
        if len(self._buffer) > self._high and not self._protocol_paused:
            self._protocol_paused = True
            self._tell("pause_writing")

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces."""
        self.write(b"".join(list_of_data))

    def _plan_flush(self) -> None:
        if self._buffer and not self._flush_planned and not self._lost:
            self._flush_planned = True
            self._loop.call_soon(self._flush, context=self._context)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._lost or not self._buffer:
            return
        try:
            del self._buffer[: self._stream.send(self._buffer)]
        except OSError as error:
            self._fatal(error)
            return
        if len(self._buffer) <= self._low and self._protocol_paused:
            self._protocol_paused = False
            self._tell("resume_writing")
        if not self._buffer and not self._lost:
            if self._closing:
                self._connection_lost(None)
            elif self._eof:
                self._stream.finish()

    def _tell(self, name: str) -> None:
        try:
            getattr(self._protocol, name)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"protocol.{name}() failed")

    def can_write_eof(self) -> bool:
        """True: each direction ends by itself."""
        return True

    def write_eof(self) -> None:
        """Send FIN after what was written; the connection still receives."""
        if not (self._closing or self._eof):
            self._eof = True
            if not self._buffer:
                self._stream.finish()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for room."""
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits of the buffer: low, high."""
        return (self._low, self._high)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set them, as asyncio does."""
        if high is None:
            high = HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_protocol()

    # ------------------------------------------------------------------------------------- the end

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what arrives to this protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        assert self._protocol is not None, "a connection has a protocol until it is lost"
        return self._protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be; also when its program has ended."""
        return self._closing or self._stream.closed

    def close(self) -> None:
        """Close the connection after what was written."""
        if not self._closing:
            self._closing = True
            if not self._buffer:
                self._lose(None)

    def abort(self) -> None:
        """Close the connection at once."""
        self._buffer.clear()
        self._closing = True
        self._lose(None)

    def _fatal(self, error: BaseException) -> None:
        if not isinstance(error, OSError):
            self._report(error, "Fatal error on transport")
        self._buffer.clear()
        self._closing = True
        self._lose(error)

    def _report(self, error: BaseException, message: str) -> None:
        context = {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        self._loop.call_exception_handler(context)

    def _lose(self, error: BaseException | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._connection_lost, error, context=self._context)

    def _connection_lost(self, error: BaseException | None) -> None:
        self._lost = True
        protocol, self._protocol = self._protocol, None
        try:
            if protocol is not None:
                protocol.connection_lost(error)  # type: ignore[arg-type]  # asyncio passes what was raised
        finally:
            self._stream.close()
            if self._on_lost is not None:
                self._on_lost(self)
