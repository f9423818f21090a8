"""The values that the steps of a verdict pass on: what a run recorded, what was found in it, and what it is held to.

`judgement.py` has the steps. Each value is made once; files of the run folder are read for `RunToJudge`, for the jobs
and for the progress of clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from harrow.cluster.events import TracedEvent, TraceEvent

from .. import run_folder
from ..histories.layout import Layout
from ..histories.origin import started_ns
from .fault_windows import FaultWindow, read_fault_windows
from .guarantees import derive, forbidden
from .merged_results import MergedResults
from .progress.findings import ProgressFindings
from .promise_findings import PromiseFindings
from .rows import PartitionResult
from .stuck_groups import GroupFindings
from .traces import judged_events


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToJudge:
    """What a run recorded of its topics, faults and brokers."""

    folder: Path
    topics: Sequence[str]
    layout: Layout
    times: run_folder.RunTimes
    windows: Sequence[FaultWindow]
    """The faults, by start."""
    has_faults: bool
    """Whether faults were planned."""
    events: Sequence[TracedEvent[TraceEvent]]
    """What a check reads of the traces."""
    imported: Mapping[str, Any]
    """Of a history from elsewhere: `claims`, `notes`."""
    problems: Sequence[str]
    """Files, or parts of them, that cannot be read."""

    @classmethod
    def read(cls, folder: Path, layout: Layout, topics: Sequence[str]) -> Self:
        """Read the run folder."""
        windows, fault_problems = read_fault_windows(folder)
        return cls(
            folder=folder,
            topics=topics,
            layout=layout,
            times=run_folder.RunTimes(started_ns(folder)),
            windows=windows or [],
            has_faults=windows is not None,
            events=judged_events(folder),
            imported=run_folder.read_run(folder).get("imported", {}),
            problems=[*layout.problems, *fault_problems],
        )

    @property
    def fault_times(self) -> list[tuple[int, int]]:
        """When each fault began and ended, in nanoseconds of the monotonic clock."""
        return [(window.start_ns, window.end_ns) for window in self.windows]

    @property
    def unacknowledged(self) -> int:
        """How many sends to the topics have no result."""
        return sum(part.rows for topic in self.topics for part in self.layout.pending.get(topic, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFindings:
    """What the checks found."""

    results: Sequence[PartitionResult]
    progress: ProgressFindings
    groups: GroupFindings
    promised: PromiseFindings
    merged: MergedResults
    """All of it: counts, anomalies and facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTo:
    """The guarantees of a verdict, and what they forbid."""

    guarantees: Sequence[str]
    reason: str | None
    """Why these, where the caller named none."""
    added: Mapping[str, tuple[str, ...]]
    """Guarantees of extensions and of `recovers_within=`, with the anomalies that each forbids."""
    forbidden: frozenset[str]

    @classmethod
    def of(cls, named: Sequence[str] | None, run: RunToJudge, found: RunFindings) -> Self:
        """Return those that the caller named; else those that the settings of producers and the promises give."""
        reason = None
        if named is None:
            named, reason = found.promised.guarantees(*_derived(run.layout, found.merged.counts))
        added = {name: tuple(names) for name, names in found.promised.added_guarantees.items()}
        added |= found.progress.guarantee
        chosen = list(dict.fromkeys([*named, *added]))
        not_allowed = forbidden(chosen).union(*added.values())
        return cls(guarantees=chosen, reason=reason, added=added, forbidden=not_allowed)


def _derived(layout: Layout, counts: Counter[str]) -> tuple[list[str], str]:
    if layout.taps and counts["batches_acknowledged"]:
        acks = [ack for ack, name in ((0, "0"), (1, "1"), (-1, "all")) if counts[f"batches_acks_{name}"]]
        return derive(acks, [not counts["batches_without_producer_id"]])
    return derive([acks for acks, _ in layout.producers], [idempotent for _, idempotent in layout.producers])
