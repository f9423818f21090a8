"""A registry and its clients in the test's own event loop, on real hosts and real sockets."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import zookeeper_server
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.network.kazoo_link import KazooLink
from harrow.cluster.registry import RegistryClient, ZooKeeperClient
from harrow.cluster.registry.operations import Event
from harrow.cluster.registry.server import RegistryServer
from harrow.cluster.registry.store import MemoryStore, Store

DEADLINE_S = 20.0
_numbers = itertools.count()


class RecordedEvents:
    """Stores the events that it is called with, and lets a test wait for them."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._changed = asyncio.Event()

    def __call__(self, event: Any = None) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def next(self, count: int = 1) -> list[Any]:
        await self.until(lambda: len(self.events) >= count)
        return self.events


async def created(client: RegistryClient, path: str) -> None:
    """Wait until the node exists."""
    recorder = RecordedEvents()
    if await client.exists(path, watch=recorder) is None:
        await recorder.next()


async def deleted(client: RegistryClient, path: str) -> None:
    """Wait until the node is deleted."""
    recorder = RecordedEvents()
    if await client.exists(path, watch=recorder) is not None:
        await recorder.next()


class RegistryFixture:
    """One server on a fixed port; a test may stop it and start it again on the same or another store."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.store: Store = MemoryStore()
        self.port = 0
        self.server: RegistryServer
        self._host: RealHost
        self._clients = 0

    async def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._host = RealHost("registry", str(self.folder / "registry"), listeners={"registry": listener})
        await self._host.start()
        self.server = RegistryServer(self._host, self.store)
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()
        await self._host.stop()

    async def host(self, name: str) -> RealHost:
        host = RealHost(name, str(self.folder / name))
        await host.start()
        self._stack.push_async_callback(host.stop)
        return host

    async def client(
        self, name: str = "broker 1", *, timeout_ms: int = 5000, host: RealHost | None = None
    ) -> RegistryClient:
        self._clients += 1
        if host is None:
            host = await self.host(f"host-{self._clients}")
        client = self._client(host, name, timeout_ms)
        await client.start()
        self._stack.push_async_callback(client.close)
        return client

    def _client(self, host: RealHost, name: str, timeout_ms: int) -> RegistryClient:
        return RegistryClient(host, ("127.0.0.1", self.port), name, timeout_ms)


class ZooKeeperFixture(RegistryFixture):
    """A root of its own in a real ZooKeeper, and clients of it; the server keeps running."""

    async def start(self) -> None:
        self.connect = f"{zookeeper_server.shared()}/test-{os.getpid()}-{next(_numbers)}"

    async def stop(self) -> None: ...

    def _client(self, host: RealHost, name: str, timeout_ms: int) -> RegistryClient:
        return ZooKeeperClient(host, KazooLink(self.connect, timeout_ms), name, timeout_ms)


REGISTRIES: dict[str, type[RegistryFixture]] = {"embedded": RegistryFixture, "zookeeper": ZooKeeperFixture}


def run(folder: Path, test: Callable[[RegistryFixture], Coroutine[Any, Any, None]], on: str = "embedded") -> None:
    """Run `test` with a registry; stop the registry and its clients afterwards."""
    if on == "zookeeper":
        zookeeper_server.shared()  # skips the test where ZooKeeper is not installed

    async def main() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            registry = REGISTRIES[on](folder, stack)
            await registry.start()
            stack.push_async_callback(registry.stop)
            await test(registry)

    asyncio.run(main())


__all__ = ["Event", "RecordedEvents", "RegistryFixture", "run"]
