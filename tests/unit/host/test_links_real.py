"""Frames over real sockets: whole and in order, with paused links, link rules and malformed frames; with TLS, too."""

from __future__ import annotations

import asyncio
import functools
import random
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from harrow.cluster.errors import ConfigError, WireError
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.seam import Link, Peer, TlsOptions
from harrow.harness.security.certificates import CertificateAuthority
from link_ends import Recorder, run


@functools.cache
def options() -> TlsOptions:
    authority = CertificateAuthority()
    broker = authority.issue("broker")
    return TlsOptions(chain=broker.chain, key=broker.key, trusted=authority.certificate)


@pytest.fixture(params=["PLAINTEXT", "SSL"])
def tls(request: pytest.FixtureRequest) -> TlsOptions | None:
    return options() if request.param == "SSL" else None


FRAME = struct.Struct(">i")


class Pair:
    """A host that serves, a host that connects, and the link between them."""

    def __init__(self, server: RealHost, client: RealHost, port: int, tls: TlsOptions | None = None) -> None:
        self.server, self.client, self.port, self._tls = server, client, port, tls
        self.accepted: asyncio.Queue[Recorder] = asyncio.Queue()
        self.on_frame: Callable[[Recorder, bytes], None] = lambda _recorder, _frame: None

    def accept(self, link: Link) -> Recorder:
        recorder = Recorder(link)
        recorder.on_frame = lambda frame: self.on_frame(recorder, frame)
        self.accepted.put_nowait(recorder)
        return recorder

    async def connect(self, timeout_ms: int = 5000) -> Recorder:
        made: list[Recorder] = []

        def make(link: Link) -> Recorder:
            made.append(Recorder(link))
            return made[0]

        await self.client.network.connect(
            Peer("broker", "1"), "127.0.0.1", self.port, make, timeout_ms=timeout_ms, tls=self._tls
        )
        return made[0]

    async def op(self, host: RealHost, op: str, **fields: Any) -> dict[str, Any]:
        import json

        answer = await host.control.answer(json.dumps({"op": op, **fields}).encode())
        assert answer["ok"], answer
        return answer


@asynccontextmanager
async def pair(folder: Path, *, tls: TlsOptions | None = None, max_frame_bytes: int = 1 << 26) -> AsyncGenerator[Pair]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = RealHost("server", str(folder / "server"), listeners={"clients": sock})
    client = RealHost("client", str(folder / "client"))
    made = Pair(server, client, sock.getsockname()[1], tls)
    await server.network.listen("clients", made.accept, max_frame_bytes=max_frame_bytes, tls=tls)
    try:
        yield made
    finally:
        await client.stop()
        await server.stop()


def log_lines(folder: Path) -> list[str]:
    return (folder / "server" / "broker.log").read_text().splitlines()


def test_frames_of_every_size_are_received_whole_and_in_order(tmp_path: Path, tls: TlsOptions | None) -> None:
    async def main() -> None:
        draw = random.Random(3)
        sizes = [0, 1, 4095, 4096, 4097, 262_144, 262_140, 1_048_576, 3_000_001] + [
            draw.choice((draw.randrange(300), draw.randrange(70_000))) for _ in range(300)
        ]
        frames = [draw.randbytes(size) or b"\0" for size in sizes]
        async with pair(tmp_path, tls=tls) as p:
            caller = await p.connect()
            for frame in frames:
                middle = draw.randrange(len(frame) + 1)
                caller.link.send([frame[:middle], memoryview(frame)[middle:]])
            called = await p.accepted.get()
            for frame in frames:
                assert await called.frames.get() == frame
            assert called.link.peer.kind == "unknown"
            assert caller.link.unsent_bytes == 0

    run(main())


