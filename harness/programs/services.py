"""Asyncio services of the user's on simulated machines: `harrow.start(billing.main, servers)`.

Owns: `Service`, one service across its incarnations. Each start is a new process on its machine: a new event loop, a
new coroutine, nothing in memory of the last one. A service ends when its coroutine returns (exit code 0) or raises
(exit code 1); faults kill, pause and terminate it by its name, as they do programs. `restart` says who starts it again
when it ended by itself, as a supervisor in production does.

A service that raised, and that nothing restarts, is a finding of the test: its traceback is in `unexpected_ends`.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from harrow.cluster.errors import ConfigError, HarrowError
from harrow.cluster.host.programs import ProgramLoop, process_view
from harrow.cluster.host.simulated.loop import NS_PER_MS, ProcessKilled
from harrow.faults.controls import DEAD, PAUSED, RUNNING, PeerKind, ProcessStatus

from ..backends.simulated.waiting import holds_within
from ..histories.program_ends import FAULT, ITSELF, TEST, By, ProgramEnd

if TYPE_CHECKING:
    from harrow.cluster.host.programs.event_loop import EnterProgram
    from harrow.cluster.host.programs.output import ProgramOutput
    from harrow.cluster.host.simulated import Machine
    from harrow.cluster.simulation import SimulatedCluster

Main = Callable[..., Coroutine[Any, Any, object]]
Restart = Literal["never", "on-failure", "always"]
RESTARTS = get_args(Restart)
RESTART_MS = 1_000
"""How long a supervisor waits before it starts a service again."""
GRACE_S = 15.0
WORDS_MOST = 12
CALLERS_MOST = 3
KILLED_BY_INTERRUPT = 130
KILLED, TERMINATED = 128 + signal.SIGKILL, 128 + signal.SIGTERM


def name_of(main: Main | Coroutine[Any, Any, object]) -> str:
    """Return the name of a service without one: of its function, or of its file where the function is `main`."""
    called = getattr(main, "__qualname__", "") or type(main).__name__
    last = called.rpartition(".")[2].strip("<>")
    code = getattr(main, "cr_code", None) or getattr(main, "__code__", None)
    return PurePath(code.co_filename).stem if last in ("main", "run", "lambda") and code is not None else last


def check_restart(name: str, restart: str) -> None:
    """ConfigError for what no supervisor does."""
    if restart not in RESTARTS:
        raise ConfigError(f"harrow.start({name!r}, restart={restart!r}): expected one of {', '.join(RESTARTS)}")


def _callers() -> list[traceback.FrameSummary]:
    """Return the innermost calls of the service's code: what its loop called, up to the call that ends it."""
    found: list[traceback.FrameSummary] = []
    for call in traceback.extract_stack():
        if call.filename == asyncio.events.__file__:
            found.clear()
        elif call.filename == process_view.__file__:
            break
        else:
            found.append(call)
    return found[-CALLERS_MOST:]


