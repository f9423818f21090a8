"""A program of the user's under faults: what `harrow chaos -- ./my-service ARGS` runs.

The program is the one of `harrow.program("program", …)` (`programs/user_program.py`), and writes to the terminal;
faults of programs hit it, too. The faults begin with its first traffic and go on while it lives, or for a given time;
then the program receives SIGTERM, and SIGKILL when it does not end. The verdict judges all topics of the cluster by
what the brokers recorded, because the program's clients record nothing.

A Ctrl-C reaches the program too, which is in the same process group: the run then ends in order, with its verdict.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import HarrowError
from harrow.faults.errors import NemesisError

from ..errors import VerdictError
from ..programs.user_program import PLACEHOLDER, VARIABLE, Program

if TYPE_CHECKING:
    from ..checks import Verdict
    from ..run.harrow import Harrow

NAME = "program"
"""Of the program, for faults."""
LONGEST_S = 6 * 3600.0
"""How long faults go on at most when the program decides when it ends."""
POLL_S = 0.05
CALM_S = 1.0
"""How long the program goes on after the last fault was healed, before it receives SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """How the program ended, and what the verdict is."""

    exit_code: int
    """As a shell reports it: 128 + the signal for a program that a signal ended."""
    stopped: bool
    """Whether Harrow or Ctrl-C ended the program, so that its exit code says nothing."""
    faults: int
    verdict: Verdict | None
    problems: tuple[str, ...] = ()
    """Why there is no verdict, or faults that did not take effect."""
    topics: tuple[str, ...] = field(default=())

    @property
    def command_exit_code(self) -> int:
        """0: valid, and the program succeeded; 1: not valid; else the program's own exit code."""
        if self.verdict is None or not self.verdict.valid or self.problems:
            return 1
        return 0 if self.stopped else self.exit_code


def run_program(
    harrow: Harrow,
    command: Sequence[str],
    *,
    seconds: float | None,
    chaos: Mapping[str, Any],
    guarantee: str | None,
    notify: Callable[[str], None] = lambda _: None,
) -> ProgramResult:
    """Run `command` under faults and judge all topics.

    `seconds`: how long the faults last; None: as long as the program. `chaos`: further arguments of `Harrow.chaos`.
    `notify` receives a line for the terminal when a Ctrl-C ends the program.
    """
    problems: list[str] = []
    program = harrow.program(NAME, command, start=False, in_terminal=True)
    block = harrow.chaos(**_duration(seconds, chaos), **chaos)  # its traffic counts from here on
    program.start()
    ending = _Ending(program, notify)
    with _terminated_by_us(ending):
        try:
            with block:
                ending.wait(while_running=lambda: seconds is None or block.running)
            ending.wait_at_most(CALM_S)
        except NemesisError as error:
            problems.append(str(error))
        finally:
            ending.end()
    topics = tuple(name for name in sorted(harrow.cluster.describe().topics) if not name.startswith("__"))
    verdict = None
    if not topics:
        problems.append(
            f"the cluster has no topic: the program did not reach it. It must use the address in {VARIABLE}, or "
            f"{PLACEHOLDER} in its arguments"
        )
    else:
        try:
            verdict = harrow.verify(*topics, guarantee=guarantee)
        except VerdictError as error:
            verdict = error.verdict
        except HarrowError as error:
            problems.append(str(error))
    return ProgramResult(
        exit_code=ending.exit_code,
        stopped=ending.stopped,
        faults=block.effects,
        verdict=verdict,
        problems=tuple(problems),
        topics=topics,
    )


def _duration(seconds: float | None, chaos: Mapping[str, Any]) -> dict[str, Any]:
    return {} if chaos.get("schedule") is not None else {"duration": seconds or LONGEST_S}


class _Ending:
    """Waits for a program, and ends it."""

    def __init__(self, program: Program, notify: Callable[[str], None]) -> None:
        self._program = program
        self._notify = notify
        self.stopped = False

    @property
    def exit_code(self) -> int:
        """The exit code as a shell reports it."""
        code = self._program.exit_code
        assert code is not None, "the program has ended"
        return code

    def wait(self, while_running: Callable[[], bool]) -> None:
        """Wait until the program has ended, or the faults have; a Ctrl-C ends the wait, the program received it."""
        pause = threading.Event()
        try:
            while not self._program.ended and while_running():
                pause.wait(POLL_S)
        except KeyboardInterrupt:
            self.stopped = True
            self._notify("healing the cluster, then the verdict; another Ctrl-C aborts")

    def wait_at_most(self, seconds: float) -> None:
        """Wait for the program's end, for so long."""
        if not self.stopped:
            with contextlib.suppress(HarrowError, KeyboardInterrupt):
                self._program.wait(seconds)

    def end(self) -> None:
        """End the program, unless it has ended: SIGTERM, then SIGKILL."""
        if self._program.alive:
            interrupted, self.stopped = self.stopped, True
            # the Ctrl-C of the terminal has reached it
            stop = self._program.end_after_interrupt if interrupted else self._program.stop
            stop()


@contextlib.contextmanager
def _terminated_by_us(ending: _Ending) -> Generator[None]:
    """End the program also when SIGTERM ends this process."""

    def stop(*_: object) -> None:
        ending.end()
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
