"""The asyncio event loop of one program on one simulated machine.

Owns: the callbacks that are ready, in asyncio's order; the timers, on virtual time; the program's connections. Nothing
runs by itself: the world's loop calls one turn after another, and in each turn the callbacks run that were ready when
it began, as asyncio runs them. The seed decides how long a turn takes and when frames arrive, so it decides which of
two events a program sees first; callbacks that are ready at the same time keep asyncio's order, which programs rely on.

A program that blocks its loop (`time.sleep`, a call that waits) blocks this loop only: the world goes on meanwhile
(`block`), and what is due runs afterwards.

What may fail: FenceError for what no simulated loop has (TLS, sub-processes, readers of file descriptors, …); the
errors of sockets for connections (`connections.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import random
import sys
import weakref
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from .connections import Connections
from .fence import FENCE, FenceError
from .ordered import OrderedFuture, OrderedTask
from .refused_calls import RefusedCalls

if TYPE_CHECKING:
    import socket

    from ..simulated import SimHost
    from ..simulated.loop import SimTimer
    from .connections import ServerSocket
    from .stream_transport import StreamTransport
    from .transports import LinkTransport

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURN_NS = (5_000, 120_000)
"""The shortest and the longest time that one turn of a program's loop takes."""
THREAD_MS = (0.05, 3.0)
"""The shortest and the longest time of a function in an executor."""
ROUNDING_S = 1e-6
Context = contextvars.Context | None
LOGGER = logging.getLogger("asyncio")
"""asyncio's own, to which its loops write, too."""

EnterProgram = Callable[["ProgramLoop"], Callable[[], None]]
"""Called before a program's code runs; returns what is called when it has run."""


def _nothing() -> None:
    """What is called after code that nothing was set up for."""


class ProgramTimer(asyncio.TimerHandle):
    """A callback that is due later."""

    __slots__ = ("sim_timer",)

    sim_timer: SimTimer

    def cancel(self) -> None:
        """Prevent the callback."""
        self.sim_timer.cancel()
        super().cancel()


