"""Connections of simulated programs to simulated brokers: bytes into frames, refused and reset connections."""

from __future__ import annotations

import asyncio
import struct

import pytest
from harrow.cluster.host.programs.transports import FrameCutter
from hypothesis import given
from hypothesis import strategies as st
from simulated_programs import programs_and_brokers

API_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)
"""A request without a client id."""


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(min_value=1, max_value=7))
def test_a_stream_is_cut_into_its_frames_wherever_its_pieces_end(frames: list[bytes], step: int) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    cutter, found = FrameCutter(), list[bytes]()
    for at in range(0, len(stream), step):
        found += cutter.cut(stream[at : at + step])
    assert found == frames


def test_a_request_in_pieces_has_its_response() -> None:
    async def main() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", 9001)
        frame = struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS
        for at in range(len(frame)):
            writer.write(frame[at : at + 1])
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        response = await reader.readexactly(size)
        writer.close()
        await writer.wait_closed()
        (correlation,) = struct.unpack_from(">i", response)
        return int(correlation)

    with programs_and_brokers(brokers=1) as (running, _):
        assert running.run(main) == [7]


def test_a_dead_broker_refuses_and_a_killed_one_closes_its_connections() -> None:
    async def main(kill: asyncio.Event) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", 9001)
        kill.set()
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError) as error:
            await asyncio.open_connection("127.0.0.1", 9001)
        return type(error.value).__name__

    with programs_and_brokers(brokers=1) as (running, cluster):
        connected = asyncio.Event()
        task = running.start("client", lambda: main(connected))
        assert cluster.run_until(connected.is_set, 5_000)
        cluster.brokers[1].kill()
        assert cluster.run_until(task.done, 5_000)
        assert task.result() == "ConnectionRefusedError"


def test_a_reset_is_an_error_of_the_connection() -> None:
    async def main(connected: asyncio.Event) -> None:
        reader, _ = await asyncio.open_connection("127.0.0.1", 9001)
        connected.set()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)

    with programs_and_brokers(brokers=1) as (running, cluster):
        connected = asyncio.Event()
        task = running.start("client", lambda: main(connected))
        assert cluster.run_until(connected.is_set, 5_000)
        host = cluster.brokers[1].machine.host
        assert host is not None
        assert host.control.call("links.reset", peers=["client *"])["links"] == 1
        assert cluster.run_until(task.done, 5_000)
        task.result()


def test_a_client_behind_a_blocked_link_waits_and_goes_on_when_it_is_healed() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        _, writer = await asyncio.open_connection("127.0.0.1", 9001)
        writer.close()
        return loop.time() - began

    with programs_and_brokers(brokers=1) as (running, cluster):
        host = cluster.brokers[1].machine.host
        assert host is not None
        host.control.call("links.block", peers=["client *"])
        task = running.start("client", main)
        cluster.run_for(3_000)
        assert not task.done()
        host.control.call("links.heal")
        assert cluster.run_until(task.done, 1_000)
        assert task.result() >= 3
