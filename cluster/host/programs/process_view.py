"""What the code of simulated programs sees of its process: clocks, random numbers, the process id.

Owns: `ProcessView`. Within `installed()` every clock of Python shows virtual time, that of the machine whose program
runs (`enter`), and every source of random numbers derives from the seed: `random`, `os.urandom`, `secrets`, `uuid`.
Outside of a program the clocks show the world's time. `time.sleep` blocks the loop of the program that calls it;
`os._exit` and the signals that it sends to itself are for that program alone.

`time_machine` replaces the clocks of C code (`time.time`, `datetime.now`, …); it has no monotonic clock, which is
replaced here, also in modules that imported the function by its name.

May fail: what depends on an address in memory (the order of a set of plain objects) is not replaced.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import ConfigError
from ..simulated.host import EPOCH_MS
from ..simulated.loop import NS_PER_MS, ProcessKilled
from .collected import CollectedNumbers
from .fence import FENCE
from .output import ProgramOutput

if TYPE_CHECKING:
    from ..simulated import World
    from .event_loop import ProgramLoop

NODE = 0x0242AC110002
"""The hardware address that `uuid.getnode` returns."""
PID = 4_242
HOST_NAME = "simulated"
SIGNALLED = 128
"""Exit codes above it are those of signals."""
IGNORED_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH})
"""What a process without a handler does not notice."""
OWN_REFERENCES = 2
"""References to a database that its program has dropped: the list of them, and the call that counts."""
STUCK_MS = 24 * 3_600_000
"""How long a program that was paused while it slept may stay paused."""


class MovableTime(Protocol):
    """What `time_machine` shows."""

    def move_to(self, destination: float) -> None:
        """Show this time, in seconds since 1970."""
        ...


class ProcessView:
    """The clocks and random numbers of this process, for the programs of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.rng("process")
        self._current: ProgramLoop | None = None
        self._shown_ns = -1
        self._traveller: MovableTime | None = None
        self.output = ProgramOutput(
            lambda: world.loop.elapsed_ns, lambda: "" if self._current is None else self._current.prints_as
        )
        """What the programs print and log, within `ProgramOutput.shown`."""

    def enter(self, loop: ProgramLoop) -> Callable[[], None]:
        """Show the clocks of a program's machine; the result shows again what was shown before."""
        before, self._current = self._current, loop
        self._show()

        def leave() -> None:
            self._current = before
            if before is not None:  # else the next program that runs, or `sleep`, shows another time
                self._show()

        return leave

    def _show(self) -> None:
        wall_ns = self._wall_ns()
        if self._traveller is not None and wall_ns != self._shown_ns:
            self._shown_ns = wall_ns
            self._traveller.move_to(wall_ns / 1e9)

    def _wall_ns(self) -> int:
        rest = self._world.loop.now_ns % NS_PER_MS
        if self._current is not None:
            return self._current.host.clock.wall_ms() * NS_PER_MS + rest
        return EPOCH_MS * NS_PER_MS + self._world.loop.now_ns

    # ----------------------------------------------------------------------------- replacements

    def sleep(self, seconds: float) -> None:
        """Block the program for so long, as `time.sleep` does; the world goes on."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        loop, world = self._current, self._world.loop
        if loop is None:
            world.run_for(seconds * 1000)
            self._show()
            return
        incarnation = loop.host.incarnation
        with loop.blocked():
            world.run_for(seconds * 1000)
            world.run_until(lambda: incarnation.running or not incarnation.alive, STUCK_MS)
        self._current = loop
        self._show()
        if not incarnation.alive:
            raise ProcessKilled(loop.host.name)

    def _monotonic_ns(self) -> int:
        return self._world.loop.now_ns

    def _monotonic(self) -> float:
        return self._world.loop.now_ns / 1e9

    def _urandom(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def _seed(self, generator: random.Random, a: Any = None, version: int = 2) -> None:
        """`random.Random.seed`: without a seed, one of the world's numbers."""
        _SEED(generator, self._random.getrandbits(64) if a is None else a, version)

    def _set_signal_handler(self, number: int, handler: Any) -> Any:
        """`signal.signal`: of a program, what a fault calls that sends the signal to it."""
        loop = self._current
        if loop is None:
            return _SIGNAL(number, handler)
        before = loop.signal_handlers.get(int(number))
        if handler is signal.SIG_DFL:
            loop.remove_signal_handler(number)
        elif handler is signal.SIG_IGN:
            loop.add_signal_handler(number, _ignore)
        else:
            loop.add_signal_handler(number, handler, number, None)
        return signal.SIG_DFL if before is None else signal.SIG_IGN if before[0] is _ignore else before[0]

    def _forget_databases(self, *_: object) -> None:
        """A program opens a database: forget those that it has dropped, so that Python closes them."""
        if self._current is not None:
            held = self._current.databases
            held[:] = [held[at] for at in range(len(held)) if sys.getrefcount(held[at]) > OWN_REFERENCES]

    def _database_opened(self, database: object) -> None:
        if self._current is not None and self._current.on_end is not None:
            self._current.databases.append(database)

    def _end_now(self, code: int) -> None:
        """`os._exit`: the program that calls it ends at once; what the call interrupts is unwound."""
        loop = self._current
        if loop is None or loop.on_end is None:
            _EXIT(code)
        else:
            loop.on_end(code & 0xFF, f"os._exit({code})")
            raise ProcessKilled(loop.host.name)

    def _send_signal(self, pid: int, number: int) -> None:
        """`os.kill`: a signal that a program sends to itself."""
        if self._current is None or pid not in (PID, 0):
            _KILL(_PID() if pid == PID else pid, number)
        elif number:
            self._raise_signal(number)

    def _raise_signal(self, number: int) -> None:
        """`signal.raise_signal`: the program's handler runs in the next turn of its loop; without one it dies."""
        loop = self._current
        if loop is None or loop.on_end is None:
            _RAISE_SIGNAL(number)
        elif (handler := loop.signal_handlers.get(int(number))) is not None and number != signal.SIGKILL:
            loop.call_soon(handler[0], *handler[1])
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        elif number not in IGNORED_SIGNALS:
            loop.on_end(SIGNALLED + number, f"it sent itself {signal.Signals(number).name}")
            raise ProcessKilled(loop.host.name)

    def _clocks(self) -> dict[str, Callable[..., Any]]:
        seconds, nanoseconds = self._monotonic, self._monotonic_ns
        return {
            "sleep": self.sleep,
            **dict.fromkeys(("monotonic", "perf_counter", "process_time", "thread_time"), seconds),
            **dict.fromkeys(("monotonic_ns", "perf_counter_ns", "process_time_ns", "thread_time_ns"), nanoseconds),
        }

    @contextmanager
    def installed(self) -> Generator[None]:
        """Replace clocks and random numbers of this process until the end of the block."""

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            self._seed(generator, a, version)

        clocks = self._clocks()
        replaced: dict[object, object] = {getattr(time, name): clock for name, clock in clocks.items()}
        replaced[os.urandom] = self._urandom
        replaced |= {os._exit: self._end_now, os.kill: self._send_signal, signal.raise_signal: self._raise_signal}
        with contextlib.ExitStack() as undo:
            state = random.getstate()
            undo.callback(random.setstate, state)
            for owner, name, value in (
                *((time, name, clock) for name, clock in clocks.items()),
                (os, "urandom", self._urandom),
                (os, "getpid", lambda: PID),
                (random, "_urandom", self._urandom),
                (random.Random, "seed", seed),
                (uuid, "_node", NODE),
                (socket, "gethostname", lambda: HOST_NAME),
                (signal, "signal", self._set_signal_handler),
                (signal, "raise_signal", self._raise_signal),
                (os, "_exit", self._end_now),
                (os, "kill", self._send_signal),
                *_imported(replaced),
            ):
                undo.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)
            FENCE.watched = {
                "sqlite3.connect": self._forget_databases,
                "sqlite3.connect/handle": self._database_opened,
            }
            undo.callback(FENCE.watched.clear)
            random.seed(self._random.getrandbits(64))
            travel = _travel()
            self._traveller = travel(self._wall_ns() / 1e9, tick=False).start()
            try:
                yield
            finally:
                self._traveller = None
                travel(0).stop()


