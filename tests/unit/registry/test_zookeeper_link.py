"""What arrives on the loop from kazoo's thread, when that thread is faster than the loop (D3)."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from harrow.cluster.network.kazoo_link import KazooLink
from harrow.cluster.registry import RegistryClient, ZooKeeperClient
from registry_in_process import Event, RecordedEvents, RegistryFixture, run
from waiting import until
from zookeeper_server import needs_zookeeper

pytestmark = needs_zookeeper


SESSION_MS = 30_000
"""No session ends in these tests, however busy the machine is."""


async def clients(registry: RegistryFixture) -> tuple[RegistryClient, RegistryClient]:
    first = await registry.client("broker 1", timeout_ms=SESSION_MS)
    return first, await registry.client("broker 2", timeout_ms=SESSION_MS)


def kazoo_of(client: RegistryClient) -> Any:
    assert isinstance(client, ZooKeeperClient)
    assert isinstance(client._link, KazooLink)
    return client._link._client


def drop_connection(kazoo: Any) -> None:
    """Let kazoo's thread close its connection, as for a lost one; requests behind this one are lost."""
    protocol: Any = importlib.import_module("kazoo.protocol.connection")
    kazoo._call(protocol._CONNECTION_DROP, None)


def on_zookeeper(tmp_path: Path, test: Callable[[RegistryFixture], Coroutine[Any, Any, None]]) -> None:
    run(tmp_path, test, "zookeeper")


def test_a_watch_fires_although_its_event_is_there_before_the_loop_goes_on(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        reader, writer = await clients(registry)
        kazoo = kazoo_of(reader)
        send, fired = kazoo.exists_async, RecordedEvents()
        happened: list[object] = []

        def slow(path: str, watch: Callable[[Any], None]) -> Any:
            """Send the request, and return when the event was received."""

            def received(event: Any) -> None:
                watch(event)
                happened.append(event)

            result = send(path, watch=received)
            result.wait(20)
            kazoo_of(writer).create(path, b"")
            until(lambda: happened)
            return result

        kazoo.exists_async = slow
        assert await reader.exists("/a", watch=fired) is None
        assert await fired.next() == [Event("created", "/a")]

    on_zookeeper(tmp_path, test)


def test_a_change_is_reported_although_the_loop_learns_of_the_lost_connection_after_the_next_response(
    tmp_path: Path,
) -> None:
    async def test(registry: RegistryFixture) -> None:
        reader, writer = await clients(registry)
        await writer.create("/a", "0")
        changed = RecordedEvents()
        await reader.get("/a", watch=changed)
        kazoo = kazoo_of(reader)
        connect = kazoo.handler.create_connection

        def change_and_connect(*arguments: Any, **options: Any) -> Any:
            kazoo_of(writer).set("/a", b"1")
            return connect(*arguments, **options)

        kazoo.handler.create_connection = change_and_connect
        before = kazoo.last_zxid
        drop_connection(kazoo)  # no await until the new connection has had a response: the loop has learnt of neither
        until(lambda: not kazoo.connected or kazoo.last_zxid > before)
        until(lambda: kazoo.connected)
        kazoo.get("/a")
        assert kazoo.last_zxid > before
        assert await changed.next() == [Event("changed", "/a")]

    on_zookeeper(tmp_path, test)


def test_a_connection_that_is_lost_before_the_root_exists_leaves_the_root_to_the_next_connection(
    tmp_path: Path,
) -> None:
    async def test(registry: RegistryFixture) -> None:
        host = await registry.host("host")
        client = registry._client(host, "broker 1", SESSION_MS)
        kazoo = kazoo_of(client)
        make_root = kazoo.ensure_path_async
        tries: list[str] = []

        def lose_the_first(path: str) -> Any:
            tries.append(path)
            if len(tries) == 1:
                drop_connection(kazoo)
            return make_root(path)

        kazoo.ensure_path_async = lose_the_first
        await client.start()
        try:
            await client.create("/a", "1")
            assert (await client.get("/a"))[0] == "1"
            assert tries == ["/", "/"]
        finally:
            await client.close()

    on_zookeeper(tmp_path, test)
