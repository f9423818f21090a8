"""A program of the user's, as a process that a test starts and that faults hit: `harrow.program(name, command)`.

Owns: its start through the fork server, so that it ends with the process of the test, however that ends; its output in
`programs/<name>/stdout.log` of the run folder, or on the terminal of `harrow chaos -- PROGRAM`; its exit code; and what
it started in its turn: every process that has the program's mark in its environment gets SIGKILL with it.

SIGTERM goes to the program alone. It has `GRACE_S` to end; then it gets SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harrow.cluster.argument_types import checked
from harrow.cluster.broker_folder import STDOUT
from harrow.cluster.errors import ClusterError, ConfigError, HarrowError
from harrow.cluster.forkserver import MARKER, fork_server
from harrow.cluster.managed import ManagedProcess
from harrow.faults.controls import ProcessStatus

from ..backends.local import LocalProcess
from ..histories.program_ends import FAULT, ITSELF, TEST, ProgramEnd, last_lines, last_words

VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
PLACEHOLDER = "{bootstrap}"
PROGRAM_MARK = "HARROW_PROGRAM"
"""Environment variable that marks a program and what it starts."""
GRACE_S = 15.0
"""How long a program has between SIGTERM, or Ctrl-C, and SIGKILL."""
END_REPORT_S = 1.0
"""How long the fork server may take to report an end that the kernel shows."""
LAST_LINES = 12
SIGNALLED = 128
"""Exit codes above it are those of signals."""
POLL_S = 0.02
WITH_ITS_CHILDREN = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})


def find_program(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command with the path of its program; ConfigError where there is none that can be executed."""
    if isinstance(command, str) or not command:
        raise ConfigError(f"the program {command!r}: expected a list of words, such as [sys.executable, 'billing.py']")
    found = shutil.which(command[0])
    if found is None:
        exists = os.path.exists(command[0])
        why = "is not executable (chmod +x)" if exists else "was not found"
        raise ConfigError(f"the program {command[0]!r} {why}")
    return (found, *map(str, command[1:]))