class Service:
    """One service on its simulated machine; `Harrow.start` makes it."""

    def __init__(
        self,
        name: str,
        cluster: SimulatedCluster,
        main: Main | Coroutine[Any, Any, object],
        args: tuple[object, ...],
        *,
        enter: EnterProgram,
        restart: Restart,
        output: ProgramOutput | None = None,
    ) -> None:
        check_restart(name, restart)
        self.name = name
        self._main = main
        self._args = args
        self._enter = enter
        self._restart = restart
        self._output = output
        self._machine: Machine = cluster.client_machine(name)
        self._world = cluster.world
        self._loop: ProgramLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._killed: list[object] = []
        """The loops and tasks of earlier starts, which would clean up when Python forgets them."""
        self._by: By = ITSELF
        self._ends: list[ProgramEnd] = []
        self._tracebacks: list[str] = []
        self._waited_for = 0
        self._last_words: tuple[str, ...] = ()
        self._machine.on_death.append(self._died)

    def __repr__(self) -> str:
        return f"<Service {self.name!r} {self.state} starts={self.starts}>"

    # ------------------------------------------------------------------------------------- state

    @property
    def state(self) -> str:
        """`dead`, `running` or `paused`."""
        if not self._machine.alive:
            return DEAD
        return PAUSED if self._machine.paused else RUNNING

    @property
    def alive(self) -> bool:
        """Whether it runs, paused or not."""
        return self._machine.alive

    @property
    def starts(self) -> int:
        """How often it was started: once, and again by each fault that ended it, and by its `restart`."""
        return self._machine.network_node.incarnations

    @property
    def exit_code(self) -> int | None:
        """How its last start ended: 0, 1 for an exception, 128 + the signal; None while it runs."""
        return None if self.alive or not self._ends else self._ends[-1].exit_code

    def ends(self) -> list[ProgramEnd]:
        """Return how each of its starts ended that has ended, in order."""
        return [replace(end, started_again=number < self.starts) for number, end in enumerate(self._ends, 1)]

    def died(self, since_ns: int) -> str:
        """Say how it ended by itself with an exception, where nothing starts it again; empty otherwise."""
        del since_ns
        if self.alive or self._restart != "never" or not self._ends or self._waited_for == self.starts:
            return ""
        end = self._ends[-1]
        return f"the service {self.name!r} has ended: {self.last_words()}" if end.by == ITSELF and end.exit_code else ""

    @property
    def unexpected_ends(self) -> list[str]:
        """The tracebacks of starts that ended with an exception, and for which no `wait()` has waited."""
        return [] if self._restart != "never" else list(self._tracebacks)

    # ------------------------------------------------------------------------------ ProgramControl

    def status(self) -> ProcessStatus:
        """Return its state; its incarnation is the number of its starts."""
        facts = {} if self.exit_code is None else {"exit_code": self.exit_code}
        return ProcessStatus(state=self.state, incarnation=self.starts, facts=facts)

    def start(self) -> None:
        """Start it; nothing happens while it is alive. ConfigError for a coroutine that was started before."""
        if self._machine.alive:
            return
        main = self._main
        if inspect.iscoroutine(main):
            if self.starts:
                raise ConfigError(
                    f"the service {self.name!r} cannot start again: harrow.start() got a coroutine, which runs once; "
                    f"give it the function and its arguments: harrow.start({self.name}, …)"
                )
            coroutine: Coroutine[Any, Any, object] = main
        else:
            coroutine = self._called(cast("Main", main))
        self._by = ITSELF
        host = self._machine.boot()
        self._loop = loop = ProgramLoop(host, enter=self._enter)
        loop.on_exit, loop.on_end, loop.prints_as = self._exited, self._ended_at_once, self.name
        with loop.running():
            self._task = task = loop.create_task(coroutine, name=self.name)
            task.add_done_callback(self._main_ended)

    def _called(self, main: Main) -> Coroutine[Any, Any, object]:
        """Return the coroutine of a new start; ConfigError for a function that gives none."""
        remedy = "give harrow.start() the coroutine function that it runs, and its arguments"
        try:
            coroutine: object = main(*self._args)
        except RuntimeError as error:
            if "running event loop" not in str(error):
                raise
            raise ConfigError(f"the service {self.name!r} starts a loop of its own ({error}): {remedy}") from error
        if not inspect.iscoroutine(coroutine):
            raise ConfigError(f"the service {self.name!r} is no coroutine, it returned {coroutine!r}: {remedy}")
        return coroutine

    def _main_ended(self, task: asyncio.Task[object]) -> None:
        if task is not self._task or not self._machine.alive:
            return
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SystemExit | KeyboardInterrupt):
            return  # `_exited` has it
        code = 1 if error is not None or task.cancelled() else 0
        if error is not None and not isinstance(error, ProcessKilled):
            self._note_failure("".join(traceback.format_exception(error)).rstrip())
        self._close_down(code)

    def _exited(self, error: BaseException) -> None:
        """`sys.exit()` somewhere in the service."""
        code = getattr(error, "code", KILLED_BY_INTERRUPT)
        number = code & 0xFF if isinstance(code, int) else 0 if code is None else 1
        if number:
            self._note_failure(f"{type(error).__name__}: {error}")
        self._close_down(number)

    def _ended_at_once(self, code: int, why: str) -> None:
        """`os._exit()`, or a signal to itself: nothing more of it runs."""
        if code and self._by == ITSELF:
            self._note_failure(f"{''.join(traceback.format_list(_callers()))}{why}")
        self._ended(code)

    def _note_failure(self, text: str) -> None:
        self._tracebacks.append(f"at {self._world.loop.elapsed_ns / 1e9:.3f} s of virtual time:\n{text}")
        self._last_words = tuple(text.splitlines()[-WORDS_MOST:])

    def _close_down(self, code: int) -> None:
        """End the service as `asyncio.run` does: tasks that are left are cancelled, and have the time to clean up."""
        loop = self._loop
        assert loop is not None, "a service that has ended was started"
        left = sorted((task for task in asyncio.all_tasks(loop) if not task.done()), key=hash)
        if not left and not loop.has_open_generators:
            self._ended(code)
            return

        async def close_down() -> None:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await loop.shutdown_asyncgens()

        with loop.running():
            loop.create_task(close_down()).add_done_callback(lambda _: self._ended(code))

    def _ended(self, code: int) -> None:
        if not self._machine.alive:
            return
        self._note_end(code)
        self._machine.end()
        if self._restart == "always" or (self._restart == "on-failure" and code):
            self._world.loop.call_after(None, RESTART_MS * NS_PER_MS, self._restarted)

    def _restarted(self) -> None:
        if not self.alive and self._by == ITSELF:
            self.start()

    def _died(self) -> None:
        if self._loop is not None:  # what was killed runs no `finally`: its coroutines are kept as they are
            self._killed += [self._loop, *asyncio.all_tasks(self._loop)]
            self._loop.release_databases()
        if len(self._ends) < self.starts:
            self._note_end(KILLED)

    def _note_end(self, code: int) -> None:
        self._ends.append(
            ProgramEnd(
                name=self.name,
                exit_code=code,
                ended_ns=self._world.loop.now_ns,
                by=self._by,
                started_again=False,
                last_words=self._said()[-3:],
            )
        )

    def kill(self) -> None:
        """SIGKILL: its memory is lost, its connections are closed by the kernel."""
        self._by = FAULT
        self._machine.kill()

    def terminate(self) -> None:
        """SIGTERM: its handler runs, where it has one; else it dies."""
        self._by = FAULT
        self._terminate()

    def _terminate(self) -> None:
        self._machine.resume()
        loop = self._loop
        handler = None if loop is None else loop.signal_handlers.get(signal.SIGTERM)
        if not self._machine.alive or loop is None:
            return
        if handler is None:
            self._note_end(TERMINATED)
            self._machine.end()
        else:
            call, args = handler
            loop.call_soon(call, *args)

    def pause(self) -> None:
        """SIGSTOP."""
        self._machine.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._machine.resume()

    def link_operation(self, op: str, **fields: object) -> dict[str, Any]:
        """One control operation of its machine's links: faults of a dependency act on what this service serves."""
        host = self._machine.host
        assert host is not None, "a service has been started before faults can name it"
        found = host.control.call(op, **fields)
        if op == "links":
            rows = [
                {
                    "peer": str(link.peer),
                    "held_in_bytes": link.inward.held_bytes,
                    "held_out_bytes": link.outward.held_bytes,
                }
                for link in host.knobs.links
                if link.peer.kind == PeerKind.CLIENT and not link.outward.within_machine
            ]
            found = {**found, "links": rows}
        return found

    @property
    def output(self) -> str:
        """The last lines that it printed and logged, of all its starts."""
        return "" if self._output is None else "\n".join(self._output.lines_of(self.name))

    def _said(self) -> tuple[str, ...]:
        return (*self.output.splitlines(), *self._last_words)[-WORDS_MOST:]

    def last_words(self) -> str:
        """Return its exit code, the end of what it printed, and of its traceback."""
        code, lines = self.exit_code, self._said()
        said = "; its last lines:" + "".join(f"\n  {line}" for line in lines) if lines else ""
        return f"{'it runs' if code is None else f'exit code {code}'}{said}"

    # ------------------------------------------------------------------------------------ the test

    @property
    def control(self) -> Service:
        """The service as faults see it."""
        return self

    def wait(self, timeout_s: float) -> int:
        """Wait until it has ended; return its exit code. HarrowError when it has not ended in time."""
        self._await_end(timeout_s)
        self._waited_for = self.starts
        self._tracebacks.clear()
        assert self.exit_code is not None
        return self.exit_code

    def _await_end(self, timeout_s: float) -> None:
        if not holds_within(lambda: not self.alive, timeout_s):
            raise HarrowError(f"the service {self.name!r} has not ended within {timeout_s:g} s of virtual time")

    def close(self) -> list[str]:
        """End it with the test; return the tracebacks of starts that ended with an exception."""
        return [f"the service {self.name!r} raised {text}" for text in self.unexpected_ends]

    def stop(self, grace_s: float = GRACE_S) -> int:
        """End it: SIGTERM, and SIGKILL after `grace_s`; return its exit code."""
        if self.alive:
            self._by = TEST
            self._terminate()
        try:
            self._await_end(grace_s)
        except HarrowError:
            self._machine.kill()
        assert self.exit_code is not None
        return self.exit_code
