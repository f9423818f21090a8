"""Reading a run folder: JSON lines that may end torn, and the time that the run spans.

Owns: `Run`. Reads `cluster/broker-*/trace.jsonl`, `faults.jsonl`, `verdict.json`, `schedule*.json` and, where
there is one, `run.json` (`{"seed", "command", "test"}`). All times of a run are one monotonic clock; a picture
counts seconds from `begin_ns`. May fail: never for a missing or torn file: what cannot be read is absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

TAIL_BYTES = 65_536
Row = dict[str, Any]


def json_lines(path: Path) -> Iterator[Row]:
    """Every whole JSON object of a file, in order; a line that is none is passed over."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            row = _object(line)
            if row is not None:
                yield row


def read_object(path: Path) -> Row | None:
    """The one JSON object of a file; None where there is none."""
    return _object(path.read_bytes()) if path.is_file() else None


def _object(text: bytes) -> Row | None:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return cast("Row", value) if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """One fault: when it was injected, took effect, and was healed; times are monotonic nanoseconds."""

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
    """The faults of `faults.jsonl` in the order of their injection; skipped ones too."""
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


class Run:
    """The files of one run folder, and what it spans."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traces = _traces(folder)
        self.faults = read_faults(folder / "faults.jsonl")
        self.verdict = read_object(folder / "verdict.json")
        self.about = read_object(folder / "run.json") or {}
        self.schedules = [
            body for path in sorted(folder.glob("schedule*.json")) if (body := read_object(path))
        ]

    def times(self) -> list[int]:
        """Some monotonic times of the run, its first and last trace lines and fault lines among them."""
        found = [t for path in self.traces.values() for t in _ends(path)]
        for fault in self.faults:
            found += [t for t in (fault.begin_ns, fault.effect_ns, fault.end_ns) if t is not None]
        return found

    @property
    def seed(self) -> int | None:
        """The run's own seed; that of its schedule where it was not written down."""
        given = self.about.get("seed")
        if given is None and self.schedules:
            given = self.schedules[0].get("seed")
        return given if isinstance(given, int) else None


def _traces(folder: Path) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for path in folder.glob("cluster/broker-*/trace.jsonl"):
        number = path.parent.name.removeprefix("broker-")
        if number.isdigit():
            found[int(number)] = path
    return dict(sorted(found.items()))


def _ends(path: Path) -> list[int]:
    """Times of the first and the last whole line."""
    with path.open("rb") as file:
        head = file.readline()
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read().split(b"\n")
    rows = [_object(head), *(_object(line) for line in reversed(tail))]
    times = [int(row["t_ns"]) for row in rows if row is not None and "t_ns" in row]
    return times[:2]
