"""`PromiseFindings`: what the checks of promises found, for the verdict that also judges brokers and clients.

`promises.json` in the run folder keeps them, so that `harrow check` judges a run again without the arguments of
`verify`, which only the test has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import run_folder
from .rows import AnomalyRow

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedIds:
    """How many record ids of a topic brokers refused."""

    ids: int
    lacking: int
    """How many of them no judged topic has."""
    shown: Sequence[str]
    """The first of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseFindings:
    """Anomalies, counts and doubts, to be merged into a verdict (`checks/judgement.py`)."""

    operation_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    anomaly_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    anomalies: Sequence[AnomalyRow] = ()
    """The first anomalies of each name."""
    reasons: Sequence[str] = ()
    """Why the promises could not be judged, or not completely."""
    doubts: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the name of an anomaly: why it cannot be excluded. It is a reason where the guarantees forbid the anomaly."""
    notes: Sequence[str] = ()
    replaces: frozenset[str] = frozenset()
    """Names of anomalies that these checks judge better; what other checks found under these names is dropped."""
    demands: Mapping[str, str] = field(default_factory=dict[str, str])
    """Guarantees that the caller asked for by an argument, each with the reason; for a verdict without `guarantee=`."""
    accounts_for_sends: bool = False
    """Whether the caller said what the application believes that it sent (`expected=`)."""
    accounted_topics: Sequence[str] = ()
    """Topics of which these checks know all records by other topics: a refused send to them is a missing output, and
    whether they may be empty is judged here."""
    added_guarantees: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Guarantees of extensions that were judged (`check_join.py`), each with the anomalies that it forbids."""
    refused_ids: Mapping[str, RefusedIds] = field(default_factory=dict[str, RefusedIds])
    """By topic. A topic is not there where this is not known."""
    knows_order: bool = False
    """Whether these checks judged the order of all records that have an order."""

    def guarantees(self, derived: Sequence[str], why: str) -> tuple[list[str], str]:
        """Return the derived guarantees with what the caller's arguments demand, and the reason for both."""
        if not self.demands:
            return list(derived), why
        kept = [name for name in derived if name != "best-effort"]
        added = [name for name in self.demands if name not in kept]
        return [*kept, *added], "; ".join([why, *(self.demands[name] for name in added)])

    def doubts_about(self, forbidden: frozenset[str]) -> list[str]:
        """Return the doubts that matter for guarantees which forbid these anomalies."""
        return list(dict.fromkeys(doubt for name, doubt in self.doubts.items() if name in forbidden))


def write_findings(folder: Path, topics: Iterable[str], findings: PromiseFindings | None, *, number: int = 1) -> None:
    """Keep the findings of the `number`-th verdict on a run; None removes those that an earlier run left there."""
    path = folder / run_folder.numbered(run_folder.PROMISE_FINDINGS, number)
    if findings is None:
        path.unlink(missing_ok=True)
        return
    anomalies = [anomaly.to_json() for anomaly in findings.anomalies]
    fields = {**asdict(findings), "anomalies": anomalies, "replaces": sorted(findings.replaces)}
    body = {"schema_version": SCHEMA_VERSION, "topics": sorted(set(topics)), "findings": fields}
    path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def read_findings(folder: Path, topics: Iterable[str], *, number: int = 1) -> PromiseFindings | None:
    """Return the findings of the `number`-th verdict on a run; None where it judged no promise of these topics."""
    path = folder / run_folder.numbered(run_folder.PROMISE_FINDINGS, number)
    try:
        text = path.read_text(encoding="utf-8")
        body: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return None
    if body.get("schema_version") != SCHEMA_VERSION or body["topics"] != sorted(set(topics)):
        return None
    fields: dict[str, Any] = body["findings"]
    fields["anomalies"] = [AnomalyRow.from_json(row) for row in fields["anomalies"]]
    fields["replaces"] = frozenset(fields["replaces"])
    fields["refused_ids"] = {topic: RefusedIds(**row) for topic, row in fields["refused_ids"].items()}
    return PromiseFindings(**fields)
