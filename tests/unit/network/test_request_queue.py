"""`queued.max.requests`: a broker stops reading when that many requests wait for their handlers."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from harrow.cluster.errors import WireError
from harrow.cluster.network.request_queue import RequestQueue
from harrow.cluster.wire.request import Request
from served_listener import Raw, answer, frame, next_turn, run, serving, text_of


class Reader:
    def __init__(self) -> None:
        self.held = False
        self.waiting = 0

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False


@pytest.mark.parametrize("bound", [1, 2, 7])
@pytest.mark.parametrize("seed", range(10))
def test_readers_are_held_from_the_bound_down_to_half_of_it(bound: int, seed: int) -> None:
    chance, queue, readers = random.Random(seed), RequestQueue(bound), [Reader()]
    queue.join(readers[0])
    full = False
    for _ in range(300):
        reader = chance.choice(readers)
        dice = chance.random()
        if dice < 0.5 and not reader.held:
            queue.added()
            reader.waiting += 1
        elif dice < 0.85 and reader.waiting:
            queue.removed()
            reader.waiting -= 1
        elif dice < 0.9 and len(readers) < 5:
            readers.append(Reader())
            queue.join(readers[-1])
        elif dice > 0.95 and len(readers) > 1:
            readers.remove(reader)
            queue.removed(reader.waiting)
            queue.leave(reader)
        waiting = sum(row.waiting for row in readers)
        full = waiting >= bound or (full and waiting > bound // 2)
        assert queue.waiting == waiting <= bound
        assert {row.held for row in readers} == {full}


def test_removing_a_request_that_was_not_added_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        RequestQueue(3).removed()


def test_a_full_queue_stops_reading_clients_and_not_brokers(tmp_path: Path) -> None:
    """Two connections wait behind a handler each; the third waits because the queue is full, brokers do not."""

    async def main() -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun: list[str] = []

        async def slow(request: Request) -> None:
            begun.append(text_of(request))
            if text_of(request).startswith("slow"):
                await gate
            answer(request)

        async with (
            serving(tmp_path, listener="CLIENTS", queued_max_requests=2) as s,
            Raw(s.port) as one,
            Raw(s.port) as two,
            Raw(s.port) as third,
            Raw(s.ports["BROKERS"]) as broker,
        ):
            s.handler = slow
            await third.answered()
            for raw, name in ((one, "slow 1"), (two, "slow 2")):
                raw.writer.write(frame(0, 1, name) + frame(0, 2, "behind " + name))
            while len(begun) < 3:
                await next_turn()
            third.writer.write(frame(0, 3, "third"))
            for number in range(5):  # rounds over a socket: the third request has long arrived
                await broker.answered(number)
            assert "third" not in begun
            gate.set_result(None)
            for raw in (one, two):
                assert [(await raw.frame())[:4] for _ in range(2)] == [b"\0\0\0\1", b"\0\0\0\2"]
            assert (await third.frame())[:4] == b"\0\0\0\3"
            assert "third" in begun

    run(main())


def test_the_dropped_requests_of_a_closed_connection_make_room(tmp_path: Path) -> None:
    async def main() -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun = asyncio.Event()

        async def fails(request: Request) -> None:
            if text_of(request) == "fails":
                begun.set()
                await gate
                raise WireError("a body that cannot be read")
            answer(request)

        async with (
            serving(tmp_path, listener="CLIENTS", queued_max_requests=1) as s,
            Raw(s.port) as closed,
            Raw(s.port) as other,
        ):
            s.handler = fails
            closed.writer.write(frame(0, 1, "fails") + frame(0, 2, "behind"))
            await begun.wait()
            gate.set_result(None)
            assert await closed.reader.read() == b""
            await other.answered()

    run(main())
