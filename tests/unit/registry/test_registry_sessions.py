"""Registry server and client over real sockets: order, lost links, expiry, restart, kill (D3, D5)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import StorageError
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.registry import (
    BadVersionError,
    Check,
    Create,
    RegistryClient,
    RegistryUnavailableError,
    SessionExpiredError,
    Set,
)
from harrow.cluster.registry.server import RegistryServer
from harrow.cluster.registry.store import SqliteStore
from harrow.cluster.registry.tree_rows import Changes
from registry_in_process import RecordedEvents, RegistryFixture, run


def test_event_arrives_before_the_change_can_be_read(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        writer, reader = await registry.client("broker 1"), await registry.client("broker 2")
        await writer.create("/a", "0")
        recorder = RecordedEvents()
        for value in range(1, 50):
            await reader.get("/a", watch=recorder)
            await writer.set("/a", str(value))
            data, _ = await reader.get("/a")
            assert data == str(value)
            assert len(recorder.events) == value

    run(tmp_path, test)


def test_multi_over_a_link_is_all_or_nothing(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        created, stat = await client.multi([Create("/a", "x"), Set("/a", "y", 0)])
        assert (created.path, stat.version) == ("/a", 1)
        with pytest.raises(BadVersionError) as raised:
            await client.multi([Create("/b"), Check("/a", 0)])
        assert (raised.value.path, raised.value.index) == ("/a", 1)
        assert await client.exists("/b") is None
        found = await client.read_tree("/a")
        assert found["/a"][0] == "y"
        assert await client.get_many(["/a", "/b"]) == [found["/a"], None]

    run(tmp_path, test)


def test_lost_link_keeps_the_session_and_missed_watches_fire(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        host = await registry.host("cut-off")
        cut_off, writer = (await registry.client("broker 1", host=host), await registry.client("broker 2"))
        session = cut_off.session_id
        await cut_off.create("/mine", ephemeral=True)
        await writer.create("/a")
        recorder, states = RecordedEvents(), RecordedEvents()
        cut_off.on_state.append(states)
        await cut_off.get("/a", watch=recorder)
        await cut_off.exists("/none", watch=recorder)
        await cut_off.children("/a", watch=recorder)
        host.network.block(["registry"])  # type: ignore[attr-defined] # a link rule of the real host
        await writer.set("/a", "new")
        await writer.create("/none")
        host.network.heal("reset")  # type: ignore[attr-defined]  # a link rule of the real host
        await states.until(lambda: states.events[-2:] == ["disconnected", "connected"])
        await recorder.next(2)
        assert sorted(str(event.kind) for event in recorder.events) == ["changed", "created"]
        assert cut_off.session_id == session
        assert await writer.exists("/mine") is not None
        await writer.create("/a/child")  # the children watch was set again
        await recorder.next(3)

    run(tmp_path, test)


def test_operation_without_a_link_fails_and_says_whether_it_may_be_applied(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        host = await registry.host("cut-off")
        client = await registry.client(host=host)
        await client.create("/a")
        host.network.block(["registry"])  # type: ignore[attr-defined]  # a link rule of the real host
        write = asyncio.ensure_future(client.set("/a", "x"))
        read = asyncio.ensure_future(client.get("/a"))
        await asyncio.wait([write], timeout=0)
        host.network.heal("reset")  # type: ignore[attr-defined]  # a link rule of the real host
        for task, maybe in ((write, True), (read, False)):
            with pytest.raises(RegistryUnavailableError) as raised:
                await task
            assert raised.value.maybe_applied is maybe
        with pytest.raises(RegistryUnavailableError) as raised:
            await client.set("/a", "y")
        assert not raised.value.maybe_applied
        await client.until_connected()
        await client.set("/a", "z")

    run(tmp_path, test)


def test_silent_client_expires_and_learns_it_on_reconnecting(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        host = await registry.host("zombie")
        zombie = await registry.client("broker 1", timeout_ms=300, host=host)
        other = await registry.client("broker 2")
        first = zombie.session_id
        await zombie.create("/mine", ephemeral=True)
        expired, deleted = RecordedEvents(), RecordedEvents()
        zombie.on_expired.append(expired)
        await other.exists("/mine", watch=deleted)
        host.network.block(["registry"])  # type: ignore[attr-defined]  # a link rule of the real host
        await deleted.next()
        assert deleted.events[0].kind == "deleted"
        assert expired.events == []  # the client has not received the expiry yet
        host.network.heal("deliver")  # type: ignore[attr-defined]  # a link rule of the real host
        await expired.next()
        await zombie.until_connected()
        assert zombie.session_id > first
        assert await other.exists("/mine") is None

    run(tmp_path, test)


def test_close_ends_a_session_at_once_without_expiry(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        leaving, other = await registry.client("broker 1"), await registry.client("broker 2")
        await leaving.create("/mine", ephemeral=True)
        deleted, expired = RecordedEvents(), RecordedEvents()
        leaving.on_expired.append(expired)
        await other.exists("/mine", watch=deleted)
        await leaving.close()
        await deleted.next()
        assert expired.events == []
        with pytest.raises(RegistryUnavailableError):
            await leaving.get("/mine")

    run(tmp_path, test)


def test_server_restart_keeps_sessions_and_nodes(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        await registry.stop()
        registry.store = SqliteStore(str(tmp_path / "tree.sqlite"))
        await registry.start()
        client = await registry.client(timeout_ms=2000)
        states = RecordedEvents()
        client.on_state.append(states)
        session = client.session_id
        await client.create("/mine", "x", ephemeral=True)
        await registry.stop()
        await states.until(lambda: "disconnected" in states.events)
        registry.store = SqliteStore(str(tmp_path / "tree.sqlite"))
        await registry.start()
        await client.until_connected()
        assert client.session_id == session
        data, stat = await client.get("/mine")
        assert (data, stat.ephemeral_owner) == ("x", session)

    run(tmp_path, test)


def test_newer_link_of_a_session_replaces_the_older_link(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        states = RecordedEvents()
        client.on_state.append(states)
        reader, writer = await asyncio.open_connection("127.0.0.1", registry.port)
        hello: dict[str, Any] = {
            "op": "hello",
            "name": "broker 1",
            "session": client.session_id,
            "zxid": 0,
            "timeout_ms": 5000,
            "watches": {},
        }
        body = json.dumps(hello).encode()
        writer.write(len(body).to_bytes(4, "big") + body)
        size = int.from_bytes(await reader.readexactly(4), "big")
        response = json.loads(await reader.readexactly(size))
        assert response["hello"]["session"] == client.session_id
        await states.until(lambda: "disconnected" in states.events)
        writer.close()
        await client.until_connected()

    run(tmp_path, test)


@pytest.mark.parametrize("frame", [b"not json", b"[]", b'{"op":"hello"}', b'{"op":"get","path":"/"}', b"{}"])
def test_malformed_frame_closes_only_its_link(tmp_path: Path, frame: bytes) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        reader, writer = await asyncio.open_connection("127.0.0.1", registry.port)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await client.create("/still-here")

    run(tmp_path, test)


def test_unreachable_server_raises_an_error_with_its_address(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            host = RealHost("lonely", str(tmp_path))
            await host.start()
            client = RegistryClient(host, bound.getsockname(), "broker 1", 100, connection_timeout_ms=50)
            with pytest.raises(RegistryUnavailableError, match="did not respond within 50 ms"):
                await client.start()
            await client.close()
            await host.stop()

    asyncio.run(main())


class _BrokenStore(SqliteStore):
    broken = False

    def commit(self, changes: Changes) -> None:
        if self.broken:
            raise StorageError("no space left")
        super().commit(changes)


def test_failing_store_ends_the_server_without_a_response(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        await registry.stop()
        store = _BrokenStore(str(tmp_path / "tree.sqlite"))
        registry.store = store
        await registry.start()
        client = await registry.client()
        store.broken = True
        with pytest.raises(RegistryUnavailableError) as raised:
            await client.create("/a")
        assert raised.value.maybe_applied
        with pytest.raises(StorageError):
            await registry.server.failed()

    run(tmp_path, test)


# ------------------------------------------------------- a server that was paused


class ManualHost:
    """A host with a manual clock and manual timers."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: list[tuple[int, Any]] = []
        self.name = "registry"
        self.clock = self.tasks = self.network = self.trace = self

    def monotonic_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: float, call: Any) -> Any:
        self.timers.append((self.now + int(delay_ms), call))
        return self

    def cancel(self) -> None: ...
    def close(self) -> None: ...
    def emit(self, _event: object) -> None: ...
    def log(self, _level: str, _message: str, **_fields: object) -> None: ...
    def promise(self) -> Any:
        return None

    async def listen(self, *_: object, **__: object) -> Any:
        return self

    def run_timers(self) -> None:
        due, self.timers = self.timers, []
        for _, call in due:
            call()


