"""When a real link writes sent frames to its socket: at once, or at the end of the delivery that sent them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harrow.cluster.errors import WireError
from harrow.cluster.host.seam import Peer
from link_ends import LinkEnds, run


class Pair(LinkEnds):
    """One of two links of a host."""

    def arrived(self) -> bytes:
        """Return the bytes that the other end can read at this instant."""
        try:
            return self.theirs.recv(1 << 16)
        except BlockingIOError:
            return b""


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


def with_pairs(test: Callable[[Pair, Pair, asyncio.Future[None]], None]) -> list[str]:
    """Run `test`, wait for the future that it received, and return the lines that the host logged."""
    logged: list[str] = []

    async def main() -> None:
        a = Pair(Peer("broker", "1"))
        b = Pair(Peer("broker", "2"), a.context)
        done: asyncio.Future[None] = a.loop.create_future()
        test(a, b, done)
        await done
        for pair in (a, b):
            pair.close()
        logged.extend(a.logged)

    run(main())
    return logged


def test_send_outside_a_delivery_writes_at_once() -> None:
    def test(a: Pair, b: Pair, done: asyncio.Future[None]) -> None:
        a.link.send([b"one"])
        assert a.arrived() == framed(b"one")
        assert b.arrived() == b""
        done.set_result(None)

    with_pairs(test)


def test_send_during_a_delivery_writes_at_its_end() -> None:
    def test(a: Pair, b: Pair, done: asyncio.Future[None]) -> None:
        seen: list[tuple[bytes, bytes]] = []

        def respond(frame: bytes) -> None:
            seen.append((a.arrived(), b.arrived()))
            for link in (b.link, a.link, b.link):
                link.send([b"to ", frame])
            if frame == b"y":
                asyncio.get_running_loop().call_soon(check)

        def check() -> None:
            assert seen == [(b"", b""), (b"", b"")]
            assert a.arrived() == framed(b"to x") + framed(b"to y")
            assert b.arrived() == 2 * framed(b"to x") + 2 * framed(b"to y")
            done.set_result(None)

        a.on_frame = respond
        a.theirs.send(framed(b"x") + framed(b"y"))

    with_pairs(test)


def test_failed_delivery_writes_the_frames_for_other_links() -> None:
    def test(a: Pair, b: Pair, done: asyncio.Future[None]) -> None:
        def respond(_frame: bytes) -> None:
            b.link.send([b"for b"])
            asyncio.get_running_loop().call_soon(check)
            raise WireError("garbage")

        def check() -> None:
            assert b.arrived() == framed(b"for b")
            b.link.send([b"at once again"])
            assert b.arrived() == framed(b"at once again")
            done.set_result(None)

        a.on_frame = respond
        a.theirs.send(framed(b"x"))

    logged = with_pairs(test)
    assert len(logged) == 1
    assert "garbage" in logged[0]


def test_deferred_call_runs_after_the_delivery_wrote_its_frames() -> None:
    def test(a: Pair, b: Pair, done: asyncio.Future[None]) -> None:
        seen: list[object] = []

        def respond(frame: bytes) -> None:
            b.link.send([b"to ", frame])
            if frame == b"x":
                a.context.after_delivery(fail)
                a.context.after_delivery(check)
                asyncio.get_running_loop().call_soon(end)

        def fail() -> None:
            seen.append("failed")
            raise ValueError("a bug")

        def check() -> None:
            seen.append(b.arrived())
            b.link.send([b"at once"])  # the delivery has ended
            seen.append(b.arrived())
            a.context.after_delivery(lambda: seen.append("next turn"))

        def end() -> None:
            assert seen == ["failed", framed(b"to x") + framed(b"to y"), framed(b"at once")]
            asyncio.get_running_loop().call_soon(lambda: done.set_result(None))

        a.on_frame = respond
        a.theirs.send(framed(b"x") + framed(b"y"))
        done.add_done_callback(lambda _: seen.append("done"))
        after.append(seen)

    after: list[list[object]] = []
    logged = with_pairs(test)
    assert after[0][3:] == ["next turn", "done"]
    assert len(logged) == 1
    assert "a bug" in logged[0]


def test_flush_during_a_delivery_writes_the_frames_sent_so_far() -> None:
    def test(a: Pair, b: Pair, done: asyncio.Future[None]) -> None:
        seen: list[bytes] = []

        def respond(frame: bytes) -> None:
            b.link.send([b"first"])
            a.context.flush_answered()
            seen.append(b.arrived())
            b.link.send([b"second"])
            if frame == b"y":
                a.context.flush_answered()
                done.set_result(None)
            seen.append(b.arrived())

        a.on_frame = respond
        a.theirs.send(framed(b"x") + framed(b"y"))
        done.add_done_callback(lambda _: after.append(seen))

    after: list[list[bytes]] = []
    with_pairs(test)
    first, second = framed(b"first"), framed(b"second")
    assert after == [[first, b"", second + first, second]]
