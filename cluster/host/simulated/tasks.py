"""Coroutines, promises and timers of one simulated incarnation: `Tasks` of the seam.

Owns: `SimTasks` and the tasks, promises and timers that it creates. Their semantics are asyncio's, for which broker
code was written: a promise's waiters run in a later turn; cancelling a task cancels the promise it waits for; `wait`
cancels its awaitable at the deadline and raises TimeoutError; an exception that leaves a task is traced as
`task.failed`.

A BLOCKS call runs on a simulated thread: it takes a time drawn from the seed, and the loop goes on meanwhile. The
call itself is one instant.

Coroutines of a killed incarnation never run again. The loop stores them until the world ends, so that garbage
collection does not run their `finally` clauses earlier.
"""

from __future__ import annotations

import inspect
import random
import traceback
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, NoReturn, TypeVar

from ...events.processes import TaskFailed
from ..seam import Trace
from .loop import NS_PER_MS, Incarnation, ProcessKilled, SimLoop, SimTimer

T = TypeVar("T")

_PENDING, _RESULT, _ERROR, _CANCELLED = range(4)

MillisecondRange = tuple[float, float]
"""Least and most milliseconds."""

BLOCKING_MS: MillisecondRange = (0.02, 0.5)
"""Duration of a BLOCKS call on a disk that no fault has made slow."""


class Cancelled(BaseException):
    """Raised in a cancelled task at its await."""


class InvalidStateError(Exception):
    """A promise got a second value."""


