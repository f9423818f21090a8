"""One TCP connection whose frames are encrypted by TLS: a `RealLink` above a `TlsSession`.

Gates, rules, resets, delays, limits and evidence are those of every link. What differs:

* The first bytes are the handshake. It runs in the turns of the loop, and ends the link after HANDSHAKE_S, or where it
  fails, with a line of the log at the level `debug` only: any stranger can make it fail.
* Decrypted bytes that a shut gate left in the session are delivered when the gate opens: the loop does not report them.
* Frames leave as records, made from at most RECORDS_BYTES of the queue at a time. A frame counts as unsent until the
  kernel has all of its records. Regions of files are read and encrypted.
* An orderly end says `close_notify`; a reset is the reset of TCP.

A rule that delays frames does not delay the handshake; a rule that blocks holds it back.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable

from ..seam import Buffer, FrameHandler, Peer
from .disk import RealRegion
from .link import RealLink
from .link_context import READ_BYTES, LinkContext
from .send_queue import SendQueue
from .tls_session import TlsSession

HANDSHAKE_S = 30.0
"""Kafka's clients give a connection up after so long (default of socket.connection.setup.timeout.max.ms)."""
RECORDS_BYTES = 256 * 1024
"""16 full records."""


class TlsSendQueue(SendQueue):
    """The send queue of a link with TLS: pieces stay in it until the kernel has their records."""

    __slots__ = ("_encrypted", "_session")

    def __init__(self, sock: socket.socket, session: TlsSession) -> None:
        super().__init__(sock)
        self._session = session
        self._encrypted = 0  # bytes of the first pieces that are records now

    def clear(self) -> None:
        """Forget everything unsent; nothing more may be sent."""
        super().clear()
        self._encrypted = 0

    def send(self) -> bool:
        """Give the kernel as much as it takes; False when it takes no more for now. OSError: the socket or a file."""
        session = self._session
        while session.flush():
            if self._encrypted:
                self._drop(self._encrypted)
                self._encrypted = 0
            if not self.pieces or not session.established:
                return True
            self._encrypted = session.encrypt(self._next_bytes())
        return False

    def _next_bytes(self) -> Buffer:
        parts: list[Buffer] = []
        left = RECORDS_BYTES
        for piece in self.pieces:
            if isinstance(piece, RealRegion):
                part: Buffer = os.pread(piece.fd, min(piece.size, left), piece.position)
                if not part and not parts:
                    raise OSError(errno.EIO, "a file was cut under a response")
            else:
                part = piece if len(piece) <= left else memoryview(piece)[:left]
            parts.append(part)
            left -= len(part)
            if not left or len(part) < len(piece):
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)


class TlsLink(RealLink):
    """A connected socket with TLS."""

    __slots__ = ("_deadline", "_on_established", "_opened", "_session")

    def __init__(
        self,
        context: LinkContext[RealLink],
        sock: socket.socket,
        peer: Peer,
        *,
        max_frame_bytes: int,
        accepted: bool,
        tls: ssl.SSLContext,
        server_name: str | None = None,
    ) -> None:
        super().__init__(context, sock, peer, max_frame_bytes=max_frame_bytes, accepted=accepted)
        if not context.records:
            context.records = memoryview(bytearray(READ_BYTES))
        self._session = session = TlsSession(
            sock,
            tls,
            plain=context.buffer,
            records=context.records,
            server_side=accepted,
            server_name=server_name,
        )
        self._sock = session
        self._queue = TlsSendQueue(sock, session)
        self._deadline = context.loop.call_later(HANDSHAKE_S, self._late)
        self._opened: asyncio.Future[None] | None = None if accepted else context.loop.create_future()
        self._on_established: Callable[[], object] = _nothing

    def start(self, handler: FrameHandler) -> None:
        """Begin with the handshake, under the rules in force."""
        super().start(handler)
        if self._opened is not None:
            self._shake_hands()

    async def opened(self) -> None:
        """Wait for the handshake of an opened link; OSError where it fails."""
        assert self._opened is not None, "an accepted link"
        await self._opened

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the peer, as DER, when it has shown one that is trusted."""
        return self._session.certificate

    def when_established(self, call: Callable[[], object]) -> None:
        """Run `call` after the handshake, before the first frame."""
        assert not self._session.established, "a handler asks while its link is made"
        self._on_established = call

    # --------------------------------------------------------------- reading

    def _readable(self) -> None:
        session = self._session
        if self._gates or not (session.established or self._shake_hands()):
            return
        super()._readable()
        while session.has_input and not self._gates:
            super()._readable()
        if session.owes:
            self.flush()

    def _update_reading(self) -> None:
        super()._update_reading()
        if self._reading and self._session.has_input:
            self._context.loop.call_soon(self._readable)

    def _shake_hands(self) -> bool:
        try:
            done = self._session.handshake()
        except OSError as error:
            self._session.say_end()  # the alert that says why
            self._fail(f"{error.strerror or error}")
            return False
        if done:
            self._deadline.cancel()
            if self._opened is None:
                self._context.on_handshake(False)
            if self._opened is not None and not self._opened.done():
                self._opened.set_result(None)
            self._on_established()
        self.flush()
        return done and not self._gates

    def _late(self) -> None:
        self._fail(f"not done after {HANDSHAKE_S:.0f} s")

    def _fail(self, reason: str) -> None:
        reason = f"TLS handshake: {reason}"
        if self._opened is None:
            self._context.on_handshake(True)
        self._context.log("debug", f"closing the link to {self._peer}: {reason}")
        self._end(reason, at_close="drop")

    def _kernel_bytes(self) -> int:
        return super()._kernel_bytes() + self._session.waiting_bytes

    # --------------------------------------------------------------- closing

    def _end(self, reason: str, *, at_close: str) -> None:
        self._deadline.cancel()
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(ConnectionError(reason))
        if at_close == "drain" and not self._session.established:
            at_close = "drop"  # nothing can be sent
        super()._end(reason, at_close=at_close)

    def _finish(self) -> None:
        if self._fd >= 0 and self._at_close == "drain":
            self._session.say_end()
        super()._finish()


def _nothing() -> None:
    """Nothing waits for the handshake."""
