"""Timers, tasks and threads on the running loop: `Tasks` of the seam.

Owns: strong references to every spawned task (the loop itself keeps weak ones, so a task without an
awaiter could vanish), and a small thread pool for BLOCKS calls. An exception that a task raises is traced as
`task.failed` and logged with its stack; nothing is fire-and-forget. `stop` cancels what is left and waits
for it, so every task ends with the host.

The process chooses the loop (`process.py`: uvloop); nothing here depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Lock, get_ident
from typing import Any, NoReturn, TypeVar

from ...events.processes import OutOfMemory, TaskFailed
from ..seam import Promise, Timer, Trace

T = TypeVar("T")

OUT_OF_MEMORY = 3
"""Exit code of a process in which an allocation failed; as of a JVM with -XX:+ExitOnOutOfMemoryError."""
NO_THREAD = "can't start new thread"
"""What Python says when the stack of a new thread cannot be allocated."""
BLOCKING_THREADS = 4
"""Enough for a flush, a recovery and a retention sweep at once; more would only queue at the disk."""


class RealTasks:
    """Timers, tasks and threads of one process; made inside its running loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, trace: Trace) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._trace = trace
        self._tasks: set[asyncio.Task[object]] = set()
        self._threads = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="harrow-blocking")

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        """Run `call(*args)` on the next turn of the loop; from a BLOCKS call's thread too."""
        if get_ident() == self._thread:
            self._loop.call_soon(call, *args)
        else:
            self._loop.call_soon_threadsafe(call, *args)

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> Timer:
        """Run `call(*args)` after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, call, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Run a coroutine and hold a reference to its task until it ends."""
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.report(task.get_name(), error)

    def report(self, name: str, error: BaseException) -> None:
        """Trace `task.failed` and log the stack of an exception that no caller receives.

        A MemoryError ends the process.
        """
        if isinstance(error, MemoryError):
            self.out_of_memory(error)
        self._trace.emit(TaskFailed(name=name, error=f"{type(error).__name__}: {error}"))
        stack = "".join(traceback.format_exception(error))
        self._trace.log("error", f"task {name} failed\n{stack.rstrip()}")

    def promise(self) -> Promise[Any]:
        """A new promise without a value: a future of the loop."""
        return self._loop.create_future()

    async def sleep(self, delay_ms: float) -> None:
        """Suspend this coroutine for `delay_ms`."""
        await asyncio.sleep(delay_ms / 1000)

    async def wait(self, awaitable: Awaitable[T], timeout_ms: float) -> T:
        """Await with a deadline; after it the awaitable is cancelled and TimeoutError is raised."""
        async with asyncio.timeout(timeout_ms / 1000):
            return await awaitable

    async def run_blocking(self, call: Callable[..., T], *args: object) -> T:
        """Run a BLOCKS call on a thread beside the loop."""
        try:
            return await self._loop.run_in_executor(self._threads, call, *args)
        except RuntimeError as error:
            if NO_THREAD not in str(error):
                raise
            self.out_of_memory(MemoryError(str(error)))

    def out_of_memory(self, error: MemoryError) -> NoReturn:
        """Trace it, as far as there is memory for that, and end the process; its buffers are not written."""
        with contextlib.suppress(MemoryError):
            self._trace.emit(OutOfMemory(error=str(error)))
        os._exit(OUT_OF_MEMORY)

    def mutex(self) -> AbstractContextManager[object]:
        """A lock between the loop and the threads beside it."""
        return Lock()

    async def stop(self) -> None:
        """Cancel every task that is left, wait for all of them, and let the threads finish."""
        current = asyncio.current_task()
        while left := [task for task in self._tasks if task is not current]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            self._tasks.difference_update(left)
        self._threads.shutdown(wait=True, cancel_futures=True)
