"""Where a `Harrow` gets its cluster from: one of its own, or one that a worker's tests share."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harrow.cluster import Cluster
from harrow.cluster.supervisor import sweep_orphans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEST_DEFAULTS: Mapping[str, object] = {"harrow.tap": True}
"""Over the cluster's own defaults, under what the test asks for: the tap gives every test a verdict (J6)."""


class ClusterSource(Protocol):
    """Gives a running cluster whose files lie (or are linked) at `<folder>/cluster`."""

    shared: bool

    def acquire(
        self,
        folder: Path,
        *,
        brokers: int,
        config: Mapping[str, object],
        seed: int,
        plants: Sequence[str] = (),
    ) -> Cluster:
        """Return a running cluster."""
        ...

    def release(self, cluster: Cluster) -> None:
        """Return it; its owner decides whether it stops."""
        ...


class OwnCluster:
    """A fresh cluster for each `Harrow`, stopped with it."""

    shared = False

    def acquire(
        self,
        folder: Path,
        *,
        brokers: int,
        config: Mapping[str, object],
        seed: int,
        plants: Sequence[str] = (),
    ) -> Cluster:
        """Start one; nothing is left running when it does not start."""
        sweep_once()
        cluster = Cluster(
            brokers=brokers,
            config={**TEST_DEFAULTS, **config},
            folder=folder / "cluster",
            seed=seed,
            name=folder.name,
            plants=plants,
        )
        try:
            cluster.start()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def release(self, cluster: Cluster) -> None:
        """Stop it."""
        cluster.stop()


class SharedClusters:
    """Clusters by what was asked for, kept until `close`: `scope="session"`."""

    shared = True

    def __init__(self) -> None:
        self._own = OwnCluster()
        self._clusters: dict[str, Cluster] = {}

    def acquire(
        self,
        folder: Path,
        *,
        brokers: int,
        config: Mapping[str, object],
        seed: int,
        plants: Sequence[str] = (),
    ) -> Cluster:
        """Return the cluster of these brokers and config, started when it is the first to ask."""
        settings = {name: str(value) for name, value in config.items()}
        asked = json.dumps([brokers, settings, list(plants)], sort_keys=True)
        cluster = self._clusters.get(asked)
        if cluster is None:
            home = folder.parent / f"shared-{len(self._clusters) + 1}"
            cluster = self._own.acquire(
                home, brokers=brokers, config=config, seed=seed, plants=plants
            )
            self._clusters[asked] = cluster
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cluster").symlink_to(cluster.folder, target_is_directory=True)
        return cluster

    def release(self, cluster: Cluster) -> None:
        """Keep it for the next test."""

    def close(self) -> None:
        """Stop them all; one that does not stop does not keep the others."""
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
    """End what a run that was killed left behind, before this process starts its first cluster."""
    sweep_orphans()


def failed_tasks(folder: Path, since: dict[Path, int]) -> list[str]:
    """Return a line for each `task.failed` that a process below `folder` traced after `since`: bugs of ours."""
    found: list[str] = []
    for path in sorted(folder.glob("*/trace.jsonl")):
        with path.open("rb") as file:
            file.seek(since.get(path.resolve(), 0))
            found += [_describe(path, line) for line in file if b'"task.failed"' in line]
    return found


def trace_ends(folder: Path) -> dict[Path, int]:
    """Return how far each trace below `folder` is written, for `failed_tasks`."""
    return {path.resolve(): path.stat().st_size for path in folder.glob("*/trace.jsonl")}


def _describe(path: Path, line: bytes) -> str:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        event = {}
    what = f"{event.get('name', '?')}: {event.get('error', line[:200])}"
    return f"{path.parent.name}: the broker's task failed, a bug of Harrow: {what} (see {path})"