class SimPromise(Generic[T]):
    """A value that is set later; `Promise` of the seam."""

    __slots__ = ("_callbacks", "_incarnation", "_loop", "_state", "_value")

    def __init__(self, loop: SimLoop, incarnation: Incarnation) -> None:
        self._loop = loop
        self._incarnation = incarnation
        self._state = _PENDING
        self._value: Any = None
        self._callbacks: list[Callable[[], object]] = []

    def done(self) -> bool:
        """True when it has a value or an error, or was cancelled."""
        return self._state != _PENDING

    def set_result(self, result: T, /) -> None:
        """Set the value."""
        self._set(_RESULT, result)

    def set_exception(self, error: BaseException, /) -> None:
        """Set an error."""
        self._set(_ERROR, error)

    def cancel(self) -> bool:
        """Give the value up; False when it was set."""
        if self._state != _PENDING:
            return False
        self._set(_CANCELLED, None)
        return True

    def _set(self, state: int, value: object) -> None:
        if self._state != _PENDING:
            raise InvalidStateError("a promise gets one value")
        self._state, self._value = state, value
        callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            self._loop.call_soon(self._incarnation, call)

    def when_done(self, call: Callable[[], object]) -> None:
        """Run `call` in a later turn of the loop when it is done."""
        if self._state == _PENDING:
            self._callbacks.append(call)
        else:
            self._loop.call_soon(self._incarnation, call)

    def result(self) -> T:
        """The value; raises the error or Cancelled."""
        if self._state == _RESULT:
            found: T = self._value
            return found
        if self._state == _CANCELLED:
            raise Cancelled
        assert self._state == _ERROR, "the promise has no value yet"
        raise self._value

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the value."""
        if self._state == _PENDING:
            yield self
        return self.result()


class SimTask:
    """A coroutine that runs on the loop; `Task` of the seam."""

    __slots__ = ("_coroutine", "_done", "_must_cancel", "_tasks", "_waits_for", "cancels", "name")

    def __init__(self, tasks: SimTasks, coroutine: Coroutine[Any, Any, object], name: str) -> None:
        self._tasks = tasks
        self._coroutine = coroutine
        self._done = False
        self._must_cancel = False
        self._waits_for: SimPromise[Any] | None = None
        self.cancels = 0
        self.name = name

    def done(self) -> bool:
        """True when the coroutine has returned, raised or been cancelled."""
        return self._done

    def cancel(self) -> object:
        """Raise Cancelled where it waits, in a later turn."""
        if self._done:
            return False
        self.cancels += 1
        if self._waits_for is None or not self._waits_for.cancel():
            self._must_cancel = True
        return True

    def step(self) -> None:
        """Run it to its next await."""
        if self._done:
            return
        waits_for = self._waits_for
        assert waits_for is None or waits_for.done(), f"{self.name} goes on without what it waits for"
        self._waits_for = None
        tasks = self._tasks
        before, tasks.current = tasks.current, self
        try:
            if self._must_cancel:
                self._must_cancel = False
                awaited = self._coroutine.throw(Cancelled())
            else:
                awaited = self._coroutine.send(None)
        except StopIteration:
            self._end(None)
        except Cancelled:
            self._end(None)
        except ProcessKilled:
            self._end(None)
            raise
        except Exception as error:
            self._end(error)
        else:
            assert isinstance(awaited, SimPromise), f"{self.name} awaits {awaited!r}"
            self._waits_for = awaited
            awaited.when_done(self.step)
            if self._must_cancel and awaited.cancel():
                self._must_cancel = False
        finally:
            tasks.current = before

    def _end(self, error: Exception | None) -> None:
        self._done = True
        self._tasks.ended(self, error)

    def shut(self) -> None:
        """The world ends: run the `finally` clauses and ignore what they do.

        A coroutine that never started may hold another one, of which Python says that it was never awaited. So it is.
        """
        if not self._done:
            self._done = True
            try:
                with self._ignores_unawaited():
                    self._coroutine.close()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise

    @contextmanager
    def _ignores_unawaited(self) -> Generator[None]:
        if inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CREATED:
            yield
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* was never awaited", RuntimeWarning)
            yield


class SimTasks:
    """The tasks and timers of one incarnation."""

    def __init__(self, loop: SimLoop, incarnation: Incarnation, trace: Trace, rng: random.Random) -> None:
        self._loop = loop
        self._incarnation = incarnation
        self._trace = trace
        self._random = rng
        self.current: SimTask | None = None
        self.blocking_ms = BLOCKING_MS
        """Shortest and longest time of a BLOCKS call; a fault makes it longer (a slow disk)."""
        self.blocking_calls = 0
        """BLOCKS calls begun."""
        incarnation.report = self.report

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        """Run `call(*args)` on the next turn of the loop."""
        self._loop.call_soon(self._incarnation, call, *args)

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> SimTimer:
        """Run `call(*args)` after `delay_ms`."""
        return self._loop.call_after(self._incarnation, int(delay_ms * NS_PER_MS), call, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> SimTask:
        """Run a coroutine; a coroutine that a dead incarnation spawns never starts."""
        task = SimTask(self, coroutine, name)
        if self._loop.closed or not self._incarnation.alive:
            task.shut()
            return task
        self._loop.at_close(task, task.shut)
        self._loop.call_soon(self._incarnation, task.step)
        return task

    def ended(self, task: SimTask, error: Exception | None) -> None:
        """A task has ended."""
        self._loop.forget(task)
        if error is not None:
            self.report(task.name, error)

    def report(self, name: str, error: BaseException) -> None:
        """Trace `task.failed` and log the stack of an exception that no caller receives."""
        self._trace.emit(TaskFailed(name=name, error=f"{type(error).__name__}: {error}"))
        stack = "".join(traceback.format_exception(error))
        self._trace.log("error", f"task {name} failed\n{stack.rstrip()}")

    def promise(self) -> SimPromise[Any]:
        """A new promise without a value."""
        return SimPromise(self._loop, self._incarnation)

    async def sleep(self, delay_ms: float) -> None:
        """Suspend this coroutine for `delay_ms`."""
        promise = self.promise()
        timer = self.call_later(delay_ms, set_none, promise)
        try:
            await promise
        finally:
            timer.cancel()

    async def wait(self, awaitable: Awaitable[T], timeout_ms: float) -> T:
        """Await with a deadline; after it the awaitable is cancelled and TimeoutError is raised."""
        task = self.current
        assert task is not None, "wait is for coroutines"
        fired: list[bool] = []
        cancels = task.cancels

        def late() -> None:
            fired.append(True)
            task.cancel()

        timer = self.call_later(timeout_ms, late)
        try:
            return await awaitable
        except Cancelled:
            if fired and task.cancels <= cancels + 1:
                task.cancels -= 1
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()

    def out_of_memory(self, error: MemoryError) -> NoReturn:
        """The memory of this machine is exhausted, and not that of a simulated one."""
        raise error

    def mutex(self) -> AbstractContextManager[object]:
        """A lock that is never contended: a simulated thread's call is one turn of the loop."""
        return nullcontext()

    async def run_blocking(self, call: Callable[..., T], *args: object) -> T:
        """Run a BLOCKS call on a simulated thread beside the loop."""
        low, high = self.blocking_ms
        self.blocking_calls += 1
        promise: SimPromise[T] = self.promise()

        def run() -> None:
            try:
                result = call(*args)
            except Exception as error:  # raised in the caller, as from a thread
                if not promise.done():
                    promise.set_exception(error)
            else:
                if not promise.done():
                    promise.set_result(result)

        self.call_later(low + (high - low) * self._random.random(), run)
        return await promise


def set_none(promise: SimPromise[None]) -> None:
    """Set the result None, unless the promise is done."""
    if not promise.done():
        promise.set_result(None)
