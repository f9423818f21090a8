"""What the page of the metrics does with strangers: each connection ends, and a scraper is served meanwhile (A6)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from harrow.cluster.network import http
from harrow.cluster.network.http import CONNECTIONS_MOST, PageServer
from served_listener import run
from waiting import until

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Page:
    """A served page, its connections, and what the event loop has to say about them."""

    def __init__(self, body: bytes) -> None:
        self.server = PageServer("/metrics", "text/plain", lambda: body)
        self.port = 0
        self.said: list[dict[str, object]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, sent: bytes = b"") -> Connection:
        connection = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(connection[1])
        connection[1].write(sent)
        return connection

    async def scraped(self) -> bytes:
        reader, _ = await self.connect(SCRAPE)
        return await reader.read()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self.server.close()


@asynccontextmanager
async def served(body: bytes = b"up 1\n") -> AsyncGenerator[Page]:
    page = Page(body)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: page.said.append(context))
    page.port = await page.server.start(0)
    try:
        yield page
    finally:
        page.close()
    assert page.said == [], "no stranger is worth a line"


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection, without a byte before."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "sent",
    [b"\xff" * 20_000, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), b"G", b"\x7f\xff\xff\xff", b""],
    ids=["garbage", "tls", "slow", "size", "silent"],
)
def test_a_stranger_is_closed_at_the_deadline_and_the_page_is_served(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    async def main() -> None:
        monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.2)
        async with served() as page:
            reader, _ = await page.connect(sent)
            assert (await page.scraped()).endswith(b"up 1\n")
            assert await is_closed(reader)

    run(main())


def test_a_byte_now_and_then_does_not_move_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.3)
        async with served() as page:
            reader, writer = await page.connect()

            paused = asyncio.Event()

            async def drip() -> None:
                with contextlib.suppress(OSError):
                    while not writer.is_closing():
                        writer.write(b"x")
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(paused.wait(), 0.02)

            dripping = asyncio.create_task(drip())
            assert await is_closed(reader)
            dripping.cancel()

    run(main())


def test_a_client_that_does_not_read_the_page_is_closed_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 16 << 20  # more than the kernel's buffers take

    async def main() -> None:
        monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.3)
        async with served(bytes(size)) as page:
            with socket.create_connection(("127.0.0.1", page.port), 20) as stuck:
                stuck.sendall(SCRAPE)
                await asyncio.to_thread(until, lambda: page.server.open_connections == 1)
                await asyncio.to_thread(until, lambda: page.server.open_connections == 0)
                assert await asyncio.to_thread(_read_to_the_end, stuck) < size

    run(main())


def _read_to_the_end(connection: socket.socket) -> int:
    """How many bytes arrive before the end of the connection."""
    read = 0
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 20):
            read += len(part)
    return read


def test_thousands_of_silent_connections_leave_the_page_to_scrapers() -> None:
    async def main() -> None:
        async with served() as page:
            silent = [await page.connect() for _ in range(20 * CONNECTIONS_MOST)]
            assert (await page.scraped()).endswith(b"up 1\n"), "long before the deadline"
            assert page.server.open_connections <= CONNECTIONS_MOST
            assert await is_closed(silent[0][0]), "the oldest was closed"

    run(main())
