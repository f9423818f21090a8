"""The result of judging a run: `Verdict` and its anomalies, and their JSON form (L6).

* valid: the run was judged, and no anomaly was found that the guarantees forbid;
* invalid: an anomaly was found that the guarantees forbid;
* unknown: the run could not be judged; `reasons` say why (`judgement.py` decides, `run_doubts.py` and `needs.py` have
  the reasons). An unknown verdict fails a test, as an invalid one does.

An anomaly that the guarantees allow is reported too. `anomaly_counts` count everything that was found, in records
where the anomaly concerns records; `anomalies` has the first ones of each name, the worst name first
(`anomaly_kinds.py`). `verdict_text.py` says the same to a person, in a text of bounded length.

Rows of `Anomaly.operations` have times of the monotonic clock in nanoseconds; `started_ns` is the start of the test on
the same clock. A row that shows a record has `operation` (`send`, `read`, `final read`, `record`, `expected`,
`output`, `commit`, `retry`, `attempt`, `dead letter`), `topic`, `partition`, `offset`, `timestamp_ms`, `key`, `value`
and `record_id` (texts, by `promises.record.text_of`). Fields that are not known are absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from harrow.cluster.argument_types import json_list, json_object, place_of
from harrow.cluster.errors import ConfigError

from .rows import OperationRow, ProgressRow

SCHEMA_VERSION = 3
"""Of verdict.json. Version 2 counted batches, and had neither `started_ns` nor `causes`; version 1 named its fields
`counts`, `totals` and `derived`."""


class VerdictFileError(ConfigError, ValueError):
    """A verdict.json that cannot be read: no JSON, another schema version, or a value of a wrong type."""


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
    operations: tuple[Mapping[str, Any], ...]
    explanation: str
    records: int = 1
    """How many records it concerns: a lost batch of 50 records is one anomaly of 50 records."""

    @property
    def rows(self) -> tuple[OperationRow, ...]:
        """Its operations, with the types of their fields."""
        return cast("tuple[OperationRow, ...]", self.operations)

    @property
    def place(self) -> str:
        """Where it is: `orders-2`, the topic, or `cluster`."""
        return f"{self.topic}-{self.partition}" if self.partition >= 0 else self.topic or "cluster"


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
    """How many records have an anomaly of each name (of the brokers' own anomalies: how many anomalies there are)."""
    anomalies: tuple[Anomaly, ...] = ()
    """The first anomalies of each name; forbidden ones before allowed ones, then the worst name first."""
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """For a name of an anomaly, sentences on what faults, traces and taps show about its cause (`causes/`)."""
    reasons: tuple[str, ...] = ()
    """Why the run could not be judged, or not completely; an invalid verdict may have reasons, too."""
    notes: tuple[str, ...] = ()
    """What was not judged and is not needed for the guarantees; anomalies that the guarantees allow."""
    planted: tuple[str, ...] = ()
    """Bugs that were planted in the brokers, each as `module: title`; empty for unchanged brokers."""
    added_guarantees: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Those of `guarantees` that a check of an extension judged, each with the anomalies that it forbids."""
    progress: tuple[ProgressRow, ...] = ()
    """Which client stood still at which fault, and for how long: a row for each pair (`progress/judging.py`)."""
    engine: str = "spark"
    """What judged the run (`engines.py`)."""
    started_ns: int = 0
    """The start of the test on the monotonic clock; 0 when nothing was recorded."""
    elapsed_ms: float = 0.0

    @property
    def valid(self) -> bool:
        """True only for the status valid."""
        return self.status is Status.VALID

    def anomaly_names(self) -> set[str]:
        """Return the names of all anomalies that were found."""
        return {name for name, count in self.anomaly_counts.items() if count}

    def __str__(self) -> str:
        from .verdict_text import verdict_text

        return verdict_text(self)

    def _repr_html_(self) -> str:
        """Return the verdict as a table, which notebooks show."""
        from .verdict_html import verdict_html

        return verdict_html(self)

    def to_json(self) -> str:
        """Return the verdict as a JSON object, which `from_json` reads."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """Return the verdict that `to_json` wrote. Raises VerdictFileError, which says what is wrong and where."""
        try:
            read: Any = json.loads(text)
        except ValueError as error:
            raise VerdictFileError(f"it is not JSON: {error}") from None
        data = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        version = data.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise VerdictFileError(
                f"the verdict has schema version {version}, this Harrow reads version {SCHEMA_VERSION}: "
                "judge the run folder again with `harrow check`"
            )
        try:
            return cls(**_values(data))
        except ConfigError as error:
            raise VerdictFileError(str(error)) from None

    def write(self, path: Path) -> None:
        """Write verdict.json: completely or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_text(self.to_json())
        partial.replace(path)


def _values(data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the verdict of a file; ConfigError for a value of a wrong type."""
    found = json_object(data, Verdict, leave=("status", "anomalies"))
    if lacking := [name for name in ("status", "guarantees") if name not in found]:
        raise ConfigError(f"it has no {lacking[0]}")
    if found["status"] not in list(Status):
        raise ConfigError(f"status is {found['status']!r}: expected {', '.join(Status)}")
    anomalies: list[Anomaly] = []
    for at, row in enumerate(json_list(found.get("anomalies", []), "anomalies")):
        with place_of(f"anomalies[{at}]"):
            anomalies.append(_anomaly(row))
    for name in ("causes", "added_guarantees"):
        found[name] = {key: tuple(texts) for key, texts in found.get(name, {}).items()}
    for name in ("guarantees", "reasons", "notes", "planted", "progress"):
        found[name] = tuple(found.get(name, ()))
    return {**found, "status": Status(found["status"]), "anomalies": tuple(anomalies)}


def _anomaly(row: object) -> Anomaly:
    found = json_object(row, Anomaly)
    needed = [item.name for item in fields(Anomaly) if item.default is MISSING]
    if lacking := [name for name in needed if name not in found]:
        raise ConfigError(f"it has no {lacking[0]}")
    found["offsets"], found["operations"] = tuple(found["offsets"]), tuple(found["operations"])
    return Anomaly(**found)
