"""Reading a run folder for the report: JSON lines whose last line may be incomplete, and the time range of the run.

Owns: `RecordedRun`. Reads `cluster/broker-*/trace.jsonl`, `faults.jsonl`, `verdict.json`, `schedule*.json` and, where
there is one, `run.json` (`{"seed", "command", "test"}`). All times of a run are on one monotonic clock; the report
shows seconds since the start of the run. A missing or incomplete file is no error: the report omits its data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from .. import run_folder

TAIL_BYTES = 65_536
Row = dict[str, Any]


def json_lines(path: Path) -> Iterator[Row]:
    """Yield every complete JSON object of a file, in order; other lines are skipped."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            row = _object(line)
            if row is not None:
                yield row


def read_object(path: Path) -> Row | None:
    """Return the JSON object of a file; None when the file is missing or is not one JSON object."""
    return _object(path.read_bytes()) if path.is_file() else None


def _object(text: bytes) -> Row | None:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return cast("Row", value) if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """One fault: the times of injection, effect and healing, in monotonic nanoseconds."""

    id: str
    kind: str
    label: str
    nodes: tuple[int, ...]
    begin_ns: int
    effect_ns: int | None
    end_ns: int | None
    skipped: str | None
    evidence: Row = field(default_factory=dict[str, Any])


def read_faults(path: Path) -> list[FaultWindow]:
    """Return the faults of `faults.jsonl` in the order of their injection, skipped faults included."""
    rows: dict[str, dict[str, Row]] = {}
    for row in json_lines(path):
        rows.setdefault(str(row.get("id")), {})[str(row.get("event"))] = row
    found = [_window(fault_id, events) for fault_id, events in rows.items()]
    return sorted(found, key=lambda window: window.begin_ns)


def _window(fault_id: str, events: dict[str, Row]) -> FaultWindow:
    first = min(events.values(), key=_time)
    effect, healed, skipped = (events.get(name) for name in ("effect", "healed", "skipped"))
    reason: Row = (skipped or {}).get("evidence") or {}
    return FaultWindow(
        id=fault_id,
        kind=str(first.get("fault", "fault")),
        label=str(first.get("label") or first.get("fault") or "fault"),
        nodes=tuple(int(node) for node in first.get("targets") or () if _is_number(node)),
        begin_ns=_time(events.get("inject") or first),
        effect_ns=None if effect is None else _time(effect),
        end_ns=None if healed is None else _time(healed),
        skipped=str(reason.get("reason", "skipped")) if skipped is not None else None,
        evidence={**((effect or {}).get("evidence") or {})},
    )


def _is_number(node: object) -> bool:
    return isinstance(node, int) or (isinstance(node, str) and node.isdigit())


def _time(row: Row) -> int:
    return int(row.get("t_ns", 0))


class RecordedRun:
    """The files of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traces = _traces(folder)
        self.faults = read_faults(folder / run_folder.FAULTS)
        self.verdict = read_object(folder / run_folder.VERDICT)
        self.about = read_object(folder / run_folder.RUN) or {}
        self.schedules = [
            body for path in run_folder.schedule_files(folder) if (body := read_object(path))
        ]

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
    rows = [_object(head), *(_object(line) for line in reversed(tail))]
    times = [int(row["t_ns"]) for row in rows if row is not None and "t_ns" in row]
    return times[:2]