class ProgramLoop(RefusedCalls):
    """The loop of one incarnation of a program."""

    def __init__(self, host: SimHost, *, enter: EnterProgram | None = None) -> None:
        """`enter`: called around each turn, to show the process what this machine's clocks say."""
        self.host = host
        self._world = host.machine.world.loop
        self._incarnation = host.incarnation
        self._random: random.Random = host.random
        self._enter = enter
        self._ready: deque[asyncio.Handle] = deque()
        self._due = False
        """Whether a turn is planned."""
        self._blocked = False
        """Whether the program blocks its loop."""
        self._made = 0
        self._connections = Connections(self, host)
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._task_factory: Any = None
        self._closed = False
        self._debug = False
        self.signal_handlers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        """What the program does at a signal."""
        self.unhandled: list[dict[str, Any]] = []
        """The contexts of exceptions that nothing received, such as those of tasks that nothing awaits."""
        self.on_exit: Callable[[BaseException], None] | None = None
        """Called with SystemExit or KeyboardInterrupt that a callback raised: the program ends."""
        self.on_end: Callable[[int, str], None] | None = None
        """Called with an exit code and why, where the program ends at once: `os._exit`, or a signal to itself."""
        self.prints_as = ""
        """The name under which `ProgramOutput` keeps what it prints; empty: it prints where the process does."""
        self.databases: list[Any] = []
        """The connections to SQLite that it opened: the kernel would end them with its process."""
        self._generators: dict[int, weakref.ref[AsyncGenerator[Any, Any]]] = {}
        """The asynchronous generators that were begun, by their number."""

    # ------------------------------------------------------------------------------------ turns

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            low, high = TURN_NS
            self._world.call_after(self._incarnation, low + int((high - low) * self._random.random()), self._turn)

    def _turn(self) -> None:
        self._due = False
        if self._blocked:
            return  # `block` plans a turn when it ends
        ready, incarnation = self._ready, self._incarnation
        leave = self._begin()
        try:
            for _ in range(len(ready)):
                if not incarnation.running:
                    break
                handle = ready.popleft()
                if handle.cancelled():
                    continue
                try:
                    handle._run()  # noqa: SLF001 - how asyncio's own loops run a handle
                except (SystemExit, KeyboardInterrupt) as error:
                    if self.on_exit is None:
                        raise
                    self.on_exit(error)
                    break
                finally:
                    del handle  # what it held ends within the program
        finally:
            leave()
        if ready:
            self._wake()

    @contextmanager
    def running(self) -> Generator[None]:
        """Run code as the program's: asyncio has this loop, and clocks are this machine's."""
        leave = self._begin()
        try:
            yield
        finally:
            leave()

    def _begin(self) -> Callable[[], None]:
        before = events._get_running_loop()  # noqa: SLF001 - as asyncio's own loops
        fenced, FENCE.on = FENCE.on, True
        task = _swapped_task(before, None)
        events._set_running_loop(self)  # noqa: SLF001
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_began, finalizer=self._generator_dropped)
        after = _nothing if self._enter is None else self._enter(self)

        def leave() -> None:
            after()
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(before)  # noqa: SLF001
            _swapped_task(before, task)
            FENCE.on = fenced

        return leave

    @contextmanager
    def blocked(self) -> Generator[None]:
        """The program blocks its loop, and the world may go on meanwhile."""
        assert not self._blocked, "a loop that is blocked runs no code that could block it again"
        before = events._get_running_loop()  # noqa: SLF001
        fenced, FENCE.on = FENCE.on, False
        self._blocked = True
        task = _swapped_task(before, None)
        events._set_running_loop(None)  # noqa: SLF001
        try:
            yield
        finally:
            self._blocked = False
            events._set_running_loop(before)  # noqa: SLF001
            _swapped_task(before, task)
            FENCE.on = fenced
            if self._ready:
                self._wake()

    # -------------------------------------------------------------------------- callbacks, timers

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None) -> asyncio.Handle:
        """Run the callback in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._wake()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None
    ) -> asyncio.Handle:
        """Run the callback in the next turn: there are no threads here."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None
    ) -> asyncio.TimerHandle:
        """Run the callback after `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None
    ) -> asyncio.TimerHandle:
        """Run the callback when `time()` is `when`."""
        timer = ProgramTimer(when, callback, args, self, context)
        delay_ns = int(when * 1e9) - self._world.now_ns
        timer.sim_timer = self._world.call_after(self._incarnation, delay_ns, self._timer_due, timer)
        return timer

    def _timer_due(self, timer: ProgramTimer) -> None:
        assert timer.when() <= self.time() + ROUNDING_S, f"a timer for {timer.when()} is due at {self.time()}"
        self._ready.append(timer)
        self._wake()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer was cancelled (asyncio's own loops count them)."""

    def time(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return self._world.now_ns / 1e9

    # ------------------------------------------------------------------------------ tasks, futures

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        self._made += 1
        return OrderedFuture(self._made, loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: str | None = None, **options: Any
    ) -> asyncio.Task[T]:
        """Run a coroutine as a task."""
        self._made += 1
        if self._task_factory is not None:
            task: asyncio.Task[T] = self._task_factory(self, coro, **options)
            if name is not None:
                task.set_name(name)
            return task
        return OrderedTask(self._made, coro, loop=self, name=name or f"Task-{self._made}", **options)

    def set_task_factory(self, factory: Any) -> None:
        """Make tasks by this factory."""
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        """Return the factory; None without."""
        return self._task_factory

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run a function as a thread would, at a later time: as a whole, in one instant."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        low, high = THREAD_MS
        self.call_later((low + (high - low) * self._random.random()) / 1000, self._run_function, future, func, args)
        return future

    def _run_function(self, future: asyncio.Future[T], func: Callable[[*Ts], T], args: tuple[*Ts]) -> None:
        if future.cancelled():
            return
        try:
            result = func(*args)
        except Exception as error:  # the caller gets it, as from a thread
            future.set_exception(error)
        else:
            future.set_result(result)

    def set_default_executor(self, executor: object) -> None:
        """Nothing to do: functions of an executor run here."""

    # ------------------------------------------------------------------------------- connections

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - asyncio's name
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Resolve the name of this machine, or of another program's."""
        del family, type, proto, flags
        return self._connections.resolve(host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        ssl: object = None,
        sock: object = None,
        **options: Any,
    ) -> tuple[LinkTransport | StreamTransport, asyncio.BaseProtocol]:
        """Connect to a broker of the simulated cluster, or to a server of a program."""
        del options
        return await self._connections.create_connection(protocol_factory, host, port, ssl=ssl, sock=sock)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect to a program for a socket that `create_connection(sock=…)` gets next."""
        await self._connections.connect_socket(sock, address)

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        ssl: object = None,
        sock: object = None,
        backlog: int = 100,
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.Server:
        """Serve on a port of this machine: other programs connect to its name."""
        del options
        server = self._connections.new_server(protocol_factory, host, port, ssl=ssl, sock=sock, backlog=backlog)
        if start_serving:
            await server.start_serving()
        return server

    def _start_serving(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: ServerSocket,
        sslcontext: object,
        server: asyncio.Server,
        backlog: int,
        *timeouts: object,
    ) -> None:
        """Accept connections; `asyncio.Server` calls it."""
        del sslcontext, timeouts
        self._connections.start_serving(protocol_factory, sock, server, backlog)

    def _stop_serving(self, sock: ServerSocket) -> None:
        """Accept no more connections; `asyncio.Server` calls it."""
        sock.close()

    # ------------------------------------------------------------------------ signals, exceptions

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call the callback at a signal that a fault, or the test, sends to the program."""
        self.signal_handlers[int(sig)] = (callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Let the signal end the program again."""
        return self.signal_handlers.pop(int(sig), None) is not None

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        """Give exceptions that nothing receives to `handler`."""
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        """Return the handler; None without."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the context, and write it to the program's log."""
        self.unhandled.append(context)
        error = context.get("exception")
        if self.prints_as and events._get_running_loop() is self:  # noqa: SLF001 - as asyncio's own loops
            LOGGER.error("%s", context.get("message") or "Unhandled exception in event loop", exc_info=error)
        said = f"{context.get('message', '')}" + (f": {type(error).__name__}: {error}" if error is not None else "")
        self.host.trace.log("error", said)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that nothing received."""
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    # ------------------------------------------------------------------------------------- state

    def is_running(self) -> bool:
        """True: the world's loop runs it."""
        return True

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Nothing to free: the machine's end closes the connections."""
        self._closed = True

    def get_debug(self) -> bool:
        """Whether asyncio's debug mode is on."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Set asyncio's debug mode."""
        self._debug = enabled

    def _generator_began(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._made += 1
        self._generators[self._made] = weakref.ref(generator)

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that nothing refers to any more; one of a program that was killed runs no code."""
        if self._incarnation.alive:
            self.call_soon(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        """Close the asynchronous generators that are open, in the order in which they began."""
        assert self._incarnation.alive, "a program that was killed closes nothing"
        left = [generator for ref in self._generators.values() if (generator := ref()) is not None]
        self._generators.clear()
        await asyncio.gather(*(generator.aclose() for generator in left), return_exceptions=True)

    def release_databases(self) -> None:
        """Undo what the program has not committed, and free its locks: what the end of its process does."""
        databases, self.databases = self.databases, []
        for database in databases:
            for cursor in gc.get_referrers(database):
                if hasattr(cursor, "fetchone") and hasattr(cursor, "close"):
                    cursor.close()
            database.close()

    @property
    def has_open_generators(self) -> bool:
        """Whether an asynchronous generator was begun and is still there."""
        return any(ref() is not None for ref in self._generators.values())

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is no thread."""
        del timeout


def _swapped_task(loop: asyncio.AbstractEventLoop | None, task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
    """Set the current task of a loop while another loop runs, and return the former.

    Python 3.14 has one current task for each thread; earlier ones have one for each loop.
    """
    swap: Any = getattr(asyncio.tasks, "_swap_current_task", None)
    if loop is None or swap is None or (task is None and asyncio.current_task(loop) is None):
        return None  # Python 3.12.1 raises KeyError for a loop that has no current task
    former: asyncio.Task[Any] | None = swap(loop, task)
    return former


__all__ = ["FenceError", "ProgramLoop"]