# A session of 300 ms was silent for this long when the server's late timer ran; the server must not expire it.
@pytest.mark.parametrize(("late", "silent", "alive"), [(0, 100, True), (5000, 5100, True)])
def test_stopped_server_extends_the_sessions_by_its_absence(
    late: int, silent: int, alive: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        host: Any = ManualHost()
        server = RegistryServer(host, SqliteStore(str(tmp_path / "tree")))
        await server.start()
        session = server.tree.open_session("broker 1", 300, 0).result
        host.now = host.timers[0][0] + late
        assert host.now == silent
        host.run_timers()
        assert (session in server.tree.sessions) is alive
        # After that the session's time counts again.
        while session in server.tree.sessions:
            host.now = host.timers[0][0]
            host.run_timers()
        assert host.now == 300 + late
        await server.stop()

    asyncio.run(main())


# ------------------------------------------------------------------- kill -9

_CHILD = """
import json, os, sys
from harrow.cluster.process import run
sys.exit(run(json.loads(sys.argv[1]), 1))
"""


@contextlib.contextmanager
def _process(folder: Path, port: int) -> Generator[subprocess.Popen[bytes], None, None]:
    options = {
        "role": "registry",
        "name": "registry",
        "folder": str(folder),
        "seed": 0,
        "listeners": {"registry": port},
        "control": str(folder / "control.sock"),
    }
    child = subprocess.Popen([sys.executable, "-c", _CHILD, json.dumps(options)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child:
        try:
            assert json.loads(child.stdout.readline())["event"] == "ready"
            yield child
        finally:
            child.kill()


def test_kill_keeps_every_transaction_with_a_response(tmp_path: Path) -> None:
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keeper.bind(("127.0.0.1", 0))
        asyncio.run(check_after_kill(tmp_path, keeper.getsockname()[1]))


async def check_after_kill(tmp_path: Path, port: int) -> None:
    host = RealHost("broker-1", str(tmp_path / "broker-1"))
    await host.start()
    client = RegistryClient(host, ("127.0.0.1", port), "broker 1", 5000)
    acknowledged = 0
    with _process(tmp_path / "registry", port) as child:
        await client.start()
        await client.create("/count", "0")
        await client.create("/mine", ephemeral=True)
        session = client.session_id
        with contextlib.suppress(RegistryUnavailableError):
            while True:
                if acknowledged == 100:
                    os.kill(child.pid, signal.SIGKILL)
                await client.set("/count", str(acknowledged + 1))
                acknowledged += 1
    with _process(tmp_path / "registry", port):
        await client.until_connected()
        assert client.session_id == session
        data, stat = await client.get("/count")
        assert int(data) in (acknowledged, acknowledged + 1)  # the result of the last write is unknown
        assert stat.version == int(data)
        assert await client.exists("/mine") is not None
        await client.close()
    await host.stop()
    assert acknowledged >= 100


def test_expiry_fails_operations_in_flight(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        registry.server.tree.close_session(client.session_id)
        with pytest.raises(SessionExpiredError):
            await client.create("/a")
        await client.until_connected()
        await client.create("/a")

    run(tmp_path, test)
