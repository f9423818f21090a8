"""The simulated network: order within a link, none between links, rules that hold frames, resets that lose them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from harrow.cluster.errors import WireError
from harrow.cluster.host.seam import Acceptor, Link, Peer
from harrow.cluster.host.simulated import Machine, SimHost, World

PORT = 9_000
SERVER = Peer("broker", "1")


class End:
    """A handler at one end of a link."""

    def __init__(self, link: Link, *, responds: bool = False) -> None:
        self.link = link
        self.frames: list[bytes] = []
        self.closed: list[str] = []
        self.on_frame: Callable[[], None] | None = None
        self._responds = responds

    def frame_received(self, frame: bytes) -> None:
        if frame == b"garbage":
            raise WireError("garbage")
        self.frames.append(frame)
        if self.on_frame is not None:
            self.on_frame()
        if self._responds:
            self.link.send((b"re:", frame))

    def link_closed(self, reason: str) -> None:
        self.closed.append(reason)


class Pair:
    """A server that responds to each frame, and a client."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.server = Machine(self.world, "server", SERVER, listeners={"clients": PORT})
        self.client = Machine(self.world, "client", Peer("client", "c"))
        self.accepted: list[End] = []
        self.acceptor: Acceptor
        self.host = self.client.boot()
        self.serve()

    def serve(self) -> None:
        host = self.server.boot()

        def make(link: Link) -> End:
            self.accepted.append(End(link, responds=True))
            return self.accepted[-1]

        async def listen() -> None:
            self.acceptor = await host.network.listen("clients", make, max_frame_bytes=1_000)

        host.tasks.spawn(listen(), name="listen")
        self.world.loop.run_for(1)

    def connecting(self, host: SimHost | None = None, timeout_ms: int = 500) -> list[Any]:
        found: list[Any] = []
        client = host or self.host

        async def connect() -> None:
            try:
                made: list[End] = []

                def make(link: Link) -> End:
                    made.append(End(link))
                    return made[0]

                await client.network.connect(SERVER, "127.0.0.1", PORT, make, timeout_ms=timeout_ms)
                found.extend(made)
            except OSError as error:
                found.append(error)

        client.tasks.spawn(connect(), name="connect")
        return found

    def connect(self) -> End:
        found = self.connecting()
        assert self.world.loop.run_until(lambda: bool(found), 1_000)
        end = found[0]
        assert isinstance(end, End), end
        return end


@pytest.fixture
def pair() -> Any:
    made = Pair()
    yield made
    made.world.close()


def test_sent_frames_are_received_whole_in_order_and_later(pair: Pair) -> None:
    end = pair.connect()
    for number in range(50):
        end.link.send((b"n", memoryview(str(number).encode())))
    assert end.frames == []
    pair.world.loop.run_for(200)
    assert pair.accepted[0].frames == [f"n{number}".encode() for number in range(50)]
    assert end.frames == [b"re:n%d" % number for number in range(50)]
    assert str(pair.accepted[0].link.peer).startswith("unknown client")


def test_frames_of_several_links_arrive_in_an_order_that_the_seed_decides() -> None:
    def order(seed: int) -> list[bytes]:
        pair = Pair(seed)
        ends = [pair.connect() for _ in range(6)]
        arrived: list[bytes] = []
        for number, accepted in enumerate(pair.accepted):
            accepted.on_frame = partial(arrived.append, b"%d" % number)
        for end in ends:
            end.link.send((b"x",))
        pair.world.loop.run_for(100)
        pair.world.close()
        return arrived

    orders = [order(seed) for seed in range(5)]
    assert orders == [order(seed) for seed in range(5)]
    assert len({tuple(order_) for order_ in orders}) > 1
    assert all(sorted(order_) == [b"%d" % number for number in range(6)] for order_ in orders)


@pytest.mark.parametrize("mode", ["deliver", "reset"])
def test_isolated_machine_receives_no_frame_until_heal(pair: Pair, mode: str) -> None:
    end = pair.connect()
    end.link.send((b"before",))
    pair.world.loop.run_for(50)
    host = pair.server.host
    assert host is not None
    host.knobs.block(["*"])
    for number in range(3):
        end.link.send((b"%d" % number,))
    waiting = pair.connecting()
    pair.world.loop.run_for(300)
    assert pair.accepted[0].frames == [b"before"]
    assert waiting == []
    assert end.link.unsent_bytes == 3
    assert host.knobs.heal(mode) == 1
    pair.world.loop.run_for(100)
    assert isinstance(waiting[0], End)
    if mode == "deliver":
        assert pair.accepted[0].frames == [b"before", b"0", b"1", b"2"]
    else:
        assert pair.accepted[0].frames == [b"before"]
        assert len(end.closed) == len(pair.accepted[0].closed) == 1


def test_connect_to_an_isolated_machine_times_out_and_to_a_killed_one_is_refused(pair: Pair) -> None:
    assert pair.server.host is not None
    pair.server.host.knobs.block(["client *"], "in")
    refused = pair.connecting(timeout_ms=100)
    pair.world.loop.run_for(99)
    assert refused == []
    pair.world.loop.run_for(2)
    assert isinstance(refused[0], TimeoutError)
    pair.server.host.knobs.heal()
    pair.server.kill()
    refused = pair.connecting()
    pair.world.loop.run_for(50)
    assert isinstance(refused[0], ConnectionRefusedError)