class ProgramProcess(ManagedProcess):
    """The process: as a broker's, without a time at which it serves, and with an exit code."""

    def __init__(
        self,
        name: str,
        folder: Path,
        command: Sequence[str],
        servers: str,
        environment: Mapping[str, str],
        *,
        in_terminal: bool,
    ) -> None:
        super().__init__(fork_server(), f"program {name!r}", folder, {})
        self.expected_end = False
        """Whether a fault ended it, which starts it again."""
        self._name = name
        self._ended_by_test = False
        self._ended_ns = 0
        self._earlier: list[ProgramEnd] = []
        self._command = [word.replace(PLACEHOLDER, servers) for word in command]
        self._added = {**environment, VARIABLE: servers, PROGRAM_MARK: uuid.uuid4().hex}
        self._in_terminal = in_terminal
        self._exit_code: int | None = None

    def begin(self) -> None:
        """Start it. No-op while it is alive."""
        with self._lock:
            if self.alive:
                return
            self.options = {
                "user_program": True,
                "folder": str(self.folder),
                "program": self._command,
                "cwd": os.getcwd(),
                "environment": {**os.environ, MARKER: os.environ.get(MARKER, str(os.getpid())), **self._added},
                "in_terminal": self._in_terminal,
                "stdin": f"/proc/{os.getpid()}/fd/0",
            }
            if (end := self._end_of_last_start(started_again=True)) is not None:
                self._earlier.append(end)
            self.expected_end, self._exit_code, self._ended_by_test = False, None, False
            super().begin()

    @property
    def state(self) -> str:
        """`dead`, `running` or `paused`."""
        state = super().state
        return "running" if state == "starting" else state

    def check_ready(self) -> None:
        """Nothing shows when a program of the user's serves."""

    @property
    def exit_code(self) -> int | None:
        """How it ended, as a shell reports it: 128 + the signal; None while it lives."""
        with self._lock:
            if self._exit_code is None and not self.alive and self._status is not None:
                code, self._ended_ns = self._reported_end()
                self._exit_code = 128 - code if code < 0 else code
            return self._exit_code

    def ends(self) -> list[ProgramEnd]:
        """Return how each start ended that has ended."""
        with self._lock:
            last = self._end_of_last_start(started_again=False)
            return [*self._earlier, *([] if last is None else [last])]

    def _end_of_last_start(self, *, started_again: bool) -> ProgramEnd | None:
        code = self.exit_code
        if code is None:
            return None
        by = TEST if self._ended_by_test else FAULT if self.expected_end else ITSELF
        return ProgramEnd(
            name=self._name,
            exit_code=code,
            ended_ns=self._ended_ns,
            by=by,
            started_again=started_again,
            last_words=last_words(self.folder / STDOUT),
        )

    def _reported_end(self) -> tuple[int, int]:
        """Return its exit code (negative: a signal) and when it ended; 0: not known."""
        assert self._status is not None
        watched = select.poll()
        watched.register(self._status, select.POLLIN)
        line = os.read(self._status, 4096) if watched.poll(END_REPORT_S * 1000) else b""
        # without a report the fork server has ended, and the kernel has killed the program
        said = json.loads(line) if line else {"exit": -signal.SIGKILL}
        return int(said["exit"]), int(said.get("t_ns", 0))

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program; one that it cannot handle also to what it started."""
        super().send_signal(number)
        if number in WITH_ITS_CHILDREN:
            for pid in self._marked():
                if pid != self.pid:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)

    def _marked(self) -> Iterator[int]:
        mark = f"{PROGRAM_MARK}={self._added[PROGRAM_MARK]}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        yield int(entry.name)

    def end(self, *, signalled: bool = False, grace_s: float = GRACE_S) -> None:
        """End it: SIGTERM (unless `signalled`: another signal has reached it), then SIGKILL to all that is left."""
        if self.alive:
            self._ended_by_test = True
        if self.alive and not signalled:
            self.send_signal(signal.SIGCONT)
            self.send_signal(signal.SIGTERM)
        with contextlib.suppress(ClusterError, KeyboardInterrupt):
            self.wait_dead(grace_s)
        self.kill()


class LocalProgram(LocalProcess):
    """A program as faults see it; `ProgramControl` of the fault layer."""

    def __init__(self, process: ProgramProcess) -> None:
        super().__init__(process)
        self._program = process

    def status(self) -> ProcessStatus:
        """Return its state, and the exit code of a program that ended."""
        found = super().status()
        code = self._program.exit_code
        if code is None:
            return found
        return ProcessStatus(state=found.state, incarnation=found.incarnation, facts={**found.facts, "exit_code": code})

    def kill(self) -> None:
        """SIGKILL, also to what it started."""
        self._program.expected_end = True
        super().kill()

    def terminate(self) -> None:
        """SIGTERM."""
        self._program.expected_end = True
        super().terminate()

    def last_words(self) -> str:
        """Return its exit code and the last lines of its output."""
        code = self._program.exit_code
        lines = last_lines(self._program.folder / STDOUT, LAST_LINES)
        said = "; its last lines:" + "".join(f"\n  {line}" for line in lines) if lines else ""
        return f"{'it runs' if code is None else f'exit code {code}'}{said}"


@checked
class Program:
    """One program of the user's, which runs while the test does; `Harrow.program` starts it."""

    def __init__(self, name: str, process: ProgramProcess) -> None:
        self.name = name
        self.control = LocalProgram(process)
        """The program as faults see it."""
        self._process = process
        self._waited_for = 0
        """The number of the start for whose end the test waited."""

    def __repr__(self) -> str:
        return f"<Program {self.name!r} {self._process.state} pid={self.pid}>"

    @property
    def pid(self) -> int | None:
        """The process id of the last start."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, paused or not."""
        return self._process.alive

    @property
    def starts(self) -> int:
        """How often it was started: once, and again by each fault that ended it."""
        return self._process.incarnations

    @property
    def exit_code(self) -> int | None:
        """How it ended, as a shell reports it: 128 + the signal for one that a signal ended; None while it runs."""
        return self._process.exit_code

    @property
    def ended(self) -> bool:
        """Whether it ended by itself: not through a fault, after which it is started again."""
        return not self._process.alive and not self._process.expected_end

    def died(self, since_ns: int) -> str:
        """Say how it died, as `harrow.await_…` does; empty while it lives, and after an end that is no death.

        A death is an end by itself with an exit code other than 0, for which no `wait()` has waited. One by a signal
        counts from `since_ns` of the monotonic clock on: a test may have sent an earlier one.
        """
        code = self.exit_code if self.ended else None
        if not code or self._waited_for == self.starts:
            return ""
        end = self.ends()[-1]
        if end.by != ITSELF or (code > SIGNALLED and end.ended_ns < since_ns):
            return ""
        return f"the program {self.name!r} has ended: {self.control.last_words()}"

    def ends(self) -> list[ProgramEnd]:
        """Return how each of its starts ended that has ended, in order."""
        return self._process.ends()

    @property
    def output(self) -> Path:
        """The file with everything that it wrote to stdout and stderr, of all its starts."""
        return self._process.folder / STDOUT

    def wait(self, timeout_s: float) -> int:
        """Wait until it has ended; return its exit code. HarrowError when it has not ended in time."""
        self._process.wait_dead(timeout_s)
        self._waited_for = self.starts
        code = self._process.exit_code
        assert code is not None
        return code

    def await_output(self, text: str, timeout_s: float = 60.0) -> None:
        """Wait until it has written `text`; HarrowError with its last lines when it ends before, or not in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended, late = self.ended, time.monotonic() > deadline
            if self.output.exists() and text in self.output.read_text(errors="replace"):
                return
            if ended or late:
                why = "ended and had" if ended else f"runs, and within {timeout_s:g} s it had"
                raise HarrowError(f"the program {self.name!r} {why} not written {text!r}: {self.control.last_words()}")
            time.sleep(POLL_S)

    def stop(self, grace_s: float = GRACE_S) -> int:
        """End it: SIGTERM, and SIGKILL after `grace_s`; return its exit code."""
        return self._ended(grace_s, signalled=False)

    def end_after_interrupt(self) -> int:
        """Wait for the end of a program that a Ctrl-C has reached; SIGKILL when it does not end."""
        return self._ended(GRACE_S, signalled=True)

    def _ended(self, grace_s: float, *, signalled: bool) -> int:
        self._process.end(grace_s=grace_s, signalled=signalled)
        code = self._process.exit_code
        assert code is not None
        return code

    def start(self) -> None:
        """Start it; nothing happens while it runs."""
        try:
            self._process.begin()
        except ClusterError as error:
            raise ConfigError(
                f"the program {self.name!r}: {error}. A script needs a first line such as #!/bin/sh"
            ) from None

    def close(self) -> list[str]:
        """End it, and what it started; return why the test must fail."""
        self._process.end()
        self._process.close()
        return []
