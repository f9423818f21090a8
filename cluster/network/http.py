"""A page over HTTP on loopback, for Prometheus (C10). Owns: `PageServer`, which serves one path and nothing else.

No traffic of clients or brokers uses this server, and no fault acts on it. The server reads a request up to its empty
line, responds and closes the connection. Strangers cost nothing (A6): a connection is closed without a response and
without a line in the log when its request is longer than REQUEST_BYTES_MOST, when request and response take longer than
REQUEST_TIMEOUT_S, and, the oldest first, when more than CONNECTIONS_MOST are open, so that a scraper is still served.
What may fail: OSError when the port is in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOPBACK = "127.0.0.1"
REQUEST_BYTES_MOST = 16_384
REQUEST_TIMEOUT_S = 10.0
CONNECTIONS_MOST = 32
"""Each takes a descriptor of the broker, which its logs need; scrapers have one or two."""


class PageServer:
    """Serves the result of `page()` at `path`, with `content_type`."""

    def __init__(self, path: str, content_type: str, page: Callable[[], bytes]) -> None:
        self._path = path
        self._content_type = content_type
        self._page = page
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The open connections, oldest first."""

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    async def start(self, port: int) -> int:
        """Listen on loopback at `port` (0: any free port); returns the bound port."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, port, limit=REQUEST_BYTES_MOST)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MOST:
            self._reset(next(iter(self._open)))
        self._open[writer] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response_to(head.split(b"\r\n", 1)[0]))
                await writer.drain()
                writer.close()
                await writer.wait_closed()  # a client that does not read holds back its end
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            pass  # the client is no scraper, or it closed the connection
        finally:
            self._reset(writer)

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self._open.pop(writer, None)
        writer.transport.abort()  # no effect on a connection that is closed

    def _response_to(self, line: bytes) -> bytes:
        method, _, rest = line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"GET only\n")
        if path != self._path:
            return _response("404 Not Found", "text/plain", f"see {self._path}\n".encode())
        body = self._page()
        return _response("200 OK", self._content_type, body, head_only=method == b"HEAD")


def _response(status: str, content_type: str, body: bytes, *, head_only: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if head_only else body)