_SEED = random.Random.seed
_SIGNAL = signal.signal
_RAISE_SIGNAL = signal.raise_signal
_EXIT = os._exit
_KILL, _PID = os.kill, os.getpid


def _ignore() -> None:
    """What a program that ignores a signal does."""


def _travel() -> Any:
    try:
        return importlib.import_module("time_machine").travel
    except ImportError as error:
        raise ConfigError(
            "simulated programs need time-machine, which shows them virtual time: pip install 'pytest-harrow[simulate]'"
        ) from error


_seen: dict[str, list[tuple[object, str, object]]] = {}
"""What modules imported by name, as of the last `note_imports`."""


def note_imports() -> None:
    """Look into all modules now, so that `installed` need not: before a process is forked for each seed."""
    for module_name, module in list(sys.modules.items()):
        _seen[module_name] = list(_clocks_in(module_name, module))


def _imported(replaced: dict[object, object]) -> Iterator[tuple[object, str, object]]:
    """Yield what to set in modules that imported a function by its name; not in Python's own and in Harrow's."""
    for module_name, module in list(sys.modules.items()):
        if module_name not in _seen:
            _seen[module_name] = list(_clocks_in(module_name, module))
        for owner, name, value in _seen[module_name]:
            if getattr(owner, name, None) is value and value in replaced:
                yield owner, name, replaced[value]


def _clocks_in(module_name: str, module: object) -> Iterator[tuple[object, str, object]]:
    top = module_name.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("harrow", "time_machine"):
        return
    for name, value in list(getattr(module, "__dict__", {}).items()):
        if type(value) is CollectedNumbers or (
            type(value) is _BUILTIN and getattr(value, "__module__", None) in _OF_CLOCKS
        ):
            yield module, name, value


_OF_CLOCKS = frozenset({"time", "posix", "nt", "_signal"})
"""Modules whose functions are replaced."""
_BUILTIN = type(time.monotonic)
