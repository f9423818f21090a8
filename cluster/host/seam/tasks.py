"""What runs on a host, and when: calls, timers, coroutines, promises, and blocking calls on threads.

Every callback of a host runs on the broker's one loop, so broker code needs no lock. The exception is a call that
`Tasks.run_blocking` runs on a thread beside the loop; `Tasks.mutex` is for what such a call shares with the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    """A call that runs later."""

    def cancel(self) -> None:
        """Prevent the call; no error when it has run already."""
        ...


class Task(Protocol):
    """A coroutine that the host runs."""

    def cancel(self) -> object:
        """Cancel the coroutine at its next await."""
        ...

    def done(self) -> bool:
        """True when the coroutine has returned, raised or been cancelled."""
        ...


class Promise(Protocol[T]):
    """A value that is set later, once; awaitable."""

    def set_result(self, result: T, /) -> None:
        """Set the value."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Set an error, which the awaiting task raises."""
        ...

    def done(self) -> bool:
        """True when a value or an error was set, or when it was cancelled."""
        ...

    def cancel(self) -> object:
        """Give the value up: an awaiting task is cancelled."""
        ...

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the value."""
        ...


class Tasks(Protocol):
    """What runs when. Every spawned task has a name and ends with the host."""

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        """Run `call(*args)` on the next turn of the loop; the only method that a BLOCKS call may call, too."""
        ...

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> Timer:
        """Run `call(*args)` after `delay_ms`."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> Task:
        """Run a coroutine; an exception that it raises is traced as `task.failed` and logged with its stack."""
        ...

    def promise(self) -> Promise[Any]:
        """A new promise without a value."""
        ...

    async def sleep(self, delay_ms: float) -> None:
        """Suspend this coroutine for `delay_ms`."""
        ...

    async def wait(self, awaitable: Awaitable[T], timeout_ms: float) -> T:
        """Await with a deadline; after it the awaitable is cancelled and TimeoutError is raised."""
        ...

    async def run_blocking(self, call: Callable[..., T], *args: object) -> T:
        """Run a BLOCKS call on a thread beside the loop."""
        ...

    def out_of_memory(self, error: MemoryError) -> NoReturn:
        """End the process at once: after a failed allocation nothing in it can be trusted. Any thread.

        Code that catches Exception, and goes on, must pass a MemoryError on, or call this where a half-done change
        could be seen. A simulated process has no limit: `error` is raised.
        """
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """A lock between the loop and the threads of `run_blocking`; not reentrant."""
        ...
