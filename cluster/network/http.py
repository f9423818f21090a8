"""A page over HTTP on loopback, for Prometheus (C10). Owns: `PageServer`, which serves one path and nothing else.

No traffic of clients or brokers goes through here, and no fault acts on it. A request is read up to its empty
line, answered, and its connection closed; what is longer or slower than any scraper's is closed without a word.
May fail: OSError when the port is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

LOOPBACK = "127.0.0.1"
REQUEST_BYTES_MOST = 16_384
PATIENCE_S = 10.0


class PageServer:
    """Serves `page()` at `path`, with `content_type`."""

    def __init__(self, path: str, content_type: str, page: Callable[[], bytes]) -> None:
        self._path = path
        self._content_type = content_type
        self._page = page
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> int:
        """Listen on loopback at `port` (0: any); the port that was bound."""
        self._server = await asyncio.start_server(
            self._serve, LOOPBACK, port, limit=REQUEST_BYTES_MOST
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            pass  # no scraper, or one that went away
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    def _answer(self, line: bytes) -> bytes:
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
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if head_only else body)
