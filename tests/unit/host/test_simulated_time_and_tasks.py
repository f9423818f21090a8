"""The simulated host's loop and tasks: asyncio's rules on a virtual clock, incarnations that pause and end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from harrow.cluster.events.processes import TaskFailed
from harrow.cluster.host.seam import Peer
from harrow.cluster.host.seam.failpoints import AFTER_APPEND
from harrow.cluster.host.simulated import Machine, SimHost, World
from harrow.cluster.host.simulated.loop import LivelockError


@pytest.fixture
def world() -> Any:
    made = World(1)
    yield made
    made.close()


class Seen(list[Any]):
    """The observed events, in order."""


def boot(world: World, name: str = "one") -> SimHost:
    return Machine(world, name, Peer("broker", name)).boot()


def run(world: World, host: SimHost, body: Callable[[], Any], limit_ms: float = 10_000) -> list[Any]:
    """Run a coroutine to its end; return its result, or the exception that it raised."""
    ended: list[Any] = []

    async def main() -> None:
        try:
            ended.append(await body())
        except Exception as error:
            ended.append(error)

    host.tasks.spawn(main(), name="main")
    assert world.loop.run_until(lambda: bool(ended), limit_ms), "the coroutine has not ended"
    return ended


def test_clock_jumps_to_the_next_timer_and_calls_keep_their_order(world: World) -> None:
    host, seen = boot(world), Seen()
    began = host.clock.monotonic_ms()

    def note(name: str) -> None:
        seen.append((name, host.clock.monotonic_ms() - began))

    for delay, name in ((5, "c"), (0, "a"), (5, "d"), (3, "b")):
        host.tasks.call_later(delay, note, name)
    host.tasks.call_later(4, seen.append, "never").cancel()
    world.loop.run_for(86_400_000)
    assert seen == [("a", 0), ("b", 3), ("c", 5), ("d", 5)]
    assert host.clock.monotonic_ms() == began + 86_400_000
    assert world.loop.turns == 4


def test_wait_ends_with_the_result_or_the_timeout(world: World) -> None:
    host = boot(world)

    async def in_time() -> str:
        promise = host.tasks.promise()
        host.tasks.call_later(10, promise.set_result, "value")
        return await host.tasks.wait(promise, 20)

    assert run(world, host, in_time) == ["value"]
    promise = host.tasks.promise()

    async def too_late() -> None:
        await host.tasks.wait(promise, 20)

    assert isinstance(run(world, host, too_late)[0], TimeoutError)
    assert promise.done()  # cancelled with the wait, as asyncio does


def test_wait_that_times_out_cancels_the_coroutine_and_runs_its_finally(world: World) -> None:
    host, seen = boot(world), Seen()

    async def slow() -> None:
        try:
            await host.tasks.sleep(1_000)
        finally:
            seen.append("cleaned")

    async def body() -> None:
        await host.tasks.wait(slow(), 5)

    assert isinstance(run(world, host, body)[0], TimeoutError)
    assert seen == ["cleaned"]


def test_cancel_ends_a_task_at_its_wait_without_a_timeout_error(world: World) -> None:
    host, seen = boot(world), Seen()

    async def body() -> None:
        try:
            await host.tasks.wait(host.tasks.promise(), 1_000)
        except TimeoutError:
            seen.append("timeout")

    task = host.tasks.spawn(body(), name="waits")
    world.loop.run_for(1)
    task.cancel()
    world.loop.run_for(1)
    assert task.done()
    assert seen == []


def test_blocking_call_takes_time_while_the_loop_continues(world: World) -> None:
    host, seen = boot(world), Seen()
    host.machine.slow_disk((50, 50))
    host.tasks.call_later(10, seen.append, "loop")

    async def body() -> None:
        await host.tasks.run_blocking(seen.append, "thread")
        with pytest.raises(KeyError):
            await host.tasks.run_blocking(dict[str, int]().__getitem__, "absent")

    run(world, host, body)
    assert seen == ["loop", "thread"]


def test_slow_disks_that_overlap_end_in_any_order(world: World) -> None:
    machine = boot(world).machine
    usual, first, second = machine.blocking_ms, (160.0, 170.0), (60.0, 65.0)
    for ends in ((first, second), (second, first)):
        machine.slow_disk(first)
        machine.slow_disk(second)
        assert machine.blocking_ms == first
        machine.end_slow_disk(ends[0])
        assert machine.blocking_ms == ends[1]
        machine.end_slow_disk(ends[1])
        assert machine.blocking_ms == usual


def test_uncaught_exception_is_traced(world: World) -> None:
    host = boot(world)

    async def body() -> None:
        raise ValueError("oops")

    host.tasks.spawn(body(), name="broken")
    host.tasks.call_soon(int, "x")
    world.loop.run_for(1)
    failed = [row.event.error for row in world.trace.events if isinstance(row.event, TaskFailed)]
    assert failed[0] == "ValueError: oops"
    assert failed[1].startswith("ValueError: invalid literal")


def test_paused_incarnation_runs_its_timers_after_resume_and_a_killed_one_does_not(world: World) -> None:
    first, other, seen = boot(world, "one"), boot(world, "other"), Seen()
    began = first.clock.monotonic_ms()

    def note(host: SimHost) -> None:
        seen.append((host.name, host.clock.monotonic_ms() - began))

    for host in (first, other):
        for delay in (10, 20):
            host.tasks.call_later(delay, note, host)
    first.machine.pause()
    world.loop.run_for(15)
    other.machine.kill()
    world.loop.run_for(85)
    assert seen == [("other", 10)]
    first.machine.resume()
    world.loop.run_for(1)
    assert seen == [("other", 10), ("one", 100), ("one", 100)]


def test_finally_in_a_killed_process_has_no_effect(world: World) -> None:
    host, seen = boot(world), Seen()

    async def body() -> None:
        try:
            await host.tasks.promise()
        finally:
            seen.append("closed")
            host.disk.open("/one/late").append([b"x"])
            host.tasks.spawn(body(), name="late")

    host.tasks.spawn(body(), name="waits")
    world.loop.run_for(1)
    host.machine.kill()
    world.loop.run_for(10)
    assert seen == []
    world.close()
    assert seen == ["closed"]
    assert not host.machine.disk.exists("/one/late")


def test_a_coroutine_that_never_starts_closes_the_one_it_holds_without_a_warning(world: World) -> None:
    host = boot(world)

    async def inner() -> None:
        raise AssertionError

    async def outer(holds: Coroutine[Any, Any, None]) -> None:
        await holds

    host.tasks.spawn(outer(inner()), name="at the end of the world")
    host.machine.kill()
    host.tasks.spawn(outer(inner()), name="of a dead process")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        world.close()
    assert seen == []


def test_failpoint_with_crash_ends_the_process_at_once(world: World) -> None:
    host, seen = boot(world), Seen()
    file = host.disk.open("/one/log")

    async def body() -> None:
        file.append([b"before"])
        try:
            host.failpoints.hit(AFTER_APPEND)
        finally:
            file.append([b"after"])
        seen.append("lived")

    host.control.call("rules.add", kind="failpoint", name=AFTER_APPEND, action="crash")
    host.tasks.spawn(body(), name="appends")
    world.loop.run_for(10)
    assert not host.machine.alive
    assert host.machine.disk.read("/one/log") == b"before"
    assert seen == []


def test_endless_calls_without_time_raise_a_livelock_error(world: World) -> None:
    host = boot(world)

    def again() -> None:
        host.tasks.call_soon(again)

    again()
    with pytest.raises(LivelockError, match="time does not advance"):
        world.loop.run_for(1)


def test_each_incarnation_draws_other_numbers_and_the_next_simulation_repeats_them() -> None:
    def draws() -> list[float]:
        world = World(7)
        machine = Machine(world, "one", Peer("broker", "1"))
        found = [machine.boot().random.random()]
        machine.kill()
        found.append(machine.boot().random.random())
        world.close()
        return found

    first = draws()
    assert first[0] != first[1]
    assert draws() == first
