"""Structured events (`trace.jsonl`) and lines for people (`broker.log`): `Trace` of the seam.

Owns: two files of the host's folder. Every event and every line is one `write` on a descriptor opened
for appending, so nothing is lost to kill -9 and lines of one file never mix. Events carry `t_ns`
(monotonic, comparable between the processes of one machine), `wall_ms`, `host`, `event`, then their fields.
`cluster/events/` has the kinds of events with their fields.

A client that sends invalid frames must not fill the disk: of warnings that begin with the same three words,
`broker.log` gets at most `WARNINGS_A_SECOND` in a second, and then a line that says how many were left out.

What may fail: nothing reaches the caller. A full disk must not stop a broker because its trace cannot be written;
events that could not be written are counted in `lost` and reported on stderr once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping

from ..broker_folder import LOG, TRACE
from ..events import TraceEvent
from .seam import Clock

LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
WARNINGS_A_SECOND = 10
KIND_WORDS = 3


def plain(value: object) -> object:
    """Types that JSON lacks: sets become sorted lists, bytes hexadecimal, all others their text."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, set | frozenset):
        items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType] - any set
        return sorted(items, key=str)
    return str(value)


class WarningLimit:
    """Counts warnings by their first words within a second, and says which of them `broker.log` gets."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: dict[str, int] = {}

    def allows(self, message: str, now_s: int) -> bool:
        """Count a warning; False when this second had enough of its kind. `expired` must be called before."""
        self._second = now_s
        kind = " ".join(message.split(maxsplit=KIND_WORDS)[:KIND_WORDS])
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        return count <= WARNINGS_A_SECOND

    def expired(self, now_s: int) -> list[str]:
        """Begin another second when one has passed; return a line for each kind that was left out in the last one."""
        if now_s == self._second or not self._counts:
            return []
        counts, self._counts = self._counts, {}
        return [
            f'{count - WARNINGS_A_SECOND} more lines "{kind} ..." were left out: at most {WARNINGS_A_SECOND} a second'
            for kind, count in counts.items()
            if count > WARNINGS_A_SECOND
        ]


class RealTrace:
    """The trace of one host; `folder` must exist."""

    def __init__(self, name: str, folder: str, clock: Clock, *, level: str = "info") -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._trace_fd = os.open(os.path.join(folder, TRACE), flags, 0o644)
        self._log_fd = os.open(os.path.join(folder, LOG), flags, 0o644)
        self._clock = clock
        self._level = LEVELS[level]
        self._host = json.dumps(name)
        self._warnings = WarningLimit()
        self._encode = json.JSONEncoder(separators=(",", ":"), default=plain).encode
        self.lost = 0

    def emit(self, event: TraceEvent, /) -> None:
        """Append the row of `event`; time and host are added here."""
        # the fixed fields are formatted here: half the time of encoding one merged dict
        clock, name, fields = self._clock, event.event_name, event.fields()
        front = f'{{"t_ns":{clock.monotonic_ns()},"wall_ms":{clock.wall_ms()},"host":{self._host},"event":"{name}"'
        rest = f",{self._encode(fields)[1:]}\n" if fields else "}\n"
        self._write(self._trace_fd, (front + rest).encode())

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """A line for people: level debug, info, warning or error; repeated warnings are limited."""
        if LEVELS[level] < self._level:
            return
        now_s = self._clock.monotonic_ns() // 1_000_000_000
        self._report_left_out(now_s)
        if level != "warning" or self._warnings.allows(message, now_s):
            self._line(level, message, fields)

    def _report_left_out(self, now_s: int) -> None:
        for line in self._warnings.expired(now_s):
            self._line("warning", line, {})

    def _line(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        wall_ms = self._clock.wall_ms()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_ms // 1000))
        extra = "".join(f" {name}={value}" for name, value in fields.items())
        line = f"{stamp},{wall_ms % 1000:03d} {level.upper():7} {message}{extra}\n"
        self._write(self._log_fd, line.encode(errors="replace"))

    def _write(self, fd: int, line: bytes) -> None:
        try:
            os.write(fd, line)
        except OSError as error:
            self.lost += 1
            if self.lost == 1:
                sys.stderr.write(f"harrow: {self._host} cannot write its trace or log: {error}\n")

    def close(self) -> None:
        """Close the files; later events and lines are lost."""
        self._report_left_out(-1)
        for fd in (self._trace_fd, self._log_fd):
            if fd >= 0:
                os.close(fd)
        self._trace_fd = self._log_fd = -1
