"""Frames over TLS: handshakes that succeed, fail or never end, large frames, files, rules, resets, new keys (A5)."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.real import tls_link
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.seam import Acceptor, Link, Peer, TlsOptions
from harrow.harness.security.certificates import CertificateAuthority
from link_ends import Recorder, run

MIB = 1024 * 1024
AUTHORITY = CertificateAuthority()
BROKER = AUTHORITY.issue("broker")
OPTIONS = TlsOptions(chain=BROKER.chain, key=BROKER.key, trusted=AUTHORITY.certificate)
MUTUAL = replace(OPTIONS, client_auth="required")
STRANGER = CertificateAuthority("another authority")
NAMELESS = TlsOptions(trusted=AUTHORITY.certificate)


class Ends:
    """A host that serves with TLS, and a host that connects."""

    acceptor: Acceptor

    def __init__(self, server: RealHost, client: RealHost, port: int) -> None:
        self.server, self.client, self.port = server, client, port
        self.accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def accept(self, link: Link) -> Recorder:
        recorder = Recorder(link)
        self.accepted.put_nowait(recorder)
        return recorder

    async def connect(self, tls: TlsOptions | None = OPTIONS, *, host: str = "127.0.0.1") -> Recorder:
        made: list[Recorder] = []

        def make(link: Link) -> Recorder:
            made.append(Recorder(link))
            return made[0]

        await self.client.network.connect(Peer("broker", "1"), host, self.port, make, timeout_ms=5000, tls=tls)
        return made[0]

    async def both(self, tls: TlsOptions = OPTIONS) -> tuple[Recorder, Recorder]:
        """A link after the handshakes of both ends."""
        caller, called = await self.connect(tls), await self.accepted.get()
        caller.link.send([b"begin"])
        assert await called.frames.get() == b"begin"
        return caller, called


@asynccontextmanager
async def ends(folder: Path, tls: TlsOptions = OPTIONS) -> AsyncGenerator[Ends]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = RealHost("server", str(folder / "server"), listeners={"clients": sock}, log_level="debug")
    client = RealHost("client", str(folder / "client"))
    made = Ends(server, client, sock.getsockname()[1])
    made.acceptor = await server.network.listen("clients", made.accept, max_frame_bytes=1 << 26, tls=tls)
    try:
        yield made
    finally:
        await client.stop()
        await server.stop()


def test_frames_of_every_size_are_received_whole_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        draw = random.Random(3)
        sizes = [1, 4095, 4096, 16_383, 16_384, 16_385, 262_140, 262_144, MIB, 3_000_001]
        sizes += [draw.choice((draw.randrange(1, 300), draw.randrange(1, 70_000))) for _ in range(300)]
        frames = [draw.randbytes(size) for size in sizes]
        async with ends(tmp_path) as p:
            caller, called = await p.both()
            for sender, receiver in ((caller, called), (called, caller)):
                for frame in frames:
                    middle = draw.randrange(len(frame) + 1)
                    sender.link.send([frame[:middle], memoryview(frame)[middle:]])
                for frame in frames:
                    assert await receiver.frames.get() == frame
                assert sender.link.unsent_bytes == 0

    run(main())


def test_region_of_a_file_is_encrypted_in_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        data = random.Random(4).randbytes(5 * MIB)
        async with ends(tmp_path) as p:
            caller, called = await p.both()
            file = p.server.disk.open(str(tmp_path / "log"))
            file.append([data])
            called.link.send([b"head", file.region(7, 4 * MIB), b"middle", file.region(0, 20_000), b"tail"])
            called.link.send([b"next"])
            expected = b"head" + data[7 : 7 + 4 * MIB] + b"middle" + data[:20_000] + b"tail"
            assert await caller.frames.get() == expected
            assert await caller.frames.get() == b"next"

    run(main())


def test_file_that_is_cut_under_a_response_resets_the_link(tmp_path: Path) -> None:
    async def main() -> None:
        async with ends(tmp_path) as p:
            caller, called = await p.both()
            file = p.server.disk.open(str(tmp_path / "log"))
            file.append([bytes(MIB)])
            region = file.region(0, MIB)
            file.truncate(5)
            called.link.send([region])
            assert "reset" in (await caller.closed).lower()
            assert "cut" in await called.closed

    run(main())


def test_paused_link_delivers_what_waits_inside_of_tls(tmp_path: Path) -> None:
    async def main() -> None:
        async with ends(tmp_path) as p:
            caller, called = await p.both()

            def pause(frame: bytes) -> None:
                if frame == b"pause":
                    called.link.pause()

            called.on_frame = pause
            for frame in (b"one", b"pause", b"two", bytes(300_000), b"pause", b"three"):
                caller.link.send([frame])
            assert [await called.frames.get() for _ in range(2)] == [b"one", b"pause"]
            await p.server.tasks.sleep(50)
            assert called.frames.empty()
            called.link.resume()
            assert [len(await called.frames.get()) for _ in range(3)] == [3, 300_000, 5]
            called.link.resume()
            assert await called.frames.get() == b"three"

    run(main())


def test_peer_that_does_not_read_is_sent_everything_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with ends(tmp_path) as p:
            caller, called = await p.both()
            caller.link.pause()
            frames = [bytes([number]) * MIB for number in range(30)]
            for frame in frames:
                called.link.send([frame])
            assert called.link.unsent_bytes > 0
            called.link.close()
            caller.link.resume()
            for frame in frames:
                assert await caller.frames.get() == frame
            assert await caller.closed == "closed by the peer"

    run(main())


def test_certificate_of_the_client_is_known_after_the_handshake(tmp_path: Path) -> None:
    async def main() -> None:
        alice = AUTHORITY.issue("alice", hosts=())
        as_alice = replace(OPTIONS, chain=alice.chain, key=alice.key)
        async with ends(tmp_path, MUTUAL) as p:
            caller, called = await p.both(as_alice)
            caller.link.send([b"hello"])
            assert await called.frames.get() == b"hello"
            assert called.link.certificate == ssl.PEM_cert_to_DER_cert(alice.chain.split("-----END")[0] + END)
            assert caller.link.certificate is not None

    run(main())


END = "-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("auth", ["none", "requested"])
def test_client_without_a_certificate_is_served_where_none_is_required(tmp_path: Path, auth: str) -> None:
    async def main() -> None:
        async with ends(tmp_path, replace(OPTIONS, client_auth=auth)) as p:
            caller, called = await p.both(NAMELESS)
            caller.link.send([b"hello"])
            assert await called.frames.get() == b"hello"
            assert called.link.certificate is None

    run(main())


@pytest.mark.parametrize("who", ["anonymous", "stranger", "expired"])
def test_client_without_a_trusted_certificate_is_refused(tmp_path: Path, who: str) -> None:
    async def main() -> None:
        own = {"stranger": STRANGER.issue("alice"), "expired": AUTHORITY.issue("alice", days=-3)}.get(who)
        tls = NAMELESS if own is None else replace(OPTIONS, chain=own.chain, key=own.key)
        async with ends(tmp_path, MUTUAL) as p:
            caller = await p.connect(tls)  # of TLS 1.3: the client has finished before the server looks
            await caller.closed
            called = await p.accepted.get()
            assert "TLS handshake" in await called.closed
            assert called.frames.empty()
            assert called.link.certificate is None

    run(main())


def test_certificate_of_the_server_must_be_trusted_and_name_the_host(tmp_path: Path) -> None:
    async def main() -> None:
        async with ends(tmp_path) as p:
            with pytest.raises(ConnectionError, match="self-signed certificate"):
                await p.connect(replace(OPTIONS, trusted=STRANGER.certificate))
            elsewhere = AUTHORITY.issue("broker", hosts=("kafka.example",))
            p.acceptor.renew(replace(OPTIONS, chain=elsewhere.chain, key=elsewhere.key))
            with pytest.raises(ConnectionError, match="IP address mismatch"):
                await p.connect()
            await p.connect(replace(OPTIONS, verify_host=False))

    run(main())


def test_new_keys_are_used_by_the_next_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with ends(tmp_path) as p:
            first, called = await p.both()
            other = AUTHORITY.issue("broker")
            p.acceptor.renew(replace(OPTIONS, chain=other.chain, key=other.key))
            second, _ = await p.both()
            assert first.link.certificate != second.link.certificate
            first.link.send([b"still open"])
            assert await called.frames.get() == b"still open"
            with pytest.raises(ConfigError, match="TLS cannot use"):
                p.acceptor.renew(replace(OPTIONS, key=other.key))
            third, _ = await p.both()
            assert third.link.certificate == second.link.certificate

    run(main())


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.0\r\n\r\n", b"\0\0\0\x20" + bytes(32), b"\x16\x03\x01\xff\xff" * 9])
def test_garbage_ends_the_link_without_a_line_in_the_log(tmp_path: Path, sent: bytes) -> None:
    async def main() -> None:
        async with ends(tmp_path) as p:
            reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
            writer.write(sent)
            with suppress(ConnectionResetError):
                await reader.read()
            called = await p.accepted.get()
            assert "TLS handshake" in await called.closed
            writer.close()
            await p.both()  # others are served

    run(main())
    lines = (tmp_path / "server" / "broker.log").read_text().splitlines()
    assert not [line for line in lines if "handshake" in line and "debug" not in line.lower()], lines


def test_handshake_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_link, "HANDSHAKE_S", 0.2)

    async def main() -> None:
        async with ends(tmp_path) as p:
            silent, writer = await asyncio.open_connection("127.0.0.1", p.port)
            caller, _ = (await p.connect(), await p.accepted.get())
            assert await silent.read() == b""
            writer.close()
            await p.server.tasks.sleep(300)
            assert not caller.closed.done(), "a link with a handshake stays"

    run(main())


def test_reset_is_the_reset_of_tcp_and_an_orderly_end_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with ends(tmp_path) as p:
            for reset in (True, False):
                reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                context = ssl.create_default_context(cadata=AUTHORITY.certificate)
                tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
                while True:
                    try:
                        tls.do_handshake()
                    except ssl.SSLWantReadError:
                        writer.write(outgoing.read())
                        incoming.write(await reader.read(65536))
                    else:
                        break
                tls.write(struct.pack(">i", 2) + b"ok")
                writer.write(outgoing.read())
                called = await p.accepted.get()
                assert await called.frames.get() == b"ok"
                called.link.close(reset=reset)
                if reset:
                    with pytest.raises(ConnectionResetError):
                        await reader.read()
                else:
                    incoming.write(await reader.read())
                    assert tls.read(10) == b"", "close_notify"
                writer.close()

    run(main())
