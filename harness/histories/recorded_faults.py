"""The faults of a run as `faults.jsonl` records them: JSON lines whose last line may be incomplete.

Owns: `RecordedFault`. Reports and the causes of a verdict read it. A missing or incomplete file is no error: what it
does not have is omitted. Rows: `harrow.faults.nemesis`, times in nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from harrow.faults.spec import Fault

Row = dict[str, Any]
BESIDE = ("dependency", "program")
"""The fields of a fault's details that name what it hit beside the brokers."""


def json_lines(path: Path) -> Iterator[Row]:
    """Yield every complete JSON object of a file, in order; other lines are skipped."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            row = json_object(line)
            if row is not None:
                yield row


def json_object(text: bytes) -> Row | None:
    """Return a JSON object; None when `text` is something else."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return cast("Row", value) if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFault:
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
    details: Row = field(default_factory=dict[str, Any])
    """What was drawn for it: such as its `dependency`, `program`, `mode` or `direction`."""

    @property
    def says(self) -> type[Fault]:
        """The class of its kind, for what it says of itself; `Fault` where its distribution is missing."""
        from harrow.faults.fault_kinds import recorded_kind  # many modules, which a run without anomalies does not need

        return recorded_kind(self.kind)

    @property
    def words(self) -> str:
        """What happened to what it hit, after its name: "was killed"."""
        return self.says.words_for(self.details) or f"was hit by the fault {self.kind}"

    @property
    def of_program(self) -> bool:
        """Whether it hit a program of the test."""
        return self.beside is not None and self.beside[0] == "program"

    @property
    def beside(self) -> tuple[str, str] | None:
        """What stands beside the brokers and was hit: `("dependency", "store")`, `("program", "billing")`."""
        found = ((kind, self.details.get(kind)) for kind in BESIDE)
        return next(((kind, str(name)) for kind, name in found if name is not None), None)


def read_faults(path: Path) -> list[RecordedFault]:
    """Return the faults of `faults.jsonl` in the order of their injection, skipped faults included."""
    found = [_fault(fault_id, events) for fault_id, events in fault_events(path)[0].items()]
    return sorted(found, key=lambda fault: fault.begin_ns)


def fault_events(path: Path) -> tuple[dict[str, dict[str, Row]], list[str]]:
    """Return the first row of each event (`inject`, `effect`, …) by the fault's id, and the lines that are no JSON."""
    rows: dict[str, dict[str, Row]] = {}
    problems: list[str] = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        row = json_object(line)
        if row is None:
            text = line[:80].decode(errors="replace")
            problems.append(f"{path} has a line that is not JSON: {text!r}")
        else:
            rows.setdefault(str(row.get("id")), {}).setdefault(str(row.get("event")), row)
    return rows, problems


def _fault(fault_id: str, events: dict[str, Row]) -> RecordedFault:
    first = min(events.values(), key=_time)
    effect, healed, skipped = (events.get(name) for name in ("effect", "healed", "skipped"))
    reason: Row = (skipped or {}).get("evidence") or {}
    return RecordedFault(
        id=fault_id,
        kind=str(first.get("fault", "fault")),
        label=str(first.get("label") or first.get("fault") or "fault"),
        nodes=tuple(int(node) for node in first.get("targets") or () if _is_number(node)),
        begin_ns=_time(events.get("inject") or first),
        effect_ns=None if effect is None else _time(effect),
        end_ns=None if healed is None else _time(healed),
        skipped=str(reason.get("reason", "skipped")) if skipped is not None else None,
        evidence={**((effect or {}).get("evidence") or {})},
        details={**((events.get("inject") or {}).get("evidence") or {})},
    )


def _is_number(node: object) -> bool:
    return isinstance(node, int) or (isinstance(node, str) and node.isdigit())


def _time(row: Row) -> int:
    return int(row.get("t_ns", 0))
