"""K2: a slow link sends every frame late, whole, in order and once, whatever else happens to the link."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.knobs.link_rules import DELAY_MS_MOST, NOT_BLOCKED, LinkRules
from harrow.cluster.host.real.disk import RealDisk, RealFile
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.real.pieces import REGION_BYTES_LEAST
from harrow.cluster.host.seam import Part, Peer
from link_ends import DEADLINE_S, LinkEnds, run

FAR_MS = 10_000
"""A delay longer than any test: a frame that arrives nevertheless was released."""


class Ends(LinkEnds):
    """A link under rules; its host must not log anything."""

    def __init__(self) -> None:
        super().__init__(Peer("broker", "2"))

    def log(self, level: str, message: str) -> None:
        raise AssertionError(f"{level}: {message}")

    def slow(self, delay_ms: int, peers: str = "broker *") -> None:
        self.rules.slow([peers], delay_ms)
        self.link.apply()

    def heal(self) -> None:
        self.rules.heal()
        self.link.apply()

    async def turn(self, ms: int = 0) -> None:
        """Run the event loop for this long, so that the traffic arrives in steps."""
        turned = self.loop.create_future()
        self.loop.call_later(ms / 1000, turned.set_result, None)
        await turned

    def has_received_nothing(self) -> bool:
        """Return whether no byte has arrived at the other end."""
        try:
            return not self.theirs.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True


def test_throttled_links_share_the_rate_and_send_frames_whole_and_in_order() -> None:
    async def main() -> None:
        with closing(Ends()) as first:
            second = LinkEnds(Peer("broker", "3"), first.context)
            with closing(second):
                first.rules.throttle(["broker *"], 20_000)
                for ends in (first, second):
                    ends.link.apply()
                begun = time.monotonic()
                for number in range(5):
                    first.link.send([bytes([number]) * 500])
                    second.link.send([bytes([number]) * 500])
                for number in range(5):
                    assert await first.frame() == bytes([number]) * 500
                    assert await second.frame() == bytes([number]) * 500
                assert time.monotonic() - begun >= 10 * 504 / 20_000 - 0.01
                assert first.link.report()["delayed_bytes"] == 5 * 504

    run(main())


def test_what_waits_for_its_rate_leaves_when_the_throttle_ends() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.rules.throttle(["broker 2"], 1)
            ends.link.apply()
            ends.link.send([b"would take a minute" * 4])
            await ends.turn(20)
            assert ends.has_received_nothing()
            ends.heal()
            assert await ends.frame() == b"would take a minute" * 4
            ends.link.send([b"at once"])
            assert await ends.frame() == b"at once"

    run(main())


def test_a_rate_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match="bytes_per_s 0: expected a number from 1"):
        LinkRules().throttle(["*"], 0)


def test_slow_link_sends_each_frame_after_its_delay_and_in_order() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.slow(30)
            frames = [bytes([n]) * (n * 400 + 1) for n in range(20)]
            sent_at: list[float] = []
            for frame in frames:
                sent_at.append(time.monotonic())
                ends.link.send([frame])
                await ends.turn(2)
            for frame, sent in zip(frames, sent_at, strict=True):
                assert await ends.frame() == frame
                assert time.monotonic() - sent >= 0.03
            report = ends.link.report()
            assert report["delay_ms"] == 30
            assert report["delayed_bytes"] == sum(len(frame) + 4 for frame in frames)
            assert report["waiting_bytes"] == ends.link.unsent_bytes == 0

    run(main())


def test_heal_sends_delayed_frames_at_once_before_later_frames() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.slow(FAR_MS)
            frames = [random.Random(n).randbytes(n * 997 + 1) for n in range(30)]
            for frame in frames[:20]:
                ends.link.send([frame])
            await ends.turn()
            assert ends.has_received_nothing()
            assert ends.link.report()["waiting_bytes"] == ends.link.unsent_bytes > 0
            ends.heal()
            for frame in frames[20:]:
                ends.link.send([frame])
            assert [await ends.frame() for _ in frames] == frames
            assert ends.link.unsent_bytes == ends.link.report()["delay_ms"] == 0

    run(main())


def test_shorter_delay_keeps_the_order_of_frames() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.slow(60)
            ends.link.send([b"first"])
            ends.slow(1)
            ends.link.send([b"second"])
            assert [await ends.frame(), await ends.frame()] == [b"first", b"second"]

    run(main())


def test_rule_for_another_peer_delays_no_frame() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.slow(FAR_MS, "registry")
            ends.link.send([b"at once"])
            assert await ends.frame() == b"at once"
            ends.link.peer = Peer("registry", "")
            ends.link.send([b"late"])
            assert ends.link.report()["waiting_bytes"] == 8
            ends.link.peer = Peer("broker", "2")
            assert await ends.frame() == b"late"
            assert ends.link.report()["delayed_bytes"] == 0

    run(main())


def test_response_to_the_request_that_names_a_slow_peer_is_delayed() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:

            def respond(frame: bytes) -> None:
                ends.link.peer = Peer("client", "app")
                ends.link.send([b"response to ", frame])

            ends.on_frame = respond
            ends.slow(20, "client *")
            begun = time.monotonic()
            await ends.loop.sock_sendall(ends.theirs, b"\0\0\0\2hi")
            assert await ends.frame() == b"response to hi"
            assert time.monotonic() - begun >= 0.02

    run(main())


def test_close_sends_delayed_frames_before_the_link_ends() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.slow(20)
            frames = [b"a" * 10, b"b" * 700_000, b"c"]
            for frame in frames:
                ends.link.send([frame])
            ends.link.close()
            assert "closed here" in await ends.closed
            assert [await ends.frame() for _ in frames] == frames
            assert await ends.read(1) == b""
            assert not ends.links

    run(main())


@pytest.mark.parametrize("closed_first", [False, True])
def test_reset_discards_delayed_frames(closed_first: bool) -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.slow(5)
            ends.link.send([b"never"])
            if closed_first:
                ends.link.close()
                ends.link.abort("reset at healing")
            else:
                ends.link.close(reset=True)
            await ends.closed
            assert not ends.links
            with suppress(ConnectionResetError):
                assert await ends.loop.sock_recv(ends.theirs, 10) == b""

    run(main())


def test_block_of_a_slow_link_holds_due_frames_and_heal_delivers_them() -> None:
    async def main() -> None:
        with closing(Ends()) as ends:
            ends.slow(5)
            ends.link.send([b"late"])
            ends.rules.block(["broker 2"], "out")
            ends.link.apply()
            ends.link.send([b"later"])
            async with asyncio.timeout(DEADLINE_S):
                while ends.link.report()["waiting_bytes"]:
                    await ends.turn(1)
            await ends.turn()
            assert ends.has_received_nothing()
            assert ends.link.report()["held_out_bytes"] == ends.link.unsent_bytes == 17
            ends.heal()
            assert [await ends.frame(), await ends.frame()] == [b"late", b"later"]

    run(main())


def test_slow_link_with_many_delayed_bytes_stops_reading_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harrow.cluster.host.real.link.CHOKE_BYTES", 1000)

    async def main() -> None:
        with closing(Ends()) as ends:
            ends.on_frame = lambda frame: ends.link.send([frame * 200])
            ends.slow(10)
            await ends.loop.sock_sendall(ends.theirs, b"\0\0\0\1x" * 200)
            for _ in range(200):
                assert await ends.frame() == b"x" * 200
                assert ends.link.unsent_bytes <= 1300

    run(main())


def test_delayed_regions_are_received_in_order_while_rules_change(tmp_path: Path) -> None:
    async def main() -> None:
        draw = random.Random(11)
        data = draw.randbytes(400_000)
        path = tmp_path / "segment"
        path.write_bytes(data)
        file = RealDisk().open(str(path), create=False)
        assert isinstance(file, RealFile)
        with closing(Ends()) as ends, closing(file):
            wanted: list[bytes] = []
            for turn in range(60):
                if draw.random() < 0.3:
                    ends.slow(draw.choice((1, 3, 8)))
                elif draw.random() < 0.2:
                    ends.rules.block(["broker *"], "out")
                    ends.link.apply()
                elif draw.random() < 0.3:
                    ends.heal()
                at, size = draw.randrange(1000), draw.choice((100, REGION_BYTES_LEAST, 300_000))
                parts: list[Part] = [b"head" * turn, file.region(at, size)]
                wanted.append(b"head" * turn + data[at : at + size])
                ends.link.send(parts)
                if draw.random() < 0.5:
                    await ends.turn(1)
            ends.heal()
            ends.slow(5)
            ends.link.close()
            for frame in wanted:
                assert await ends.frame() == frame
            assert await ends.read(1) == b""

    run(main())


def test_stop_of_a_host_sends_delayed_frames(tmp_path: Path) -> None:
    async def main() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        sock.setblocking(False)
        host = RealHost("one", str(tmp_path / "one"))
        closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        class Handler:
            def frame_received(self, frame: bytes) -> None:
                raise AssertionError(frame)

            def link_closed(self, reason: str) -> None:
                closed.set_result(reason)

        with sock:
            link = await host.network.connect(
                Peer("broker", "1"), "127.0.0.1", sock.getsockname()[1], lambda _: Handler(), timeout_ms=5000
            )
            there, _ = await asyncio.get_running_loop().sock_accept(sock)
            operation = {"op": "links.slow", "peers": ["broker 1"], "delay_ms": FAR_MS}
            assert (await host.control.answer(json.dumps(operation).encode()))["links"] == ["broker 1"]
            link.send([b"last frame"])
            await host.stop()
            with there:
                there.setblocking(False)
                got = await asyncio.get_running_loop().sock_recv(there, 100)
        assert got == b"\0\0\0\x0alast frame"

    run(main())


def test_slow_rules_are_reported_replaced_and_healed_by_name() -> None:
    rules = LinkRules()
    rules.slow(["broker *", "registry"], 100)
    rules.slow(["broker 2"], 250)
    rules.slow(["registry"], 20)
    rules.block(["broker 3"], "in")
    assert rules.delay_ms(Peer("broker", "2")) == 250
    assert rules.delay_ms(Peer("broker", "3")) == 100
    assert rules.delay_ms(Peer("registry", "")) == 20
    assert rules.delay_ms(Peer("client", "app")) == 0
    assert rules.blocked(Peer("broker", "2")) == NOT_BLOCKED
    assert rules.blocked(Peer("broker", "3")).inward
    assert {"peers": "broker 2", "direction": "out", "delay_ms": 250} in rules.report()
    rules.heal(["broker *", "broker 2"])
    assert [row["peers"] for row in rules.report()] == ["registry", "broker 3"]
    for delay_ms in (0, -1, DELAY_MS_MOST + 1):
        with pytest.raises(ConfigError, match="delay_ms"):
            rules.slow(["broker 1"], delay_ms)
    with pytest.raises(ConfigError, match="patterns"):
        rules.slow([], 5)
