"""Sources of clusters for a `Harrow`: a new cluster, or a cluster that the tests of a worker share."""

from __future__ import annotations

import abc
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from harrow.cluster import Cluster
from harrow.cluster.defaults import OF_TESTS
from harrow.cluster.events.processes import TaskFailed
from harrow.cluster.supervisor import sweep_orphans
from harrow.faults.errors import CapabilityError

from ..histories.trace_events import read_trace
from ..machine_limits import too_little_space
from ..running_cluster import RunningCluster
from .choice import LOCAL
from .local import LocalSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harrow.faults.system import System

TEST_DEFAULTS: Mapping[str, object] = {"harrow.tap": True, **OF_TESTS}
"""Settings over the cluster's defaults; a test may override them. The tap records a history for every test (J6)."""


class ClusterSource(Protocol):
    """Provides running clusters; the files of a cluster are (or are linked) at `<folder>/cluster`."""

    shared: bool
    backend: str
    """The name of the backend (`backends/kinds.py`)."""

    def acquire(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str] = ()
    ) -> RunningCluster:
        """Return a running cluster."""
        ...

    def system(self, cluster: RunningCluster) -> System:
        """Return a cluster of this source as faults see it."""
        ...

    def release(self, cluster: RunningCluster) -> None:
        """Take the cluster back; the source decides whether it stops."""
        ...


ClusterT = TypeVar("ClusterT", bound="StartableCluster")


class StartableCluster(RunningCluster, Protocol):
    """A cluster that is not started yet."""

    def start(self) -> None:
        """Start every process."""
        ...


def refuse_plants(plants: Sequence[str]) -> None:
    """Raise CapabilityError for planted bugs; for clusters of other brokers than Harrow's own."""
    if plants:
        raise CapabilityError(
            f"the bugs {', '.join(plants)} can be planted in Harrow's own brokers only; use the backend local"
        )


class NewClusters(abc.ABC, Generic[ClusterT]):
    """Starts a new cluster for each `Harrow` and stops it when the `Harrow` closes."""

    shared = False
    backend: str

    def __init__(self, before_start: Callable[[], None] | None = None) -> None:
        """`before_start` is called before a cluster writes its first file."""
        self._before_start = before_start

    @abc.abstractmethod
    def make(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str]
    ) -> ClusterT:
        """Return a cluster with its files in `folder`; `config`: what the test changes."""

    @abc.abstractmethod
    def system(self, cluster: RunningCluster) -> System:
        """Return a cluster of this source as faults see it."""

    def acquire(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str] = ()
    ) -> ClusterT:
        """Start a cluster; when the start fails, no process stays."""
        sweep_once()
        if self._before_start is not None:
            self._before_start()
        cluster = self.make(folder / "cluster", brokers=brokers, config=config, seed=seed, plants=plants)
        try:
            cluster.start()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def release(self, cluster: RunningCluster) -> None:
        """Stop it."""
        cluster.stop()


class OwnCluster(NewClusters[Cluster]):
    """New clusters of Harrow's own brokers."""

    backend = LOCAL

    def make(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str]
    ) -> Cluster:
        """Return a cluster of processes on this machine, named after its run's folder."""
        return Cluster(
            brokers=brokers,
            config={**TEST_DEFAULTS, **config},
            folder=folder,
            seed=seed,
            name=folder.parent.name,
            plants=plants,
        )

    def system(self, cluster: RunningCluster) -> System:
        """Return the processes on this machine."""
        assert isinstance(cluster, Cluster)
        return LocalSystem(cluster)


class SharedClusters:
    """Clusters by their options, kept until `close` (`scope="session"`)."""

    shared = True

    def __init__(self, own: ClusterSource) -> None:
        """`own` starts each of them."""
        self._own = own
        self.backend = own.backend
        self._clusters: dict[str, RunningCluster] = {}

    def acquire(
        self, folder: Path, *, brokers: int, config: Mapping[str, object], seed: int, plants: Sequence[str] = ()
    ) -> RunningCluster:
        """Return the cluster with these options; the first call starts it."""
        settings = {name: str(value) for name, value in config.items()}
        key = json.dumps([brokers, settings, list(plants)], sort_keys=True)
        cluster = self._clusters.get(key)
        if cluster is None:
            home = folder.parent / f"shared-{len(self._clusters) + 1}"
            cluster = self._own.acquire(home, brokers=brokers, config=config, seed=seed, plants=plants)
            self._clusters[key] = cluster
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cluster").symlink_to(cluster.folder, target_is_directory=True)
        return cluster

    def system(self, cluster: RunningCluster) -> System:
        """Return the cluster as faults see it."""
        return self._own.system(cluster)

    def release(self, cluster: RunningCluster) -> None:
        """Keep the cluster for the next test."""

    def close(self) -> None:
        """Stop all clusters, also when one of them cannot be stopped; then raise the first error."""
        clusters, self._clusters = list(self._clusters.values()), {}
        errors: list[Exception] = []
        for cluster in clusters:
            try:
                cluster.stop()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


@functools.cache
def sweep_once() -> None:
    """Kill the processes that a killed run left, before this process starts its first cluster."""
    sweep_orphans()


def failed_tasks(folder: Path, since: dict[Path, int]) -> list[str]:
    """Return a line for each `task.failed` event below `folder` after the positions `since`.

    They are bugs in Harrow, except where the disk is full (`machine_limits.py`).
    """
    found: list[str] = []
    for path in sorted(folder.glob("*/trace.jsonl")):
        rows = read_trace(path, kinds=(TaskFailed,), since=since.get(path.resolve(), 0))
        found += [_describe(path, row.event) for row in rows]
    return found


def trace_ends(folder: Path) -> dict[Path, int]:
    """Return the current size of each trace below `folder`, for `failed_tasks`."""
    return {path.resolve(): path.stat().st_size for path in folder.glob("*/trace.jsonl")}


def _describe(path: Path, event: TaskFailed) -> str:
    what = f"{event.name}: {event.error}"
    if "No space left" in what and (why := too_little_space(path.parent)):  # else a fault said so
        return f"{path.parent.name}: a task of the broker failed: {why} ({what}; see {path})"
    return f"{path.parent.name}: a task of the broker failed, which is a bug in Harrow: {what} (see {path})"
