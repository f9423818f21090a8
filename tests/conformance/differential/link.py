"""A connection to one broker that sends bytes and says what became of them: a response, silence, or the end of the
link.

Owns: frames, correlation ids and deadlines. A `Link` opens its socket at the first request and again after its end.
`Outcome.kind` is `response`, `closed` (the broker ended the connection), `silent` (no response within the deadline) or
`refused` (nothing listens: the broker is dead).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

from .codec import Body, UndecodableError, request_bytes, response_body

TIMEOUT_S = 4.0
CLIENT_ID = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a request; `body` is empty unless `kind` is `response`."""

    kind: str
    body: Body = field(default_factory=dict[str, Any])


class Link:
    """A connection to `port` on loopback."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._correlation = 0
        self._arrived = b""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._arrived = None, b""

    def send(self, name: str, version: int, body: Body, *, cut: int | None = None, tail: bytes = b"") -> int:
        """Sends a request, without its last `cut` bytes or with bytes behind it; returns its correlation id."""
        self._correlation += 1
        frame = request_bytes(name, version, body, self._correlation, CLIENT_ID)
        frame = frame[: len(frame) - (cut or 0)] + tail
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError:
            pass  # `receive` finds the end of the link
        return self._correlation

    def receive(self, name: str, version: int, correlation: int, timeout_s: float) -> Outcome:
        """Waits for the response to a request; after anything else than a response the link is closed."""
        if self._socket is None:
            return Outcome(kind="refused")
        self._socket.settimeout(timeout_s)
        try:
            frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        except TimeoutError:
            self.close()
            return Outcome(kind="silent")
        except OSError:
            self.close()
            return Outcome(kind="closed")
        if int.from_bytes(frame[:4], "big") != correlation:
            self.close()
            return Outcome(kind="other response")
        try:
            return Outcome(kind="response", body=response_body(name, version, frame))
        except UndecodableError as error:
            return Outcome(kind="undecodable", body={"text": str(error)})

    def ask(
        self,
        name: str,
        version: int,
        body: Body,
        *,
        cut: int | None = None,
        tail: bytes = b"",
        timeout_s: float = TIMEOUT_S,
    ) -> Outcome:
        """Sends a request and waits for its outcome."""
        sent = self.send(name, version, body, cut=cut, tail=tail)
        return self.receive(name, version, sent, timeout_s)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        while len(self._arrived) < size:
            part = self._socket.recv(65_536)
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            self._arrived += part
        taken, self._arrived = self._arrived[:size], self._arrived[size:]
        return taken
