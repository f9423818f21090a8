"""A host without a machine: virtual time, a loop that is a heap of calls, a disk that is a dict.

Deterministic; nothing here knows of brokers. `SimLoop.close` ends every coroutine that still runs.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from harrow.cluster.host.seam import Buffer
from harrow.cluster.host.simulated.after_delivery import Delivery
from harrow.cluster.ids import TopicPartition

T = TypeVar("T")

OPEN: list[SimLoop] = []
"""Loops that the test which runs has made; `conftest.py` closes them."""


class SimPromise:
    """A promise of the virtual loop."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._settled = False
        self.result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        return self._settled

    def set_result(self, result: Any, /) -> None:
        self._settle(result, None)

    def set_exception(self, error: BaseException, /) -> None:
        self._settle(None, error)

    def cancel(self) -> None:
        if not self._settled:
            self._settle(None, TimeoutError("cancelled"))

    def _settle(self, result: Any, error: BaseException | None) -> None:
        assert not self._settled
        self._settled, self.result, self._error = True, result, error
        for call in self._callbacks:
            self._loop.call_soon(call)

    def when_done(self, call: Callable[[], None]) -> None:
        if self._settled:
            self._loop.call_soon(call)
        else:
            self._callbacks.append(call)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._settled:
            yield self
        if self._error is not None:
            raise self._error
        return self.result


class SimTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SimTask:
    def __init__(self, loop: SimLoop, coroutine: Coroutine[Any, Any, object]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        loop.tasks.append(self)
        self.promise = SimPromise(loop)
        loop.call_soon(self._step)

    def _step(self) -> None:
        if self.promise.done():
            return
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as stop:
            self.promise.set_result(stop.value)
        except BaseException as error:
            self.promise.set_exception(error)
            self._loop.failures.append(error)
        else:
            assert isinstance(awaited, SimPromise)
            awaited.when_done(self._step)

    def cancel(self) -> None:
        self._coroutine.close()
        if not self.promise.done():
            self.promise.set_result(None)

    def done(self) -> bool:
        return self.promise.done()


class SimLoop:
    """Virtual time in milliseconds and what is due when."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0
        self.failures: list[BaseException] = []
        self._heap: list[tuple[float, int, SimTimer, Callable[[], object]]] = []
        self._made = 0
        self.tasks: list[SimTask] = []
        OPEN.append(self)

    def close(self) -> None:
        """End every coroutine."""
        for task in self.tasks:
            task.cancel()
        self._heap.clear()

    def at(self, when_ms: float, call: Callable[[], object]) -> SimTimer:
        timer = SimTimer()
        self._made += 1
        heapq.heappush(self._heap, (when_ms, self._made, timer, call))
        return timer

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self.at(self.now_ms, lambda: call(*args))

    def run_for(self, duration_ms: float) -> None:
        self.run_until(lambda: False, duration_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        deadline = self.now_ms + limit_ms
        while not condition():
            if not self._heap or self._heap[0][0] > deadline:
                self.now_ms = deadline
                return condition()
            when, _, timer, call = heapq.heappop(self._heap)
            self.now_ms = max(self.now_ms, when)
            if not timer.cancelled:
                call()
            if self.failures:
                raise self.failures[0]
        return True


class SimFile:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk, self.path = disk, path

    @property
    def _data(self) -> bytearray:
        return self._disk.files[self.path]

    def append(self, parts: Sequence[Buffer]) -> int:
        self._disk.check()
        data = self._data
        at = len(data)
        for part in parts:
            data += part
        return at

    def write_at(self, position: int, data: Buffer) -> None:
        self._data[position : position + len(data)] = data

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(self._data[position : position + size])

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        # anew: a broker that was killed may have left a view of the old bytes
        self._disk.files[self.path] = self._data[:size]

    def sync(self) -> None:
        self._disk.check()

    def close(self) -> None:
        pass


class SimMap:
    """A file as a view of its bytes, which cannot grow meanwhile."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._view = memoryview(data)

    @property
    def view(self) -> memoryview:
        return self._view

    @property
    def size(self) -> int:
        return len(self._view)

    def resize(self, size: int) -> None:
        self._view.release()
        self._data[size:] = bytes(max(size - len(self._data), 0))
        self._view = memoryview(self._data)

    def sync(self) -> None:
        """Everything is as durable as it gets in memory."""

    def close(self) -> None:
        self._view.release()


class SimLock:
    """Held by nobody else: each broker has a disk of its own."""

    def release(self) -> None:
        pass


class SimDisk:
    """Files in a dict; `broken` makes every write fail."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.folders: set[str] = set()
        self.broken = False

    def check(self) -> None:
        if self.broken:
            raise OSError(5, "simulated I/O error")

    def open(self, path: str, *, create: bool = True) -> SimFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(path)
            self.files[path] = bytearray()
        return SimFile(self, path)

    def map(self, path: str, size: int) -> SimMap:
        data = self.files.setdefault(path, bytearray())
        data += bytes(max(size - len(data), 0))
        return SimMap(data)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return bytes(self.files[path])

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.check()
        self.files[path] = bytearray(data)

    def lock(self, path: str) -> SimLock:
        return SimLock()

    def sync_file(self, path: str) -> None:
        """Everything is as durable as it gets in memory."""

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def is_folder(self, path: str) -> bool:
        return path in self.folders

    def list(self, folder: str) -> list[str]:
        prefix = folder + "/"
        paths = [*self.files, *self.folders]
        return sorted({p[len(prefix) :].split("/")[0] for p in paths if p.startswith(prefix)})

    def space(self, path: str) -> tuple[int, int]:
        del path
        return -1, -1

    def make_folder(self, path: str) -> None:
        self.folders.add(path)

    def rename(self, source: str, target: str) -> None:
        for path in list(self.files):
            if path == source or path.startswith(source + "/"):
                self.files[target + path[len(source) :]] = self.files.pop(path)
        if source in self.folders:
            self.folders.discard(source)
            self.folders.add(target)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_folder(self, path: str) -> None:
        self.folders.discard(path)
        for one in [one for one in self.files if one.startswith(path + "/")]:
            del self.files[one]

    def modified_ms(self, path: str) -> int:
        del path
        return 0


class SimTasks:
    def __init__(self, loop: SimLoop, alive: Callable[[], bool]) -> None:
        self._loop, self._alive = loop, alive

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self.call_later(0, call, *args)

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> SimTimer:
        def run() -> None:
            if self._alive():
                call(*args)

        return self._loop.at(self._loop.now_ms + delay_ms, run)

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> SimTask:
        del name
        return SimTask(self._loop, coroutine)

    def promise(self) -> SimPromise:
        return SimPromise(self._loop)

    async def sleep(self, delay_ms: float) -> None:
        promise = self.promise()
        self.call_later(delay_ms, promise.set_result, None)
        await promise

    async def wait(self, awaitable: Awaitable[T], timeout_ms: float) -> T:
        assert isinstance(awaitable, SimPromise)
        outer = self.promise()

        def late() -> None:
            if not outer.done():
                outer.set_exception(TimeoutError())

        def ready() -> None:
            if not outer.done():
                outer.set_result(None)

        timer = self.call_later(timeout_ms, late)
        awaitable.when_done(ready)
        await outer
        timer.cancel()
        return cast("T", await awaitable)

    def mutex(self) -> AbstractContextManager[object]:
        return nullcontext()

    async def run_blocking(self, call: Callable[..., T], *args: object) -> T:
        await self.sleep(0)
        return call(*args)


@dataclass
class SimTrace:
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    lines: list[str] = field(default_factory=list[str])

    def emit(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    def log(self, level: str, message: str, /, **fields: object) -> None:
        self.lines.append(f"{level} {message} {fields or ''}")

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]


class SimFailpoints:
    def __init__(self) -> None:
        self.armed: dict[str, Callable[[], None]] = {}

    def hit(self, name: str) -> None:
        if name in self.armed:
            self.armed[name]()


@dataclass
class SimTap:
    enabled: bool = True
    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])

    def produced(self, client: str, topic: str, partition: int, **fields: Any) -> None:
        self.rows.append(
            ("produced", {"client": client, "tp": TopicPartition(topic, partition), **fields})
        )

    def fetched(self, client: str, topic: str, partition: int, **fields: Any) -> None:
        self.rows.append(
            ("fetched", {"client": client, "tp": TopicPartition(topic, partition), **fields})
        )


class SimNetwork:
    """No links: the simulation carries frames itself, and says here what it delivers."""

    def __init__(self, tasks: SimTasks, alive: Callable[[], bool]) -> None:
        delivery = Delivery(tasks.call_soon, alive)
        self.deliver, self.after_delivery = delivery.run, delivery.after

    def flush(self) -> None:
        """Nothing is held back."""


class SimHost:
    """Host of one life of one broker."""

    def __init__(self, name: str, loop: SimLoop, disk: SimDisk, seed: str) -> None:
        self.alive = True
        self.name = name
        self.loop = loop
        self.disk = disk
        self.clock = self
        self.tasks = SimTasks(loop, lambda: self.alive)
        self.random = random.Random(seed)
        self.failpoints = SimFailpoints()
        self.trace = SimTrace()
        self.tap = SimTap()
        self.network = SimNetwork(self.tasks, lambda: self.alive)

    def monotonic_ms(self) -> int:
        return int(self.loop.now_ms)

    def monotonic_ns(self) -> int:
        return int(self.loop.now_ms * 1_000_000)

    def wall_ms(self) -> int:
        return int(self.loop.now_ms) + 1_700_000_000_000