def test_frame_in_many_small_pieces_is_reassembled(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as p:
            loop = asyncio.get_running_loop()
            with socket.create_connection(("127.0.0.1", p.port)) as raw:
                raw.setblocking(False)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                frame = bytes(i % 256 for i in range(6000))
                data = struct.pack(">i", len(frame)) + frame
                for at in range(0, len(data), 7):
                    await loop.sock_sendall(raw, data[at : at + 7])
                    p.server.tasks.call_soon(lambda: None)
                called = await p.accepted.get()
                assert await called.frames.get() == frame

    run(main())


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_invalid_frame_size_closes_only_its_connection_with_one_log_line(tmp_path: Path, size: int) -> None:
    async def main() -> None:
        async with pair(tmp_path, max_frame_bytes=1000) as p:
            good = await p.connect()
            loop = asyncio.get_running_loop()
            with socket.create_connection(("127.0.0.1", p.port)) as raw:
                raw.setblocking(False)
                await loop.sock_sendall(raw, struct.pack(">i", size))
                assert await loop.sock_recv(raw, 1) == b""
            good.link.send([b"still here"])
            called = await p.accepted.get()
            assert await called.frames.get() == b"still here"

    run(main())
    lines = log_lines(tmp_path)
    assert len(lines) == 1
    assert f"a frame of {size} bytes" in lines[0]


@pytest.mark.parametrize("error", [WireError("no such thing"), RuntimeError("a bug")])
def test_exception_in_a_handler_closes_only_its_link(tmp_path: Path, tls: TlsOptions | None, error: Exception) -> None:
    def refuse(_recorder: Recorder, frame: bytes) -> None:
        if frame == b"bad":
            raise error

    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            p.on_frame = refuse
            bad, good = await p.connect(), await p.connect()
            bad.link.send([b"bad"])
            assert await bad.closed
            good.link.send([b"good"])
            await p.accepted.get()
            assert await (await p.accepted.get()).frames.get() == b"good"

    run(main())
    assert sum("closing the link" in line for line in log_lines(tmp_path)) == 1


def test_paused_link_delivers_no_frame_until_it_resumes(tmp_path: Path, tls: TlsOptions | None) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            p.on_frame = lambda recorder, _frame: recorder.link.pause()
            caller = await p.connect()
            for i in range(50):
                caller.link.send([bytes([i]) * (i * 1000 + 1)])
            called = await p.accepted.get()
            for i in range(50):
                assert await called.frames.get() == bytes([i]) * (i * 1000 + 1)
                assert called.frames.empty()
                called.link.resume()

    run(main())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("paused", [False, True], ids=["reading", "paused"])
def test_reset_behind_a_frame_is_noticed_and_the_frame_is_delivered(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop], paused: bool
) -> None:
    """Both arrive between two turns of the loop: uvloop calls the reader of a socket that has failed only once."""

    async def main() -> None:
        async with pair(tmp_path) as ends:
            raw = socket.create_connection(("127.0.0.1", ends.port))
            recorder = await ends.accepted.get()
            raw.sendall(FRAME.pack(5) + b"first")
            assert await recorder.frames.get() == b"first"
            if paused:
                recorder.link.pause()
            raw.sendall(FRAME.pack(6) + b"second" + FRAME.pack(50_000) + bytes(50_000))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()  # a reset
            if paused:
                recorder.link.resume()
            assert await asyncio.wait_for(recorder.closed, 20)
            assert [recorder.frames.get_nowait() for _ in range(recorder.frames.qsize())] == [b"second", bytes(50_000)]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_close_sends_queued_frames_and_reset_does_not(tmp_path: Path, tls: TlsOptions | None) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            caller = await p.connect()
            frame = b"x" * 8_000_000
            caller.link.send([frame])
            caller.link.close()
            called = await p.accepted.get()
            assert await called.frames.get() == frame
            assert "closed by the peer" in await called.closed
            assert "closed here" in await caller.closed
            caller.link.send([b"into the void"])
            caller = await p.connect()
            called = await p.accepted.get()
            called.link.close(reset=True)
            assert "reset by peer" in await caller.closed

    run(main())


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_blocked_link_holds_frames_and_heal_delivers_them_in_order(
    tmp_path: Path, tls: TlsOptions | None, direction: str
) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            caller = await p.connect()
            caller.link.send([b"first"])
            called = await p.accepted.get()
            await called.frames.get()
            await p.op(p.client, "links.block", peers=["broker *"], direction=direction)
            frames = [bytes([i]) * (2_000 * i + 1) for i in range(100)]
            for frame in frames:
                caller.link.send([frame])
                called.link.send([frame])
            # The frames of the open direction have arrived before the blocked direction is checked.
            if direction == "in":
                assert [await called.frames.get() for _ in frames] == frames
            if direction == "out":
                assert [await caller.frames.get() for _ in frames] == frames
            report = await p.op(p.client, "links")
            [link] = report["links"]
            assert (link["blocked_in"], link["blocked_out"]) == (direction != "out", direction != "in")
            if direction != "in":
                assert link["held_out_bytes"] == sum(map(len, frames)) + 4 * len(frames)
                assert called.frames.empty()
            if direction != "out":
                assert caller.frames.empty()
            assert (await p.op(p.client, "links.heal"))["links"] == 1
            if direction != "in":
                assert [await called.frames.get() for _ in frames] == frames
            if direction != "out":
                assert [await caller.frames.get() for _ in frames] == frames
            report = await p.op(p.client, "links")
            assert report["rules"] == []
            assert report["held_in_bytes"] == report["held_out_bytes"] == 0

    run(main())


def test_block_and_heal_within_a_frame_loses_no_bytes(tmp_path: Path, tls: TlsOptions | None) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            caller = await p.connect()
            called = await p.accepted.get()
            frames = [random.Random(i).randbytes(500_000 + i) for i in range(12)]
            for frame in frames:
                caller.link.send([frame])
            got = [await called.frames.get()]
            for _ in range(5):
                await p.op(p.server, "links.block", peers=["unknown *"])
                await p.op(p.client, "links.block", peers=["broker 1"])
                await p.op(p.client, "links.heal")
                await p.op(p.server, "links.heal")
                got.append(await called.frames.get())
            while len(got) < len(frames):
                got.append(await called.frames.get())
            assert got == frames

    run(main())


