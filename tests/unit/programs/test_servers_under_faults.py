"""Servers of programs that are killed, paused, cut off and reset, and the connections that this leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulated_programs import Programs, programs
from simulated_servers import PORT, closed, connected, echo, result_of, serving


def test_what_a_killed_program_leaves_is_the_end_and_a_reset_of_what_is_sent_to_it() -> None:
    async def client(running: Programs) -> list[str]:
        reader, writer = await connected()
        writer.write(b"hello")
        found = [(await reader.readexactly(5)).decode()]
        running.machines["server"].kill()
        found.append(repr(await reader.read()))
        try:
            while True:
                writer.write(b"are you there?")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError as error:
            found.append(str(error))
        writer.close()
        with pytest.raises(BrokenPipeError):
            await writer.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", PORT)
        running.start("server", serving(echo))
        _, writer = await connected()
        writer.close()
        return found

    with programs() as running:
        running.start("server", serving(echo))
        assert result_of(running, lambda: client(running)) == ["hello", "b''", "Connection lost"]


def test_what_a_killed_program_had_not_read_is_a_reset() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport: Any = writer.transport
        transport.pause_reading()
        await asyncio.sleep(100)

    async def client(running: Programs) -> str:
        reader, writer = await connected()
        writer.write(b"hello")
        await asyncio.sleep(1)
        running.machines["server"].kill()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await closed(writer)
        return "reset"

    with programs() as running:
        running.start("server", serving(silent))
        assert result_of(running, lambda: client(running)) == "reset"


def test_a_paused_program_is_connected_by_its_kernel_and_answers_when_it_goes_on() -> None:
    async def client() -> float:
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("server", PORT)
        began = asyncio.get_running_loop().time()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        await closed(writer)
        return asyncio.get_running_loop().time() - began

    with programs() as running:
        running.start("server", serving(echo))
        running.world.loop.run_for(500)
        running.machines["server"].pause()
        task = running.start("client", client)
        running.world.loop.run_for(5_000)
        running.machines["server"].resume()
        assert running.world.loop.run_until(task.done, 5_000)
        assert task.result() >= 3.9


@pytest.mark.parametrize("mode", ["deliver", "reset"])
def test_a_blocked_link_holds_back_what_is_sent_and_the_program_still_reaches_itself(mode: str) -> None:
    async def asks_itself() -> None:
        async with await asyncio.start_server(echo, None, PORT):
            for _ in range(40):
                reader, writer = await asyncio.open_connection("localhost", PORT)
                writer.write(b"x")
                await reader.readexactly(1)
                writer.close()
                answered.append(asyncio.get_running_loop().time())
                await asyncio.sleep(0.1)

    answered: list[float] = []

    async def client(ready: asyncio.Event) -> str:
        reader, writer = await connected()
        ready.set()
        await asyncio.sleep(0.5)
        writer.write(b"hello")
        try:
            return (await reader.readexactly(5)).decode()
        except ConnectionResetError:
            return "reset"
        finally:
            await closed(writer)

    with programs() as running:
        running.start("server", asks_itself)
        ready = asyncio.Event()
        task = running.start("client", lambda: client(ready))
        assert running.world.loop.run_until(ready.is_set, 5_000)
        control = running.machines["server"].host
        assert control is not None
        control.control.call("links.block", peers=["client *"])
        before = len(answered)
        running.world.loop.run_for(2_000)
        assert not task.done()
        assert len(answered) >= before + 15
        assert control.control.call("links")["held_in_bytes"] == 5
        control.control.call("links.heal", mode=mode)
        assert running.world.loop.run_until(task.done, 5_000)
        assert task.result() == {"deliver": "hello", "reset": "reset"}[mode]


def test_a_reset_from_outside_hits_the_connections_with_others_and_not_those_within_the_machine() -> None:
    async def server() -> str:
        async with await asyncio.start_server(echo, None, PORT):
            reader, writer = await asyncio.open_connection("localhost", PORT)
            await asyncio.sleep(3)
            writer.write(b"still here")
            found = await reader.readexactly(10)
            await closed(writer)
            return found.decode()

    async def client(ready: asyncio.Event) -> str:
        reader, writer = await connected()
        ready.set()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await closed(writer)
        return f"{writer.get_extra_info('sockname')}"

    with programs() as running:
        own = running.start("server", server)
        ready = asyncio.Event()
        task = running.start("client", lambda: client(ready))
        assert running.world.loop.run_until(ready.is_set, 5_000)
        host = running.machines["server"].host
        assert host is not None
        assert host.control.call("links.reset", peers=["client *"])["links"] == 1
        assert running.world.loop.run_until(lambda: task.done() and own.done(), 10_000)
        assert own.result() == "still here"
        assert "10.0.0." in task.result()


def test_both_sides_see_the_same_addresses_and_an_old_server_does_not_close_the_port_of_a_new_start() -> None:
    servers: list[asyncio.Server] = []
    peers: list[Any] = []

    async def server() -> None:
        async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.append((writer.get_extra_info("peername"), writer.get_extra_info("sockname")))
            writer.close()

        servers.append(await asyncio.start_server(handle, None, PORT))
        await servers[-1].serve_forever()

    async def client() -> Any:
        reader, writer = await connected()
        await reader.read()
        await closed(writer)
        return writer.get_extra_info("sockname"), writer.get_extra_info("peername")

    with programs() as running:
        running.start("server", server)
        first = result_of(running, client)
        running.machines["server"].kill()
        running.start("server", server)
        second = result_of(running, client)
        servers[0].close()
        third = result_of(running, client)
    assert peers == [first, second, third]


def test_a_full_queue_of_connections_makes_a_client_wait() -> None:
    async def client() -> float:
        began = asyncio.get_running_loop().time()
        writers = [(await asyncio.open_connection("server", PORT))[1] for _ in range(3)]
        for writer in writers:
            await closed(writer)
        return asyncio.get_running_loop().time() - began

    with programs() as running:
        running.start("server", serving(echo, backlog=2))
        running.world.loop.run_for(500)
        running.machines["server"].pause()
        task = running.start("client", client)
        running.world.loop.run_for(2_500)
        assert not task.done()
        running.machines["server"].resume()
        assert running.world.loop.run_until(task.done, 10_000)
        assert task.result() > 2
