"""Runs of a trial on real processes: the schedule of a directed search, with the application of `harrow chaos`.

The time of a run is wall time, and holds the start of the cluster and the verdict on Spark.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harrow.faults.schedule import Schedule

from ..run_folder import SCHEDULE
from ..workloads.scenario import recorded_scenario, run_scenario
from .trial import Observed

CONVERGE_S = 20.0
"""How long a verdict waits: replicas that a bug made different do not converge, and the time of a trial is short."""


class RealRuns:
    """Runs on this machine, whose folders lie in `base` and are removed after their verdicts; they share its Spark."""

    def __init__(self, base: Path, name: str, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: of `RunSettings`, over those of the schedules."""
        self._base = base
        self._name = name
        self._settings = dict(settings or {})
        self._count = 0

    def run(self, schedule: Schedule, *, keep_coverage: bool = False) -> Observed:  # noqa: ARG002 - the protocol's
        """Run it on a cluster of its own; a run that fails to start shows no anomaly."""
        self._count += 1
        schedule = replace(schedule, run={**schedule.run, **self._settings})
        folder = self._base / f"{self._name}-run-{self._count}"
        scenario = recorded_scenario(schedule, "harrow zoo --real")
        result = run_scenario(replace(scenario, converge_timeout_s=CONVERGE_S), folder)
        recorded = folder / SCHEDULE
        ran = Schedule.from_json(recorded.read_text(encoding="utf-8")) if recorded.exists() else schedule
        shutil.rmtree(folder, ignore_errors=True)
        return Observed(
            anomalies=frozenset(result.anomalies) if result.status == "invalid" else frozenset(),
            faults=result.faults,
            schedule=ran,
        )

    def clock(self) -> float:
        """Return the wall time."""
        return time.monotonic()
