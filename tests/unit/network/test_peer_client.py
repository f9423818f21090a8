"""Requests to a broker over real sockets: pipelined, matched to their responses, timed out, failed with their link."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.seam import Peer
from harrow.cluster.ids import NodeId
from harrow.cluster.network.peers import PeerClient
from harrow.cluster.wire import messages
from served_listener import HEARTBEAT, answer, heartbeat, log_lines, run, serving


def test_pipelined_requests_get_their_own_responses_in_any_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            client = s.client()
            body = messages.encode_request(HEARTBEAT, 4, heartbeat(4, "g"))
            calls = [asyncio.create_task(client.request_parts(HEARTBEAT, 4, (body,), 5000)) for _ in range(20)]
            asked = [await s.requests.get() for _ in range(20)]
            assert len({request.correlation_id for request in asked}) == 20
            assert {request.peer for request in asked} == {Peer("broker", "2")}
            assert s.connections() == 1
            for i, request in reversed(list(enumerate(asked))):
                request.respond_parts((f"answer {i}".encode(),))
            for i, call in enumerate(calls):
                assert bytes(await call) == f"answer {i}".encode()
            client.close()

    run(main())


def test_a_request_without_a_response_in_time_closes_the_link_and_the_next_opens_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            client = s.client()
            beside = asyncio.create_task(client.request(HEARTBEAT, 0, heartbeat(0, "b"), 5000))
            await s.requests.get()
            with pytest.raises(TimeoutError, match="broker 1 did not answer API 12 within 10 ms"):
                await client.request(HEARTBEAT, 0, heartbeat(0, "a"), 10)
            late = await s.requests.get()
            with pytest.raises(ConnectionError):
                await beside
            answer(late)
            assert not client.connected
            s.handler = answer
            response = await client.request(HEARTBEAT, 0, heartbeat(0, "c"), 5000)
            assert response.error_code == ErrorCode.none
            client.close()

    run(main())


def test_a_lost_connection_fails_the_requests_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            client = s.client()
            call = asyncio.create_task(client.request(HEARTBEAT, 0, heartbeat(0, "a"), 5000))
            await s.requests.get()
            s.sockets.close()
            with pytest.raises(ConnectionError):
                await call
            with pytest.raises(ConnectionRefusedError):
                await client.request(HEARTBEAT, 0, heartbeat(0, "a"), 5000)

    run(main())


def test_requests_to_a_blocked_peer_time_out_and_succeed_after_healing(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            s.handler = answer
            client = s.client()
            await s.op("links.block", peers=["broker 1"])
            with pytest.raises(TimeoutError, match="no link to broker 1"):
                await client.request(HEARTBEAT, 0, heartbeat(0, "a"), 10)
            call = asyncio.create_task(client.request(HEARTBEAT, 0, heartbeat(0, "a"), 5000))
            await s.host.tasks.sleep(0)
            await s.op("links.heal")
            assert (await call).error_code == ErrorCode.none
            client.close()

    run(main())


@pytest.mark.parametrize("connected", [True, False])
def test_closing_fails_the_requests_that_wait(tmp_path: Path, connected: bool) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            client = s.client()
            if not connected:
                await s.op("links.block", peers=["*"])
            call = asyncio.create_task(client.request(HEARTBEAT, 0, heartbeat(0, "a"), 5000))
            if connected:
                await s.requests.get()
            else:
                await s.host.tasks.sleep(0)
            client.close()
            with pytest.raises(ConnectionError):
                await call
            with pytest.raises(ConnectionError):
                await client.request(HEARTBEAT, 0, heartbeat(0, "a"), 5000)

    run(main())


def test_a_response_that_is_not_the_protocol_fails_the_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            s.handler = lambda request: request.respond_parts((b"",))
            client = s.client()
            with pytest.raises(WireError):
                await client.request(HEARTBEAT, 0, heartbeat(0, "a"), 5000)
            client.close()

    run(main())


def test_a_response_without_a_request_closes_the_link(tmp_path: Path) -> None:
    async def main() -> None:
        async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(struct.pack(">ii", 4, 12345))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        host = RealHost("broker-1", str(tmp_path))
        client = PeerClient(host, NodeId(1), NodeId(2), "127.0.0.1", port)
        with pytest.raises(ConnectionError):
            await client.request(HEARTBEAT, 0, heartbeat(0, "a"), 5000)
        client.close()
        await host.stop()
        server.close()

    run(main())
    assert "never sent" in log_lines(tmp_path)[0]
