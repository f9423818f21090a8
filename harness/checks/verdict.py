"""The result of judging a run: `Verdict` and its anomalies, as text and as JSON (L6).

* valid: the run was judged, and no anomaly was found that the guarantees forbid;
* invalid: an anomaly was found that the guarantees forbid;
* unknown: the run could not be judged; `reasons` say why. An unknown verdict fails a test, as an invalid one does.

An anomaly that the guarantees allow is reported too. The text of a verdict has a bounded length, however long the
history is; `anomaly_counts` count everything that was found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 2
"""Of verdict.json. Version 1 named its fields `counts`, `totals` and `derived`."""
SHOWN_ANOMALIES = 5
SHOWN_OPERATIONS = 6


class Status(StrEnum):
    """The three possible results."""

    VALID = "valid"
    UNKNOWN = "unknown"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """A violation found in a history or in the replica logs, with the operations that show it."""

    name: str
    topic: str
    partition: int
    offsets: tuple[int, ...]
    operations: tuple[dict[str, Any], ...]
    explanation: str

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}" if self.partition >= 0 else self.topic or "cluster"
        where = f" at {_offsets(self.offsets)}" if self.offsets else ""
        lines = [f"{self.name} in {place}{where}: {self.explanation}"]
        lines += [f"    {_operation(row)}" for row in self.operations[:SHOWN_OPERATIONS]]
        if len(self.operations) > SHOWN_OPERATIONS:
            lines.append(
                f"    … {len(self.operations) - SHOWN_OPERATIONS} more operations in verdict.json"
            )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of judging one run folder."""

    status: Status
    guarantees: tuple[str, ...]
    guarantee_reason: str | None = None
    """Why these guarantees were derived from the producers' settings; None when the caller named them."""
    operation_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many operations, batches and logs were judged, by what they are (`acknowledged`, `read`, …)."""
    anomaly_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many anomalies of each name were found; `anomalies` shows only the first ones."""
    anomalies: tuple[Anomaly, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why the run could not be judged, or not completely; an invalid verdict may have reasons, too."""
    notes: tuple[str, ...] = ()
    """What was not judged and is not needed for the guarantees; anomalies that the guarantees allow."""
    planted: tuple[str, ...] = ()
    """Bugs that were planted in the brokers, each as `module: title`; empty for unchanged brokers."""
    elapsed_ms: float = 0.0

    @property
    def valid(self) -> bool:
        """True only for the status valid."""
        return self.status is Status.VALID

    def anomaly_names(self) -> set[str]:
        """Return the names of all anomalies that were found."""
        return {name for name, count in self.anomaly_counts.items() if count}

    def __str__(self) -> str:
        guarantees = ", ".join(self.guarantees)
        lines = [f"PLANTED BUG {bug}" for bug in self.planted]
        lines += [
            f"{self.status.value.upper()}: {guarantees}"
            + (f" ({self.guarantee_reason})" if self.guarantee_reason else "")
        ]
        if self.anomaly_counts:
            counted = sorted(self.anomaly_counts.items())
            lines.append("  found " + ", ".join(f"{count} {name}" for name, count in counted))
        lines += [
            f"  {anomaly}".replace("\n", "\n  ") for anomaly in self.anomalies[:SHOWN_ANOMALIES]
        ]
        if len(self.anomalies) > SHOWN_ANOMALIES:
            lines.append(
                f"  … {len(self.anomalies) - SHOWN_ANOMALIES} more anomalies in verdict.json"
            )
        lines += [f"  unknown: {reason}" for reason in self.reasons[:SHOWN_ANOMALIES]]
        lines += [f"  note: {note}" for note in self.notes[:SHOWN_ANOMALIES]]
        shown = (
            "acknowledged",
            "unacknowledged",
            "read",
            "drained",
            "batches_acknowledged",
            "log_batches",
        )
        figures = [
            f"{self.operation_counts[name]:,} {name.replace('_', ' ')}"
            for name in shown
            if self.operation_counts.get(name)
        ]
        if figures:
            lines.append("  judged " + ", ".join(figures))
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the verdict as a JSON object, which `from_json` reads."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """Return the verdict that `to_json` wrote. Raises ValueError for another schema version."""
        data: dict[str, Any] = json.loads(text)
        version = data.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"the verdict has schema version {version}, this Harrow reads version {SCHEMA_VERSION}: "
                "judge the run folder again with `harrow check`"
            )
        data["anomalies"] = tuple(_anomaly(row) for row in data["anomalies"])
        data["status"] = Status(data["status"])
        for name in ("guarantees", "reasons", "notes", "planted"):
            data[name] = tuple(data.get(name, ()))
        return cls(**data)

    def write(self, path: Path) -> None:
        """Write verdict.json: completely or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_text(self.to_json())
        partial.replace(path)


def _anomaly(row: dict[str, Any]) -> Anomaly:
    row["offsets"], row["operations"] = tuple(row["offsets"]), tuple(row["operations"])
    return Anomaly(**row)


def _offsets(offsets: tuple[int, ...]) -> str:
    if len(offsets) == 1:
        return f"offset {offsets[0]}"
    if len(offsets) <= SHOWN_OPERATIONS:
        return "offsets " + ", ".join(map(str, offsets))
    return f"{len(offsets)} offsets from {min(offsets)} to {max(offsets)}"


def _operation(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row.items() if value is not None)
