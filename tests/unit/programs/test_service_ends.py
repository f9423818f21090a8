"""How a simulated service ends: as under `asyncio.run`, by `sys.exit`, by SIGTERM, by SIGKILL, which runs no code."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from asyncio import sleep  # on virtual time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.programs import ProgramLoop
from harrow.cluster.host.programs.process_view import ProcessView
from harrow.cluster.host.seam import Peer
from harrow.cluster.host.simulated import Machine, World
from harrow.harness.programs.services import Service

RUNS_MS = 5_000
KILLED_AT_MS = 100


class OneMachine:
    """What a service needs of a simulated cluster: a machine of its own."""

    def __init__(self) -> None:
        self.world = World(1)
        self.view = ProcessView(self.world)

    def client_machine(self, name: str) -> Machine:
        return Machine(self.world, f"client-{name}", Peer("client", name))

    def service(self, main: Callable[..., Coroutine[Any, Any, object]], *args: object) -> Service:
        cluster: Any = self
        service = Service("job", cluster, main, args, enter=self.view.enter, restart="never")
        service.start()
        return service


def end_of(main: Callable[..., Coroutine[Any, Any, object]], *args: object) -> Service:
    """Run a service until it has ended by itself."""
    machine = OneMachine()
    service = machine.service(main, *args)
    assert machine.world.loop.run_until(lambda: not service.alive, RUNS_MS), "the service has not ended"
    return service


def test_tasks_that_are_left_are_cancelled_and_clean_up_before_the_process_ends() -> None:
    said: list[str] = []

    async def in_the_background() -> None:
        try:
            await sleep(100)
        finally:
            await sleep(0.01)
            said.append("cleaned up")

    async def main() -> None:
        task = asyncio.create_task(in_the_background())
        await sleep(0.01)
        said.append(f"{task.done()}")

    assert end_of(main).exit_code == 0
    assert said == ["False", "cleaned up"]


def test_an_asynchronous_generator_that_was_left_is_closed() -> None:
    said: list[str] = []

    async def numbers(name: str) -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            await sleep(0.01)
            said.append(name)

    async def main() -> None:
        async for _ in numbers("dropped"):
            break
        await sleep(0.1)
        said.append("main")
        kept.append(numbers("kept"))
        await anext(kept[0])

    kept: list[AsyncGenerator[int]] = []
    assert end_of(main).exit_code == 0
    assert said == ["dropped", "main", "kept"]


@pytest.mark.parametrize(("code", "expected"), [(3, 3), (0, 0), (None, 0), ("out of orders", 1)])
def test_sys_exit_ends_the_service_with_its_code(code: Any, expected: int) -> None:
    async def worker() -> None:
        await sleep(0.01)
        sys.exit(code)

    async def main() -> None:
        task = asyncio.create_task(worker())
        await sleep(100)
        await task

    service = end_of(main)
    assert service.exit_code == expected
    assert bool(service.close()) == bool(expected)
    if isinstance(code, str):
        assert code in service.last_words()


def test_sys_exit_of_main_itself_ends_the_service_once() -> None:
    async def main() -> None:
        await sleep(0)
        sys.exit(4)

    service = end_of(main)
    assert [end.exit_code for end in service.ends()] == [4]


@pytest.mark.parametrize("handler", ["of the loop", "of signal.signal"])
def test_sigterm_calls_the_handler_of_the_service(handler: str) -> None:
    machine = OneMachine()
    said: list[str] = []

    async def main() -> None:
        stop = asyncio.Event()
        if handler == "of the loop":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        else:

            def handle(number: int, frame: object) -> None:
                del frame
                assert number == signal.SIGTERM
                stop.set()

            assert signal.signal(signal.SIGTERM, handle) == signal.SIG_DFL
        await stop.wait()
        said.append("stopped")

    before = signal.getsignal(signal.SIGTERM)
    with machine.view.installed():
        service = machine.service(main)
        machine.world.loop.run_for(KILLED_AT_MS)
        service.terminate()
        assert machine.world.loop.run_until(lambda: not service.alive, RUNS_MS)
    assert (said, service.exit_code) == (["stopped"], 0)
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_was_killed_runs_no_code_any_more() -> None:
    machine = OneMachine()
    said: list[str] = []

    async def in_the_background(seconds: float) -> None:
        try:
            await sleep(seconds)
        finally:
            said.append("finally")

    async def main() -> None:
        background = [asyncio.create_task(in_the_background(seconds)) for seconds in (1, 50)]
        try:
            await sleep(2)
        finally:
            said.append(f"finally of main, {len(background)}")

    service = machine.service(main)
    machine.world.loop.run_for(KILLED_AT_MS)
    service.kill()
    machine.world.loop.run_for(RUNS_MS)
    service.start()
    machine.world.loop.run_for(KILLED_AT_MS)
    gc.collect()
    assert service.starts == 2
    assert said == []


def test_a_program_that_is_no_service_lets_its_exit_through() -> None:
    world = World(1)
    loop = ProgramLoop(Machine(world, "client-test", Peer("client", "test")).boot())

    async def main() -> None:
        await sleep(0.01)
        sys.exit(3)

    with loop.running():
        task = loop.create_task(main())
    with pytest.raises(SystemExit):
        world.loop.run_until(task.done, RUNS_MS)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: os._exit(7), 7),
        (lambda: os._exit(0), 0),
        (lambda: signal.raise_signal(signal.SIGTERM), 143),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 137),
        (lambda: os.kill(os.getpid(), signal.SIGWINCH), None),
        (lambda: signal.raise_signal(signal.SIGINT), 130),
        (lambda: sys.exit(-1), 255),
    ],
)
def test_a_service_ends_itself_at_once_and_the_others_go_on(call: Callable[[], object], code: int | None) -> None:
    machine = OneMachine()
    said: list[str] = []

    async def main() -> None:
        if said:
            await sleep(100)
        await sleep(0.01)
        said.append("ends")
        call()
        await sleep(0.1)
        said.append("goes on")

    with machine.view.installed():
        service = machine.service(main)
        machine.world.loop.run_for(KILLED_AT_MS * 5)
    assert said == (["ends", "goes on"] if code is None else ["ends"])
    assert service.exit_code == (0 if code is None else code)
    assert bool(service.close()) == bool(code)
    if code in (7, 143):
        assert "test_service_ends.py" in service.last_words()


def test_a_signal_that_a_service_sends_itself_calls_its_handler_and_what_it_imported_by_name_is_its_own_too() -> None:
    machine = OneMachine()
    said: list[str] = []

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        signal.raise_signal(signal.SIGTERM)
        await stop.wait()
        said.append("stopped")
        await asyncio.to_thread(os._exit, 9)

    with machine.view.installed():
        service = machine.service(main)
        assert machine.world.loop.run_until(lambda: not service.alive, RUNS_MS)
    assert (said, service.exit_code) == (["stopped"], 9)


def test_a_service_that_sends_itself_the_signal_that_it_got_has_not_failed() -> None:
    machine = OneMachine()

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # as uvicorn does

    with machine.view.installed():
        service = machine.service(main)
        machine.world.loop.run_for(KILLED_AT_MS)
        service.terminate()
        assert machine.world.loop.run_until(lambda: not service.alive, RUNS_MS)
    assert (service.exit_code, service.close()) == (143, [])


def test_a_plain_function_is_refused_with_the_remedy() -> None:
    returns_none: Any = lambda: None  # noqa: E731
    with pytest.raises(ConfigError, match=r"'job' is no coroutine, it returned None: give harrow.start\(\) the corou"):
        OneMachine().service(returns_none)
    machine = OneMachine()
    coroutine = sleep(1)
    runs_a_loop: Any = lambda: asyncio.run(coroutine)  # noqa: E731
    loop = ProgramLoop(machine.client_machine("test").boot(), enter=machine.view.enter)
    with loop.running(), pytest.raises(ConfigError, match=r"'job' starts a loop of its own \(asyncio.run\(\) cannot"):
        machine.service(runs_a_loop)
    coroutine.close()
