"""What simulated programs print and log, line by line, with the program and the virtual time.

Owns: `ProgramOutput`. Within `shown()`, stdout, stderr and the root logger belong to the program that runs: what it
writes is kept here, and not shown by pytest. What other code writes passes. The last `LINES_MOST` lines of each program
are kept, each up to `WIDTH_MOST` characters.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, TextIO

LINES_MOST = 80
"""Of each program."""
WIDTH_MOST = 400
NS_PER_S = 1e9
UNSHOWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and other orders to a terminal."""
TEST = "test"
"""Under this name is kept what is logged by no program of the user's."""


class OutputLine(NamedTuple):
    """One line of a program."""

    number: int
    at_ns: int
    program: str
    text: str


class _Lines:
    """The last lines of one program."""

    def __init__(self) -> None:
        self.kept: deque[OutputLine] = deque(maxlen=LINES_MOST)
        self.seen = 0
        self.begun: dict[str, str] = {}
        """By stream: a line without its end."""


class ProgramOutput:
    """The output of all programs of a world."""

    def __init__(self, now_ns: Callable[[], int], running: Callable[[], str]) -> None:
        """`now_ns`: time since the world began. `running`: the name of the program that runs; empty without one."""
        self._now_ns = now_ns
        self._running = running
        self._programs: dict[str, _Lines] = {}
        self._number = 0
        self._streams: list[ProgramStream] = []

    def add(self, program: str, stream: str, text: str) -> None:
        """Add what a program wrote to a stream."""
        lines = self._programs.setdefault(program, _Lines())
        *whole, rest = (lines.begun.get(stream, "") + text).split("\n")
        lines.begun[stream] = rest[:WIDTH_MOST]
        for line in whole:
            self._keep(lines, program, line)

    def _keep(self, lines: _Lines, program: str, line: str) -> None:
        self._number += 1
        lines.seen += 1
        cut = line if len(line) <= WIDTH_MOST else f"{line[:WIDTH_MOST]}…"
        shown = cut if cut.isprintable() else UNSHOWN.sub("", cut)
        lines.kept.append(OutputLine(self._number, self._now_ns(), program, shown))

    def lines_of(self, program: str) -> list[str]:
        """Return the last lines of a program, without their times."""
        lines = self._programs.get(program)
        if lines is None:
            return []
        return [*(line.text for line in lines.kept), *filter(None, lines.begun.values())]

    def text(self) -> str:
        """Return the last lines of all programs, in the order in which they were written."""
        for program, lines in self._programs.items():
            for stream, rest in lines.begun.items():
                lines.begun[stream] = ""
                if rest:
                    self._keep(lines, program, rest)
        kept = sorted(line for lines in self._programs.values() for line in lines.kept)
        left_out = [
            f"{lines.seen - len(lines.kept)} earlier lines of {program} are left out"
            for program, lines in self._programs.items()
            if lines.seen > len(lines.kept)
        ]
        return "\n".join([*left_out, *(f"{at / NS_PER_S:9.3f} s  {name}: {line}" for _, at, name, line in kept)])

    @contextlib.contextmanager
    def shown(self) -> Generator[None]:
        """Keep what programs write, until the end of the block."""
        handler = _LogHandler(self)
        own = {name: ProgramStream(self, name, getattr(sys, name)) for name in ("stdout", "stderr")}
        for name, stream in own.items():
            setattr(sys, name, stream)
        self._streams += own.values()
        early = {id(stream.original): stream for stream in own.values()}
        redirected = [(found, found.stream) for found in _stream_handlers() if id(found.stream) in early]
        for found, stream in redirected:
            found.stream = early[id(stream)]
        logging.getLogger().addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)
            for found, stream in redirected:
                found.stream = stream
            for name, stream in own.items():
                self._streams.remove(stream)
                if getattr(sys, name) is stream:  # else a fixture such as capsys has replaced it meanwhile
                    setattr(sys, name, stream.original)

    def running(self) -> str:
        """Return the name of the program that runs; empty without one."""
        return self._running()

    def is_printed(self, record: logging.LogRecord) -> bool:
        """Whether a handler of the program writes this record to one of its streams."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(getattr(handler, "stream", None) in self._streams for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    """Return the handlers that write to a stream, also those that were made when modules were imported."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    return [handler for handler in handlers if type(handler) is logging.StreamHandler]


class _LogHandler(logging.Handler):
    """Keeps the records of the logger: of a program, or of the code of the test."""

    def __init__(self, output: ProgramOutput) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        program = self._output.running() or TEST
        if not self._output.is_printed(record):
            try:
                text = self.format(record)
            except Exception:
                self.handleError(record)
            else:
                self._output.add(program, "log", f"{text}\n")


class ProgramStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`: of the program that runs, else what it was."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, output: ProgramOutput, name: str, original: TextIO) -> None:
        super().__init__()
        self._output = output
        self._name = name
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def write(self, text: str) -> int:
        """Keep what the program writes."""
        program = self._output.running()
        if not program:
            return self.original.write(text)
        self._output.add(program, self._name, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Keep several pieces."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write nothing: lines are kept as they come."""
        if not self._output.running():
            self.original.flush()

    def writable(self) -> bool:
        """True."""
        return True

    def isatty(self) -> bool:
        """False, as where a service runs."""
        return False

    def fileno(self) -> int:
        """Return the descriptor of what it was."""
        return self.original.fileno()

    @property
    def buffer(self) -> Any:
        """What takes bytes."""
        return _Bytes(self) if self._output.running() else self.original.buffer


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer` of a program."""

    def __init__(self, stream: ProgramStream) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Keep what the program writes."""
        self._stream.write(bytes(data).decode(errors="replace"))
        return len(data)
