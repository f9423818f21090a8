"""Reading a run folder for the report, and the time range of the run.

Owns: `RecordedRun`. Reads `cluster/broker-*/trace.jsonl`, `faults.jsonl`, `programs.json`, `verdict.json`,
`schedule*.json` and, where there is one, `run.json` (`{"seed", "command", "test"}`). All times of a run are on one
monotonic clock; the report shows seconds since the start of the run. A missing or incomplete file is no error: the
report omits its data.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from harrow.cluster.errors import HarrowError
from harrow.cluster.events import traced_line

from .. import run_folder
from ..histories.program_ends import ProgramEnd, read_program_ends
from ..histories.recorded_faults import Row, json_object, read_faults

TAIL_BYTES = 65_536


def read_object(path: Path) -> Row | None:
    """Return the JSON object of a file; None when the file is missing or is not one JSON object."""
    return json_object(path.read_bytes()) if path.is_file() else None


class RecordedRun:
    """The files of one run folder, and one of its verdicts: the `number`-th."""

    def __init__(self, folder: Path, number: int = 1) -> None:
        self.folder = folder
        self.traces = _traces(folder)
        self.faults = read_faults(folder / run_folder.FAULTS)
        self.program_ends = _program_ends(folder)
        self.verdict = read_object(folder / run_folder.numbered(run_folder.VERDICT, number))
        self.about = read_object(folder / run_folder.RUN) or {}
        self.schedules = [body for path in run_folder.schedule_files(folder) if (body := read_object(path))]

    @property
    def started_ns(self) -> int:
        """The start of the test: that of run.json, else that of the verdict, so that both show the same times."""
        given = self.about.get("started_ns") or (self.verdict or {}).get("started_ns")
        return given if isinstance(given, int) else 0

    def title(self, command: str | None) -> str:
        """Return the test's name, which `command` (that repeats the run) has, or the name of the folder."""
        try:
            words = shlex.split(str(command or self.about.get("command") or "")) or [""]
        except ValueError:  # an open quote: the command is not of this plugin
            words = [""]
        test = words[1] if words[0] == "pytest" and len(words) > 1 else ""
        return str(self.about.get("test") or test or self.folder.resolve().name)

    def wall_to_ns(self) -> Callable[[int], int] | None:
        """Return a function from milliseconds since 1970 to the monotonic clock; None without a trace."""
        for path in self.traces.values():
            with path.open("rb") as file:
                traced = traced_line(file.readline(), path.parent.name)
            if traced is not None and traced.wall_ms:
                difference_ns = traced.t_ns - traced.wall_ms * 1_000_000
                return lambda wall_ms: wall_ms * 1_000_000 + difference_ns
        return None

    def times(self) -> list[int]:
        """Return monotonic times of the run: the first and last line of each trace, and all fault times."""
        found = [t for path in self.traces.values() for t in _ends(path)]
        for fault in self.faults:
            found += [t for t in (fault.begin_ns, fault.effect_ns, fault.end_ns) if t is not None]
        return found

    @property
    def seed(self) -> int | None:
        """The seed of the run; without one in `run.json`, the seed of its schedule."""
        given = self.about.get("seed")
        if given is None and self.schedules:
            given = self.schedules[0].get("seed")
        return given if isinstance(given, int) else None


def _program_ends(folder: Path) -> list[ProgramEnd]:
    try:
        return read_program_ends(folder)
    except (HarrowError, OSError):
        return []


def _traces(folder: Path) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for path in run_folder.trace_files(folder):
        number = path.parent.name.removeprefix("broker-")
        if number.isdigit():
            found[int(number)] = path
    return dict(sorted(found.items()))


def _ends(path: Path) -> list[int]:
    """Return the times of the first and of the last complete line."""
    with path.open("rb") as file:
        head = file.readline()
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read().split(b"\n")
    rows = (traced_line(line, path.parent.name) for line in [head, *reversed(tail)])
    return [traced.t_ns for traced in islice(filter(None, rows), 2)]
