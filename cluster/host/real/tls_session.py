"""TLS on one connected socket: plain bytes above, records below, nothing blocks.

Owns: the state of TLS, the records read and not yet decrypted, and the records that the kernel has not taken. The
socket stays a plain one, so that a link may be reset, or be silent, whatever TLS would say.

Invariants: what is above sees the interface of a non-blocking socket (`recv`, `recv_into`). `has_input` says
that decrypted bytes may wait here, of which the event loop knows nothing. A handshake takes at most
HANDSHAKE_BYTES_MOST from the peer. A peer that makes TLS itself send (key updates, refused renegotiations) and does not
read is refused at CONTROL_BYTES_MOST.

What may fail: OSError, of which ssl.SSLError is one; BlockingIOError where nothing is to read.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from ..seam import Buffer

HANDSHAKE_BYTES_MOST = 256 * 1024
"""OpenSSL takes certificates of 100 KB; the rest of a handshake is small."""
CONTROL_BYTES_MOST = 64 * 1024


class TlsSession:
    """TLS of one connected socket. `plain` and `records` are buffers that the sessions of a host share."""

    __slots__ = (
        "_ended",
        "_handshake_bytes",
        "_incoming",
        "_outgoing",
        "_plain",
        "_records",
        "_sock",
        "_tls",
        "_unsent",
        "established",
        "has_input",
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        plain: memoryview,
        records: memoryview,
        server_side: bool,
        server_name: str | None = None,
    ) -> None:
        self._sock = sock
        self._plain = plain
        self._records = records
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._unsent = memoryview(b"")
        self._handshake_bytes = 0
        self._ended = False
        self.established = False
        """True after the handshake."""
        self.has_input = False
        """True while plain bytes, or the end of the input, may wait here."""

    @property
    def certificate(self) -> bytes | None:
        """The verified certificate of the peer, as DER; None without one."""
        return self._tls.getpeercert(binary_form=True) if self.established else None

    @property
    def owes(self) -> bool:
        """True while TLS itself has something to send."""
        return self._outgoing.pending > 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were read and are not decrypted."""
        return self._incoming.pending

    # --------------------------------------------------------------- reading

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done, False when the peer must send more."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            else:
                self.established = True
                self.has_input = self._incoming.pending > 0
                return True
            try:
                count = self._sock.recv_into(self._records)
            except (BlockingIOError, InterruptedError):
                return False
            if not count:
                raise ConnectionResetError(0, "closed by the peer during the handshake")
            self._handshake_bytes += count
            if self._handshake_bytes > HANDSHAKE_BYTES_MOST:
                raise ConnectionAbortedError(0, f"a handshake of more than {HANDSHAKE_BYTES_MOST} bytes")
            self._incoming.write(self._records[:count])

    def recv(self, size: int) -> bytes:
        """Up to `size` plain bytes; none at the end of the input."""
        count = self.recv_into(self._plain[:size])
        return bytes(self._plain[:count])

    def recv_into(self, view: memoryview) -> int:
        """Fill `view` with plain bytes; returns how many, 0 at the end of the input."""
        count = self._decrypt(view) if self.has_input else 0
        if count or self._ended:
            return count
        got = self._sock.recv_into(self._records)
        if not got:
            return 0
        self._incoming.write(self._records[:got])
        count = self._decrypt(view)
        if not count and not self._ended:
            raise BlockingIOError
        return count

    def _decrypt(self, view: memoryview) -> int:
        at, size = 0, len(view)
        read: Any = self._tls.read  # typeshed does not know that it fills a memoryview
        self.has_input = False
        try:
            while at < size:
                count = read(size - at, view[at:])
                if not count:
                    self._ended = self.has_input = True
                    break
                at += count
            else:
                self.has_input = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = self.has_input = True
        if self._outgoing.pending > CONTROL_BYTES_MOST:
            raise ConnectionAbortedError(0, "the peer makes TLS send and does not read")
        return at

    # --------------------------------------------------------------- writing

    def encrypt(self, data: Buffer) -> int:
        """Make records of plain bytes; `flush` sends them."""
        view = memoryview(data)
        at = 0
        while at < len(view):
            at += self._tls.write(view[at:])
        return at

    def flush(self) -> bool:
        """Give the kernel records; True when it has taken all."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._sock.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[sent:]
        return True

    # --------------------------------------------------------------- closing

    def say_end(self) -> None:
        """Send `close_notify`, as far as the kernel takes it at once."""
        with contextlib.suppress(OSError):
            if self.established:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
            self.flush()

    def getsockopt(self, level: int, option: int) -> int:
        """Return an option of the socket."""
        return self._sock.getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        """Set an option of the socket."""
        self._sock.setsockopt(level, option, value)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
