"""The source of simulated clusters: one for each simulated test, on the world of its process (`process.py`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.broker import preload
from harrow.cluster.broker_folder import broker_name
from harrow.cluster.defaults import OF_TESTS, cluster_defaults
from harrow.cluster.errors import ConfigError
from harrow.cluster.simulation import SimulatedCluster

from ..choice import SIMULATED
from .cluster import SimulatedRunningCluster
from .nemesis import VirtualNemesis
from .process import SimulatedProcess, current
from .system import SimulatedSystem

if TYPE_CHECKING:
    from harrow.faults.schedule import Schedule
    from harrow.faults.system import System

    from ...running_cluster import RunningCluster

SETTINGS: Mapping[str, object] = {
    **OF_TESTS,
    "harrow.tap": True,
    "log.index.size.max.bytes": 4_096,  # mapped whole for each segment: 10 MiB of zeroes by default
}
"""Settings over the cluster's defaults; a test may override them."""
WITH_FRAMES = 0.7
FRAMES_MOST = 12
"""How many of the faults fire with one of so many next frames of clients, and not at a moment by itself."""
AT_ONCE = 0.2
"""In how many of the blocks the faults keep their times, as far as the traffic lasts so long."""


def simulated_clusters(before_start: Callable[[], None] | None) -> SimulatedClusters:
    """Return the source of this process; ConfigError where nothing is simulated here."""
    return SimulatedClusters(current(), before_start)


class SimulatedClusters:
    """Makes the simulated cluster of a test."""

    shared = False
    backend = SIMULATED

    def __init__(self, process: SimulatedProcess, before_start: Callable[[], None] | None = None) -> None:
        self._process = process
        self._before_start = before_start

    def acquire(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str] = ()
    ) -> SimulatedRunningCluster:
        """Return a running cluster; ConfigError for a second one."""
        process = self._process
        if process.cluster is not None:
            raise ConfigError("a simulated test has one cluster: use one Harrow fixture in it")
        if self._before_start is not None:
            self._before_start()
        preload()
        home = folder / "cluster"
        for node in range(1, brokers + 1):
            (home / broker_name(node)).mkdir(parents=True, exist_ok=True)
        settings = {**SETTINGS, **config}
        simulated = SimulatedCluster(
            brokers=brokers,
            seed=seed,
            config={**cluster_defaults(brokers, settings), **settings},
            plants=plants,
            taps=home,
            world=process.world,
        )
        process.cluster = SimulatedRunningCluster(simulated, home)
        process.cluster.start()
        return process.cluster

    def system(self, cluster: RunningCluster) -> System:
        """Return the cluster as faults see it."""
        assert isinstance(cluster, SimulatedRunningCluster), f"{cluster!r} is of another source"
        return SimulatedSystem(cluster.simulated)

    def nemesis(self, system: System, schedule: Schedule, **options: Any) -> VirtualNemesis:
        """Return what runs a schedule on the cluster."""
        assert self._process.cluster is not None, "a schedule runs on a cluster that was made"
        assert isinstance(system, SimulatedSystem), f"{system!r} is of another source"
        return VirtualNemesis(
            self._process.cluster.simulated, system, schedule, blocks_ms=self._process.blocks_ms, **options
        )

    def spread(self, schedule: Schedule, block: int, seed: int) -> Schedule:
        """Return a planned schedule with its faults at other times: anywhere in the traffic of the block.

        The traffic of the block lasted `windows_ms` in a run without faults. A schedule that has a duration of its own
        has its times already.
        """
        windows = self._process.windows_ms
        if schedule.duration_ms is not None or not schedule.steps or block >= len(windows):
            return schedule
        rng = random.Random(f"{seed}/{block}/spread")  # noqa: S311 - repeatable, not secret
        at_once = rng.random() < AT_ONCE
        share_ms = windows[block] / len(schedule.steps)
        drawn_ms = [round(share_ms * rng.random()) for _ in schedule.steps]
        steps = [
            step
            if step.after
            else replace(
                step,
                at_ms=step.at_ms if at_once and step.at_ms < share_ms else at_ms,
                frames=rng.randint(1, FRAMES_MOST) if rng.random() < WITH_FRAMES else 0,
            )
            for step, at_ms in zip(schedule.steps, drawn_ms, strict=True)
        ]
        return replace(schedule, steps=tuple(steps))

    def release(self, cluster: RunningCluster) -> None:
        """End the world."""
        cluster.stop()
