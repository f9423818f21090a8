"""The asyncio loop of a simulated program: virtual time, asyncio's order, one run for a seed, crashes and pauses."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from harrow.cluster.host.programs import FenceError
from simulated_programs import Programs, programs

HOUR_S = 3_600.0
JITTER_S = 0.01
"""Turns of a loop take some time."""


async def clocks() -> dict[str, Any]:
    return {
        "loop": asyncio.get_running_loop().time(),
        "monotonic": time.monotonic(),
        "perf_counter": time.perf_counter(),
        "time": time.time(),
        "now": dt.datetime.now(tz=dt.UTC).timestamp(),
    }


def test_an_hour_passes_on_every_clock() -> None:
    async def main() -> dict[str, float]:
        before = await clocks()
        await asyncio.sleep(HOUR_S)
        after = await clocks()
        return {name: after[name] - before[name] for name in before}

    with programs() as running:
        (passed,) = running.run(main)
    assert passed == {name: pytest.approx(HOUR_S, abs=JITTER_S) for name in passed}


async def drawn() -> list[object]:
    """Everything that would differ between two runs of a real process."""
    await asyncio.sleep(random.random())
    return [
        random.random(),
        random.Random().random(),
        secrets.token_hex(4),
        os.urandom(4),
        uuid.uuid4(),
        uuid.uuid1(),
        time.time(),
        os.getpid(),
    ]


def test_a_seed_gives_the_same_run_and_another_seed_another_one() -> None:
    def run(seed: int) -> list[list[object]]:
        with programs(seed) as running:
            return running.run(drawn, drawn)

    first = run(1)
    assert run(1) == first
    other = run(2)
    assert all(mine != theirs for mine, theirs in zip(first[0][:7], other[0][:7], strict=True))
    assert first[0][:6] != first[1][:6], "two programs draw different numbers"


def test_clocks_and_random_numbers_are_python_s_again_afterwards() -> None:
    before = (time.sleep, time.monotonic, os.urandom, random.Random.seed)
    with programs():
        assert time.monotonic() == pytest.approx(1_000.0)
    assert (time.sleep, time.monotonic, os.urandom, random.Random.seed) == before
    assert dt.datetime.now(tz=dt.UTC).year >= 2026


def test_callbacks_keep_the_order_of_asyncio() -> None:
    async def main() -> list[str]:
        loop, order = asyncio.get_running_loop(), list[str]()
        loop.call_later(0.002, order.append, "later")
        loop.call_later(0.001, order.append, "sooner")
        loop.call_soon(order.append, "first")
        loop.call_soon(order.append, "second")
        cancelled = loop.call_soon(order.append, "never")
        cancelled.cancel()
        loop.call_later(0.0015, order.append, "never").cancel()
        await asyncio.sleep(1)
        return order

    with programs() as running:
        assert running.run(main) == [["first", "second", "sooner", "later"]]


def test_tasks_in_sets_have_the_order_of_their_creation() -> None:
    async def main() -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(0, str(number))) for number in range(20)]
        done, _ = await asyncio.wait(tasks)
        return [task.result() for task in done]

    with programs() as running:
        (order,) = running.run(main)
    assert order == [str(number) for number in range(20)]


def test_a_timeout_cancels_what_it_waits_for() -> None:
    async def main() -> str:
        ended: list[str] = []

        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(forever(), 5)
        return ended[0]

    with programs() as running:
        assert running.run(main) == ["cancelled"]


def test_a_program_that_sleeps_blocks_its_own_loop_only() -> None:
    ticks: list[tuple[str, float]] = []

    async def ticking(name: str) -> None:
        for _ in range(5):
            await asyncio.sleep(0.1)
            ticks.append((name, time.monotonic()))

    async def blocks() -> None:
        own = asyncio.create_task(ticking("own"))
        time.sleep(1)  # noqa: ASYNC251 - what is tested
        await own

    with programs() as running:
        running.run(blocks, lambda: ticking("other"))
    first_own = next(at for name, at in ticks if name == "own")
    last_other = max(at for name, at in ticks if name == "other")
    assert last_other < 1_000.6 < 1_001 <= first_own


def test_a_function_of_an_executor_runs_beside_the_loop_and_its_error_arrives() -> None:
    async def main() -> tuple[int, str]:
        product = await asyncio.to_thread(lambda: 6 * 7)
        with pytest.raises(ZeroDivisionError) as error:
            await asyncio.get_running_loop().run_in_executor(None, lambda: 1 // 0)
        return product, str(error.value)

    with programs() as running:
        ((product, error),) = running.run(main)
    assert (product, "zero" in error) == (42, True)


def counting(counted: list[float]) -> Any:
    async def main() -> None:
        while True:
            await asyncio.sleep(0.1)
            counted.append(time.monotonic())

    return main


def kill_at_half_a_second(running: Programs) -> None:
    running.world.loop.run_for(500)
    running.machines["counter"].kill()
    running.world.loop.run_for(500)


def test_nothing_of_a_killed_program_runs_and_a_start_begins_from_nothing() -> None:
    counted: list[float] = []
    with programs() as running:
        running.start("counter", counting(counted))
        kill_at_half_a_second(running)
        assert len(counted) == 4
        running.start("counter", counting(counted))
        running.world.loop.run_for(350)
        assert len(counted) == 7


def test_a_paused_program_goes_on_where_it_was() -> None:
    counted: list[float] = []
    with programs() as running:
        running.start("counter", counting(counted))
        running.world.loop.run_for(350)
        machine = running.machines["counter"]
        machine.pause()
        running.world.loop.run_for(10_000)
        assert len(counted) == 3
        machine.resume()
        running.world.loop.run_for(250)
        assert 4 <= len(counted) <= 6
        assert counted[3] >= 1_010.35


def test_a_program_that_is_killed_while_it_sleeps_does_not_go_on() -> None:
    reached: list[str] = []

    async def main() -> None:
        time.sleep(1)  # noqa: ASYNC251 - what is tested
        reached.append("after the sleep")

    with programs() as running:
        running.start("counter", main)
        running.world.loop.call_after(None, 500_000_000, running.kill)
        running.world.loop.run_for(5_000)
    assert reached == []


def test_an_exception_that_nothing_receives_is_kept() -> None:
    async def fails() -> None:
        raise LookupError("nothing awaits this task")

    async def main() -> list[str]:
        loop: Any = asyncio.get_running_loop()
        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        del task
        await asyncio.sleep(1)
        return [str(context["exception"]) for context in loop.unhandled]

    with programs() as running:
        assert running.run(main) == [["nothing awaits this task"]]


async def awaited(call: Callable[[], Any]) -> None:
    await call()


def test_what_no_simulated_loop_has_is_an_error_with_a_remedy() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        said: list[str] = []
        for call in (
            lambda: loop.add_reader(0, print),
            lambda: loop.run_until_complete(None),  # type: ignore[arg-type]
            lambda: asyncio.open_connection("example.org", 80),
            lambda: asyncio.open_connection("127.0.0.1", 5432),
            lambda: asyncio.open_connection("127.0.0.1", 5432, ssl=True),
        ):
            with pytest.raises(FenceError) as error:
                await awaited(call)
            said.append(str(error.value))
        return said

    with programs() as running:
        (said,) = running.run(main)
    for text, named in zip(
        said, ("add_reader", "run_until_complete", "'example.org'", "5432", "TLS is not simulated"), strict=True
    ):
        assert named in text, text
        assert 'backend="local"' in text, text
