"""The rows that a nemesis writes of its faults: what happened to which step, on which brokers, with which evidence.

Each row has `event` (`inject`, `effect`, `heal`, `healed`, `skipped`), `id`, `fault`, `label`, `targets`, `evidence`.
A row that cannot be written is a line in `problems`: a full disk under the log must not keep a cluster broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .schedule import ScheduledFault
from .spec import Injection

Row = dict[str, Any]
SCHEMA_VERSION = 1
"""Of `faults.jsonl`."""
FOLLOWS: Mapping[str, frozenset[str]] = {
    "inject": frozenset({""}),
    "effect": frozenset({"inject"}),
    "heal": frozenset({"inject", "effect"}),
    "healed": frozenset({"heal"}),
    "skipped": frozenset({""}),
}
"""Event of a row -> the events that the row before of the same step may have; empty: the step has none yet."""


class FaultLog:
    """Appends rows to `faults.jsonl`, each with the time at which it was written."""

    def __init__(self, path: Path, clock_ns: Callable[[], int]) -> None:
        self._path = path
        self._clock_ns = clock_ns
        self._last_ns = 0
        """When the last row was written."""

    def append(self, row: Row) -> None:
        """Write a row; OSError for a full disk."""
        t_ns = self._clock_ns()
        assert t_ns >= self._last_ns, f"the row {row} is written at {t_ns}, before the last one"
        self._last_ns = t_ns
        line: Row = {"t_ns": t_ns, "schema_version": SCHEMA_VERSION, **row}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")


class FaultRows:
    """Writes rows by `write`; without it, none."""

    def __init__(self, write: Callable[[Row], None] | None, problems: list[str]) -> None:
        self._write = write
        self._problems = problems
        self._last: dict[str, str] = {}
        """The event of the last row of each step."""

    def report(self, event: str, injection: Injection, evidence: Mapping[str, Any]) -> None:
        """Write a row of a fault that was injected."""
        self._emit(
            {
                "event": event,
                "id": injection.id,
                "fault": injection.fault.kind,
                "label": str(injection.fault),
                "targets": list(injection.nodes),
                "evidence": dict(evidence),
            }
        )

    def skipped(self, step: ScheduledFault, reason: str) -> None:
        """Write the row of a step that never fired."""
        self._emit(
            {
                "event": "skipped",
                "id": step.id,
                "fault": step.fault.kind,
                "label": str(step.fault),
                "targets": list(step.nodes or ()),
                "evidence": {"reason": reason},
            }
        )

    def _emit(self, row: Row) -> None:
        last = self._last.get(row["id"], "")
        assert last in FOLLOWS[row["event"]], f"step {row['id']}: the row {row['event']} follows {last or 'nothing'}"
        self._last[row["id"]] = row["event"]
        if self._write is None:
            return
        try:
            self._write(row)
        except OSError as error:
            self._problems.append(f"the row {row['event']} {row['id']} was not written: {error}")
