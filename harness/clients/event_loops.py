"""The event loop of an asyncio client: work on it from outside, and the client's end with it (J6).

A recording aiokafka client belongs to the loop in which it was created. A run calls from outside of it: `verify` waits
for sends, the end of a test closes the client. `run_on` runs a coroutine on the loop, whatever the loop does now.
`Guard` is a task beside the client: when the loop cancels its tasks, as `asyncio.run` and `asyncio.Runner` do at their
end, it closes the client's connections, so that neither the client nor its sockets are left open.

What may fail: a loop that has ended, or that runs the caller itself, cannot run the coroutine; the result says so.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

Work = Callable[[], Coroutine[Any, Any, None]]
STOP_S = 5.0
"""How long the end of a run waits for a client to stop by itself."""
GRACE_S = 1.0
"""How much longer than its timeout a coroutine may take to end."""


class LoopRun(Enum):
    """What became of a coroutine; the value ends a sentence on results that are missing."""

    DONE = "although all were flushed"
    TIMED_OUT = "in time"
    ENDED = "when their event loop ended: await the client's stop() before"
    OCCUPIED = (
        "when verify() was called in their event loop, which cannot run meanwhile: await the client's flush() before, "
        "or call `await asyncio.to_thread(harrow.verify, …)`"
    )


def run_on(loop: asyncio.AbstractEventLoop, work: Work, timeout_s: float) -> LoopRun:
    """Run `work()` on `loop` for at most `timeout_s` seconds; an exception of the coroutine is raised."""
    if loop.is_closed():
        return LoopRun.ENDED
    running = running_loop()
    if running is loop:
        return LoopRun.OCCUPIED
    if loop.is_running():
        return _in_its_thread(loop, work, timeout_s)
    if running is None:
        return loop.run_until_complete(_bounded(work, timeout_s))
    return _in_a_thread(loop, work, timeout_s)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _bounded(work: Work, timeout_s: float) -> LoopRun:
    try:
        await asyncio.wait_for(work(), timeout_s)
    except TimeoutError:
        return LoopRun.TIMED_OUT
    return LoopRun.DONE


def _in_its_thread(loop: asyncio.AbstractEventLoop, work: Work, timeout_s: float) -> LoopRun:
    coroutine = _bounded(work, timeout_s)
    result = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return result.result(timeout_s + GRACE_S)
    except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
        result.cancel()
        return LoopRun.TIMED_OUT
    finally:
        if not loop.is_running():  # it ended meanwhile, and has perhaps not begun the coroutine
            coroutine.close()


def _in_a_thread(loop: asyncio.AbstractEventLoop, work: Work, timeout_s: float) -> LoopRun:
    """Run an idle loop in a thread of its own, because another loop runs in this thread."""
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="harrow-loop") as pool:
        return pool.submit(lambda: loop.run_until_complete(_bounded(work, timeout_s))).result()


def close_connections(client: Any) -> None:
    """Close the connections of an aiokafka client whose loop has ended, and which cannot close them itself any more."""
    for connection in tuple(getattr(client, "_conns", {}).values()):
        transport: Any = getattr(getattr(connection, "_writer", None), "transport", None)
        if transport is None:
            continue
        with contextlib.suppress(RuntimeError):  # it is marked as closing, then misses its loop
            transport.close()
        socket = getattr(transport, "_sock", None)  # of asyncio's own transports
        if socket is not None:
            transport._sock = None  # noqa: SLF001
            socket.close()
        connection._reader = connection._writer = None  # noqa: SLF001


class Guard:
    """Closes a client when its loop cancels its tasks; create it in the loop."""

    def __init__(self, close: Work) -> None:
        self.loop = asyncio.get_running_loop()
        self._close = close
        self._released = False
        self._task = self.loop.create_task(self._wait(), name="harrow: close a client with its loop")
        # a loop that ends without cancelling its tasks would report this one
        setattr(self._task, "_log_destroy_pending", False)  # noqa: B010

    async def _wait(self) -> None:
        try:
            await self.loop.create_future()
        except asyncio.CancelledError:
            if not self._released:
                await self._close()

    async def release(self) -> None:
        """End the guard without effect: the client is stopped."""
        self._released = True
        if asyncio.current_task() is not self._task:
            self._task.cancel()
            await asyncio.wait([self._task])


class ClientInLoop:
    """Ends an asyncio client from outside of its loop."""

    def __init__(self, stop: Work, close: Work, forget: Callable[[], None]) -> None:
        """`stop`: the client's own end. `close`: closes its connections only. `forget`: the same without a loop."""
        self._stop, self._close, self._forget = stop, close, forget
        self.guard = Guard(close)
        self._last: asyncio.Task[None] | None = None

    def run(self, work: Work, timeout_s: float) -> LoopRun:
        """Run `work()` on the client's loop."""
        return run_on(self.guard.loop, work, timeout_s)

    def end(self) -> None:
        """Stop the client; where its loop runs the caller, as soon as the loop goes on."""
        ended = self.run(self._stop_in_time, 2 * STOP_S)
        if ended is LoopRun.ENDED:
            self._forget()
        elif ended is LoopRun.OCCUPIED:
            self._last = self.guard.loop.create_task(self._stop_in_time())

    async def _stop_in_time(self) -> None:
        try:
            await asyncio.wait_for(self._stop(), STOP_S)
        except Exception:  # it takes too long, or a broker refuses the last commit
            await self._close()
