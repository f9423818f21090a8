"""What is said about a run: `Verdict`, its `Anomaly`s, as text and as JSON (L6).

valid: judged, and nothing forbidden found. invalid: something forbidden found. unknown: it could not be judged, and
`reasons` say why; an unknown verdict fails a test just as an invalid one does. An anomaly that the guarantee
allows is reported too. Texts are bounded whatever the history; `totals` count everything that was found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
SHOWN_ANOMALIES = 5
SHOWN_OPERATIONS = 6


class Status(StrEnum):
    """The three answers."""

    VALID = "valid"
    UNKNOWN = "unknown"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One thing that should not be, with the operations that show it."""

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
    """The judgement of one run folder."""

    status: Status
    guarantees: tuple[str, ...]
    derived: str | None = None
    """Why these guarantees, when they were not named by the caller."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    totals: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many of each anomaly were found, shown or not."""
    anomalies: tuple[Anomaly, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why it is unknown; also said when an invalid verdict is incomplete."""
    notes: tuple[str, ...] = ()
    """What could not be looked at and is not needed for the guarantee; what the guarantee allows."""
    planted: tuple[str, ...] = ()
    """Bugs that were planted in the brokers, `module: title` each; empty for brokers as they are."""
    elapsed_ms: float = 0.0

    @property
    def valid(self) -> bool:
        """True when it is valid, and only then."""
        return self.status is Status.VALID

    def names(self) -> set[str]:
        """Names of the anomalies found."""
        return {name for name, count in self.totals.items() if count}

    def __str__(self) -> str:
        promised = ", ".join(self.guarantees)
        lines = [f"PLANTED BUG {bug}" for bug in self.planted]
        lines += [
            f"{self.status.value.upper()}: {promised}"
            + (f" ({self.derived})" if self.derived else "")
        ]
        if self.totals:
            lines.append(
                "  found " + ", ".join(f"{n} {name}" for name, n in sorted(self.totals.items()))
            )
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
            f"{self.counts[name]:,} {name.replace('_', ' ')}"
            for name in shown
            if self.counts.get(name)
        ]
        if figures:
            lines.append("  judged " + ", ".join(figures))
        return "\n".join(lines)

    def to_json(self) -> str:
        """One JSON object; `from_json` reads it back."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """A verdict as `to_json` wrote it; ValueError for another schema."""
        data: dict[str, Any] = json.loads(text)
        version = data.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"verdict of schema {version}, this Harrow reads schema {SCHEMA_VERSION}"
            )
        data["anomalies"] = tuple(_anomaly(row) for row in data["anomalies"])
        data["status"] = Status(data["status"])
        for name in ("guarantees", "reasons", "notes", "planted"):
            data[name] = tuple(data.get(name, ()))
        return cls(**data)

    def write(self, path: Path) -> None:
        """Write it whole or not at all."""
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