def test_heal_by_reset_closes_only_the_links_with_held_frames(tmp_path: Path, tls: TlsOptions | None) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            caller = await p.connect()
            called = await p.accepted.get()
            await p.op(p.client, "links.block", peers=["broker 2"])
            await p.op(p.client, "links.heal", mode="reset")
            caller.link.send([b"fine"])
            assert await called.frames.get() == b"fine"
            await p.op(p.client, "links.block", peers=["broker 1"])
            caller.link.send([b"lost"])
            assert (await p.op(p.client, "links.heal", mode="reset"))["links"] == 1
            assert "reset" in await caller.closed
            assert "reset by peer" in await called.closed
            assert called.frames.empty()

    run(main())


def test_close_of_a_blocked_link_reaches_the_peer_after_heal(tmp_path: Path, tls: TlsOptions | None) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            caller = await p.connect()
            called = await p.accepted.get()
            await p.op(p.client, "links.block", peers=["broker 1"])
            caller.link.send([b"last frame"])
            caller.link.close()
            await caller.closed
            assert (await p.op(p.client, "links"))["links"][0]["closed"] is True
            assert not called.closed.done()
            await p.op(p.client, "links.heal")
            assert await called.frames.get() == b"last frame"
            assert "closed by the peer" in await called.closed
            assert (await p.op(p.client, "links"))["links"] == []

    run(main())


def test_connect_to_a_blocked_peer_waits_until_heal_or_timeout(tmp_path: Path, tls: TlsOptions | None) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            await p.op(p.client, "links.block", peers=["broker 1"], direction="out")
            with pytest.raises(TimeoutError):
                await p.connect(timeout_ms=20)
            waiting = asyncio.create_task(p.connect())
            await p.op(p.client, "links.block", peers=["broker 9"])
            assert not waiting.done()
            await p.op(p.client, "links.heal")
            caller = await waiting
            caller.link.send([b"hello"])
            assert await (await p.accepted.get()).frames.get() == b"hello"

    run(main())


def test_frame_that_names_a_blocked_peer_is_held_until_heal(tmp_path: Path, tls: TlsOptions | None) -> None:
    served: list[bytes] = []

    def name(recorder: Recorder, frame: bytes) -> None:
        recorder.link.peer = Peer("client", "orders-app")
        served.append(frame)

    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            p.on_frame = name
            await p.op(p.server, "links.block", peers=["client orders-*"])
            caller = await p.connect()
            small, large = b"small", b"large" * 200_000
            for frame in (small, large):
                caller.link.send([frame])
            called = await p.accepted.get()
            while called.link.peer.kind == "unknown":
                await p.server.tasks.sleep(0)
            assert served == []
            assert (await p.op(p.server, "links"))["held_in_bytes"] >= len(small) + 4
            await p.op(p.server, "links.heal")
            assert await called.frames.get() == small
            assert await called.frames.get() == large
            assert served == [small, large]

    run(main())


def test_accepted_link_with_unread_responses_stops_reading(
    tmp_path: Path, tls: TlsOptions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harrow.cluster.host.real.link.CHOKE_BYTES", 1_000_000)

    peaks: list[int] = []

    def respond(recorder: Recorder, _frame: bytes) -> None:
        recorder.link.send([b"y" * 100_000])
        peaks.append(recorder.link.unsent_bytes)

    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            p.on_frame = respond
            caller = await p.connect()
            caller.link.pause()
            for _ in range(500):
                caller.link.send([b"more"])
            called = await p.accepted.get()
            await called.frames.get()
            p.client.tasks.call_later(20, caller.link.resume)
            for _ in range(500):
                await caller.frames.get()
            # Without the limit the first read would have produced all 500 responses, 50 MB.
            assert len(peaks) == 500
            assert max(peaks) < 1_200_000
            assert called.link.unsent_bytes == 0

    run(main())


def test_connect_without_a_listener_and_listen_on_an_unknown_listener_are_refused(
    tmp_path: Path, tls: TlsOptions | None
) -> None:
    async def main() -> None:
        async with pair(tmp_path, tls=tls) as p:
            with pytest.raises(ConfigError, match="brokers"):
                await p.server.network.listen("brokers", p.accept, max_frame_bytes=1)
            with socket.socket() as bound:
                bound.bind(("127.0.0.1", 0))
                p.port = bound.getsockname()[1]
                with pytest.raises(ConnectionRefusedError):
                    await p.connect()

    run(main())


def test_close_of_an_acceptor_refuses_connections_while_another_process_holds_the_socket(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as p:
            sock = socket.socket()
            sock.bind(("127.0.0.1", 0))
            held = sock.dup()
            host = RealHost("third", str(tmp_path / "third"), listeners={"clients": sock})
            listener = await host.network.listen("clients", p.accept, max_frame_bytes=1000)
            p.port = listener.port
            kept = await p.connect()
            await p.accepted.get()
            listener.close()
            with pytest.raises(ConnectionRefusedError):
                await p.connect()
            assert not kept.closed.done()
            held.close()
            await host.stop()

    run(main())
