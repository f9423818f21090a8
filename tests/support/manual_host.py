"""A host for tests of sans-IO rooms: a simulated machine whose time moves only in `advance` and `run`.

Clock, tasks, trace and random numbers are those of `cluster/host/simulated`, with two differences: the trace keeps log
lines of every level, and `advance` and `run` raise an exception that ends a task or a callback, which is not traced.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from harrow.cluster.events.processes import LogLine
from harrow.cluster.host.seam import Host, Peer, T, Tasks, Trace
from harrow.cluster.host.simulated import Machine, World
from harrow.cluster.host.simulated.loop import Incarnation, SimLoop, SimTimer
from harrow.cluster.host.simulated.tasks import SimPromise, SimTask, SimTasks


class ManualTasks(SimTasks):
    """Simulated tasks that count the scheduled calls, and raise the exceptions of tasks and callbacks."""

    calls_scheduled = 0

    def __init__(self, loop: SimLoop, life: Incarnation, trace: Trace, rng: Random) -> None:
        super().__init__(loop, life, trace, rng)
        self.spawned: list[SimTask] = []

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self.calls_scheduled += 1
        super().call_soon(call, *args)

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> SimTimer:
        self.calls_scheduled += 1
        return super().call_later(delay_ms, call, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> SimTask:
        task = super().spawn(coroutine, name=name)
        self.spawned.append(task)
        return task

    def report(self, name: str, error: BaseException) -> None:
        raise error


class ManualHost(Host):
    """Broker 1 on a machine of its own."""

    def __init__(self, *, seed: int = 7) -> None:
        self._world = World(seed, log_level="debug")
        host = Machine(self._world, "broker-1", Peer("broker", "1")).boot()
        self._tasks = ManualTasks(self._world.loop, host.incarnation, host.trace, host.random)
        self.name, self.clock, self.random = host.name, host.clock, host.random
        self.tasks: Tasks = self._tasks
        self.disk, self.network, self.failpoints = host.disk, host.network, host.failpoints
        self.trace, self.tap = host.trace, host.tap

    def advance(self, by_ms: float) -> None:
        """Move the time by `by_ms`, and run each call at the time at which it is due."""
        self._world.loop.run_for(by_ms)

    def run_due(self) -> None:
        """Run all that is due now."""
        self.advance(0)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> SimPromise[T]:
        """Run a coroutine of the test beside its caller; returns the promise of its result."""
        promise: SimPromise[T] = self._tasks.promise()

        async def run() -> None:
            promise.set_result(await coroutine)

        SimTasks.spawn(self._tasks, run(), name="test")
        return promise

    def run(self, coroutine: Coroutine[Any, Any, T], *, limit_ms: float = 60_000) -> T:
        """Run a coroutine of the test to its end, and move the time as far as it waits; returns its result."""
        promise = self.start(coroutine)
        assert self._world.loop.run_until(promise.done, limit_ms), f"not done in {limit_ms} ms"
        return promise.result()

    @property
    def running(self) -> list[str]:
        """Names of the spawned tasks that have not ended; those of `start` and `run` are not listed."""
        return [task.name for task in self._tasks.spawned if not task.done()]

    async def wait_for_tasks(self) -> None:
        """Wait until every spawned task has ended."""
        while self.running:
            await self.tasks.sleep(1)

    @property
    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return self.clock.monotonic_ms()

    @property
    def calls_scheduled(self) -> int:
        """Number of times that `call_soon` or `call_later` was called, cancelled calls included."""
        return self._tasks.calls_scheduled

    @property
    def events(self) -> list[tuple[str, dict[str, object]]]:
        """Everything in the trace: events with their fields; a log line is the event `log.LEVEL`."""
        return [
            (f"log.{event.level}" if isinstance(event, LogLine) else event.event_name, event.json_fields())
            for event in (row.event for row in self._world.trace.events)
        ]