def test_block_outward_delivers_requests_and_holds_responses(pair: Pair) -> None:
    end = pair.connect()
    assert pair.server.host is not None
    pair.server.host.knobs.block(["client c"], "out")
    end.link.send((b"x",))
    pair.world.loop.run_for(100)
    assert pair.accepted[0].frames == [b"x"]
    assert end.frames == []
    pair.server.host.knobs.heal()
    pair.world.loop.run_for(100)
    assert end.frames == [b"re:x"]


def test_kill_closes_the_links_and_power_loss_does_not(pair: Pair) -> None:
    end = pair.connect()
    end.link.send((b"x",))
    pair.world.loop.run_for(50)
    pair.server.kill()
    pair.world.loop.run_for(50)
    assert end.closed == ["closed by the peer"]
    pair.serve()
    other = pair.connect()
    pair.server.lose_power()
    other.link.send((b"never received",))
    waiting = pair.connecting()
    pair.world.loop.run_for(400)
    assert other.closed == waiting == []
    pair.serve()
    pair.world.loop.run_for(50)
    assert other.closed == ["Connection reset by peer"]
    assert isinstance(waiting[0], End)


def test_reset_loses_frames_in_flight_and_closes_both_ends(pair: Pair) -> None:
    end = pair.connect()
    end.link.send((b"lost",))
    assert pair.server.host is not None
    assert pair.server.host.knobs.reset(["client *"]) == 1
    pair.world.loop.run_for(100)
    assert pair.accepted[0].frames == []
    assert len(end.closed) == len(pair.accepted[0].closed) == 1
    end.link.send((b"on a closed link",))
    pair.world.loop.run_for(100)
    assert len(end.closed) == 1


def test_slow_link_delays_frames_until_it_is_reset(pair: Pair) -> None:
    end = pair.connect()
    pair.host.knobs.slow(["*"], 200)
    end.link.send((b"x",))
    pair.world.loop.run_for(90)
    assert pair.accepted[0].frames == []
    pair.world.loop.run_for(700)
    assert end.frames == [b"re:x"]
    pair.host.knobs.heal()
    end.link.send((b"y",))
    pair.world.loop.run_for(60)
    assert end.frames[-1] == b"re:y"


def test_throttled_machine_sends_at_its_rate_until_it_is_healed(pair: Pair) -> None:
    end = pair.connect()
    pair.host.knobs.throttle(["*"], 1_000)
    for number in range(10):
        end.link.send((bytes([number]) * 100,))
    pair.world.loop.run_for(350)
    assert 1 <= len(pair.accepted[0].frames) <= 3, "a frame for each 100 ms"
    pair.host.knobs.heal()
    pair.world.loop.run_for(60)
    assert pair.accepted[0].frames == [bytes([number]) * 100 for number in range(10)]


def test_connect_to_a_paused_process_succeeds_and_it_reads_later(pair: Pair) -> None:
    pair.server.pause()
    end = pair.connect()
    end.link.send((b"x",))
    pair.world.loop.run_for(200)
    assert pair.accepted == []
    pair.server.resume()
    pair.world.loop.run_for(50)
    assert end.frames == [b"re:x"]


def test_paused_link_holds_frames_and_invalid_frames_close_the_link(pair: Pair) -> None:
    end = pair.connect()
    pair.world.loop.run_for(10)
    accepted = pair.accepted[0]
    accepted.link.pause()
    end.link.send((b"x",))
    pair.world.loop.run_for(100)
    assert accepted.frames == []
    accepted.link.resume()
    pair.world.loop.run_for(100)
    assert accepted.frames == [b"x"]
    for bad in (b"garbage", bytes(1_001)):
        other = pair.connect()
        other.link.send((bad,))
        pair.world.loop.run_for(100)
        assert other.closed == ["closed by the peer"]
        assert len(pair.accepted[-1].closed) == 1


def test_close_delivers_sent_frames_and_notifies_both_ends_once(pair: Pair) -> None:
    end = pair.connect()
    end.link.send((b"last",))
    end.link.close()
    end.link.close()
    pair.world.loop.run_for(100)
    assert pair.accepted[0].frames == [b"last"]
    assert end.closed == ["closed here"]
    assert pair.accepted[0].closed == ["closed by the peer"]


@pytest.mark.parametrize("then", ["running", "paused", "killed"])
def test_deferred_call_runs_in_the_instant_of_the_delivery(pair: Pair, then: str) -> None:
    end, server = pair.connect(), pair.server
    host = server.host
    assert host is not None
    end.link.send((b"first",))
    pair.world.loop.run_for(50)
    accepted, seen = pair.accepted[0], list[str]()

    def served() -> None:
        host.network.after_delivery(lambda: seen.append("after"))
        host.tasks.call_soon(lambda: seen.append("next turn"))
        seen.append("served")
        if then == "paused":
            server.pause()
        elif then == "killed":
            server.kill()

    accepted.on_frame = served
    end.link.send((b"second",))
    pair.world.loop.run_for(50)
    if then == "paused":
        assert seen == ["served"]
        server.resume()
        pair.world.loop.run_for(1)
    assert seen[0] == "served"
    assert sorted(seen[1:]) == ([] if then == "killed" else ["after", "next turn"])
    if then == "running":
        assert seen[1] == "after"


def test_paused_acceptor_serves_waiting_connections_after_resume(pair: Pair) -> None:
    pair.acceptor.pause()
    end = pair.connect()
    end.link.send((b"early",))
    pair.world.loop.run_for(200)
    assert pair.accepted == []
    pair.acceptor.resume()
    pair.world.loop.run_for(200)
    assert (pair.accepted[0].frames, end.frames) == ([b"early"], [b"re:early"])
