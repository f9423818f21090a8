"""Servers in simulated programs, and clients that connect to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from simulated_programs import Programs

PORT = 8080
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what is received, until the other side ends."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


def serving(handler: Handler, *, backlog: int = 100) -> Callable[[], Any]:
    async def main() -> None:
        server = await asyncio.start_server(handler, None, PORT, limit=4_096, backlog=backlog)
        await server.serve_forever()

    return main


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def connected(name: str = "server", port: int = PORT) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, also to a program that does not serve yet."""
    for _ in range(1_000):
        try:
            return await asyncio.open_connection(name, port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.001)
    raise AssertionError(f"{name}:{port} did not serve")


def results_of_both(running: Programs, server: Callable[[], Any], client: Callable[[], Any]) -> tuple[Any, Any]:
    """Run a client beside a server that ends by itself; return what each returned."""
    task = running.start("server", server)
    received = result_of(running, client)
    assert running.world.loop.run_until(task.done, 5_000)
    return task.result(), received


def result_of(running: Programs, main: Callable[[], Any]) -> Any:
    return running.run(main)[0]
