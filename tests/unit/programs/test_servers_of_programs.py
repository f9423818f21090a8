"""Programs that serve connections to each other: bytes, their ends, back pressure, one run for a seed."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from typing import Any

import pytest
from harrow.cluster.host.programs import FenceError
from harrow.cluster.host.simulated.stream import WINDOW_BYTES
from simulated_programs import programs, programs_and_brokers
from simulated_servers import PORT, closed, connected, echo, result_of, results_of_both, serving

LARGE = 3_000_000


def test_what_two_programs_send_arrives_in_order_and_a_half_closed_connection_still_receives() -> None:
    sent = bytes(range(251)) * (LARGE // 251)

    async def client() -> tuple[bytes, int]:
        reader, writer = await connected()
        pieces = list[bytes]()

        async def read() -> None:
            while data := await reader.read(65_536):
                pieces.append(data)

        reading = asyncio.create_task(read())
        for at in range(0, len(sent), 100_000):
            writer.write(sent[at : at + 100_000])
            await writer.drain()
        writer.write_eof()
        await reading
        writer.close()
        await writer.wait_closed()
        return b"".join(pieces), len(pieces)

    with programs() as running:
        running.start("server", serving(echo))
        received, pieces = result_of(running, client)
    assert received == sent
    assert pieces > 10


def test_a_message_may_arrive_in_pieces_and_two_messages_in_one() -> None:
    sizes: list[int] = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            sizes.append(len(data))
        writer.close()

    async def client() -> None:
        _, writer = await connected()
        for _ in range(200):
            writer.write(b"x" * 2_000)
            await asyncio.sleep(0.0002)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(1)

    with programs() as running:
        running.start("server", serving(count))
        result_of(running, client)
    assert sum(sizes) == 400_000
    assert {size < 2_000 for size in sizes} == {size > 2_000 for size in sizes} == {True, False}


def test_a_writer_waits_for_a_reader_that_does_not_read() -> None:
    goes_on = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await goes_on.wait()
        while await reader.read(65_536):
            pass
        writer.close()

    written: list[int] = []

    async def client() -> bytes:
        reader, writer = await connected()
        for _ in range(LARGE // 10_000):
            writer.write(b"x" * 10_000)
            await writer.drain()
            written.append(10_000)
        writer.write_eof()
        found = await reader.read()
        await closed(writer)
        return found

    with programs() as running:
        running.start("server", serving(slow))
        task = running.start("client", client)
        running.world.loop.run_for(5_000)
        assert not task.done()
        assert WINDOW_BYTES < sum(written) < WINDOW_BYTES + 500_000, "the kernel's window, and asyncio's buffers"
        goes_on.set()
        assert running.world.loop.run_until(task.done, 5_000)
        assert (task.result(), sum(written)) == (b"", LARGE)


def test_a_port_refuses_before_its_server_starts_and_after_it_closed() -> None:
    async def serve_for_a_second() -> None:
        await asyncio.sleep(1)
        async with await asyncio.start_server(echo, "0.0.0.0", PORT):
            await asyncio.sleep(1)
        await asyncio.sleep(2)

    async def client() -> list[str]:
        found = list[str]()
        for _ in range(3):
            try:
                _, writer = await asyncio.open_connection("server", PORT)
            except ConnectionRefusedError as error:
                found.append(str(error))
            else:
                found.append("connected")
                writer.close()
            await asyncio.sleep(1.2)
        return found

    with programs() as running:
        running.start("server", serve_for_a_second)
        first, second, third = result_of(running, client)
    assert first == third == "[Errno 111] Connect call failed ('server', 8080)"
    assert second == "connected"


def test_a_program_reaches_itself_and_others_do_not_reach_what_it_serves_for_itself_alone() -> None:
    async def server() -> list[Any]:
        own = await asyncio.start_server(echo, "localhost", 9_100)
        every = await asyncio.start_server(echo, None, 0)
        port = every.sockets[0].getsockname()[1]
        answers: list[Any] = []
        for host, number in (("127.0.0.1", 9_100), ("server", 9_100), ("localhost", port), ("server", port)):
            reader, writer = await asyncio.open_connection(host, number)
            writer.write(b"hello")
            answers.append((await reader.readexactly(5), writer.get_extra_info("peername")[1] == number))
            writer.close()
        with pytest.raises(OSError, match="already in use"):
            await asyncio.start_server(echo, None, 9_100)
        ports.append(port)
        async with own, every:
            await asyncio.sleep(2)
        return answers

    ports: list[int] = []

    async def client() -> str:
        await asyncio.sleep(1)
        _, writer = await asyncio.open_connection("server", ports[0])
        address = writer.get_extra_info("peername")[0]
        writer.close()
        _, writer = await asyncio.open_connection(address, ports[0])
        writer.close()
        with pytest.raises(ConnectionRefusedError, match=r"served on 127\.0\.0\.1 of 'server' alone"):
            await asyncio.open_connection("server", 9_100)
        with pytest.raises(FenceError, match="it is served on the machines of 'server': connect to the name"):
            await asyncio.open_connection("127.0.0.1", ports[0])
        return "done"

    with programs() as running:
        served, said = results_of_both(running, server, client)
    assert said == "done"
    assert served == [(b"hello", True)] * 4


def test_a_server_that_closes_waits_for_its_connections() -> None:
    async def server() -> list[str]:
        found = list[str]()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(2))
            writer.close()
            await writer.wait_closed()
            found.append("handled")

        serving = await asyncio.start_server(handle, None, PORT)
        await asyncio.sleep(1)
        serving.close()
        assert not serving.is_serving()
        await serving.wait_closed()
        await asyncio.sleep(2)
        return found

    async def client() -> bytes:
        reader, writer = await connected()
        await asyncio.sleep(1.5)
        writer.write(b"ok")
        found = await reader.read()
        await closed(writer)
        return found

    with programs() as running:
        assert results_of_both(running, server, client) == (["handled"], b"ok")


def test_an_exception_in_a_protocol_ends_its_connection_alone() -> None:
    class Broken(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise LookupError("no such order")

    async def server() -> list[str]:
        loop: Any = asyncio.get_running_loop()
        async with await loop.create_server(Broken, None, PORT):
            await asyncio.sleep(2)
        return [str(context["exception"]) for context in loop.unhandled]

    async def client() -> bytes:
        reader, writer = await connected()
        writer.write(b"hello")
        found = await reader.read()
        await closed(writer)
        return found

    with programs() as running:
        assert results_of_both(running, server, client) == (["no such order"], b"")


def test_a_connection_is_made_through_a_socket_as_aiohttp_does() -> None:
    async def client() -> bytes:
        loop: Any = asyncio.get_running_loop()
        _, writer = await connected()
        await closed(writer)
        with socket.socket() as sock, pytest.raises(FenceError, match="this socket is not simulated"):
            await loop.create_connection(asyncio.Protocol, sock=sock)
        ((*_, address),) = await loop.getaddrinfo("server", PORT)
        sock = socket.socket()
        await loop.sock_connect(sock, address)
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(b"hello")
        found = await reader.readexactly(5)
        await closed(writer)
        return found

    with programs() as running:
        running.start("server", serving(echo))
        assert result_of(running, client) == b"hello"


def conversation(seed: int) -> str:
    """Return what two clients and a server see of each other, with its times, as a hash."""
    seen: list[object] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            seen.append((asyncio.get_running_loop().time(), len(data)))
            writer.write(data[::-1])
            await writer.drain()
        writer.close()

    async def client() -> None:
        reader, writer = await connected()
        for size in (10, 3_000, 200_000):
            writer.write(struct.pack(">i", size) * (size // 4))
            left = size // 4 * 4
            while left:
                data = await reader.read(left)
                seen.append((asyncio.get_running_loop().time(), len(data)))
                left -= len(data)
        writer.close()

    with programs(seed) as running:
        running.start("server", serving(handle))
        running.run(client, client)
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def test_a_seed_gives_the_same_conversation_and_another_seed_another_one() -> None:
    assert conversation(1) == conversation(1) != conversation(2)


def test_a_program_may_serve_beside_brokers_but_not_on_their_ports() -> None:
    async def main() -> str:
        loop: Any = asyncio.get_running_loop()
        with pytest.raises(OSError, match="by a broker"):
            await asyncio.start_server(echo, None, 9_001)
        with pytest.raises(OSError, match="no address of this machine"):
            await asyncio.start_server(echo, "10.9.9.9", PORT)
        with pytest.raises(FenceError, match="TLS is not simulated"):
            await loop.create_server(asyncio.Protocol, None, PORT, ssl=object())
        with pytest.raises(FenceError, match=r"'billing'.*no machine of the simulation; programs: program-0"):
            await asyncio.open_connection("billing", PORT)
        return "done"

    with programs_and_brokers(brokers=1) as (running, _):
        assert running.run(main) == ["done"]
