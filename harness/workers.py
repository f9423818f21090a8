"""One pytest process's share of a run: its seed, its folders, its shared clusters.

Without xdist there is one worker, without a name. With it the controller draws the seed and the
run's name and hands both down through `workerinput`; verdicts come back as `user_properties` of the
reports. Folders: `<out>/<run>/<test>/`, with xdist `<out>/<run>/<worker>/<test>/`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import options as declared
from .options import Options
from .seeds import fresh_seed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .checks import SparkHandle
    from .clusters import SharedClusters

NAME_LENGTH_MAX = 48
"""A folder's name; sockets lie below it and a Unix socket's path has at most 107 bytes."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """What the fixtures of one process share."""

    seed: int
    run: str
    name: str
    flags: Mapping[str, Any]
    ini: Mapping[str, Any]
    root: Path
    controller: int
    """The process that the run ends with: xdist's controller, or this one."""
    shared: SharedClusters | None = None
    spark_handle: SparkHandle | None = None

    def options(self, item: pytest.Item | None, arguments: Mapping[str, Any]) -> Options:
        """Return what a test runs with: flag over factory argument over marker over ini over default."""
        marker = read_marker(item) if item is not None else {}
        layers = ({"seed": self.seed}, self.ini, marker, arguments, self.flags)
        return Options(**declared.merge(*layers))

    def run_folder(self, options: Options) -> Path:
        """Return the folder of the whole run, all workers'."""
        base = options.out if options.out.is_absolute() else self.root / options.out
        return base / self.run

    def folder(self, options: Options) -> Path:
        """Return this worker's part of the run folder."""
        return self.run_folder(options) / self.name

    def spark(self, options: Options) -> SparkHandle:
        """Return the way to the run's one Spark."""
        from .verdicts import spark_of_run

        self.spark_handle = spark_of_run(
            self.run_folder(options), options.spark, controller=self.controller
        )
        return self.spark_handle

    def shared_clusters(self) -> SharedClusters:
        """Return the clusters that tests with `scope="session"` share; stopped at the session's end."""
        if self.shared is None:
            from .clusters import SharedClusters

            self.shared = SharedClusters()
        return self.shared

    def close(self) -> None:
        """Stop what tests shared; the run's Spark ends with the controlling process."""
        if self.spark_handle is not None:
            self.spark_handle.close()
            self.spark_handle = None
        if self.shared is not None:
            self.shared.close()
            self.shared = None


read_marker = declared.read_marker
WORKER = pytest.StashKey[Worker]()


def start_worker(config: pytest.Config) -> Worker:
    """Build this process's worker from its options and, under xdist, from the controller's."""
    flags, ini = declared.read_flags(config), declared.read_ini(config)
    handed: Mapping[str, Any] = getattr(config, "workerinput", {})
    chosen = handed.get("harrow_seed", flags.get("seed", ini.get("seed")))
    worker = Worker(
        seed=fresh_seed() if chosen is None else chosen,
        run=handed.get("harrow_run") or _run_name(),
        name=handed.get("workerid", ""),
        flags=flags,
        ini=ini,
        root=config.rootpath,
        controller=handed.get("harrow_controller") or os.getpid(),
    )
    config.stash[WORKER] = worker
    return worker


def hand_down(worker: Worker, workerinput: dict[str, Any]) -> None:
    """Give an xdist worker the controller's seed, run and process id."""
    workerinput["harrow_controller"] = os.getpid()
    workerinput["harrow_seed"] = worker.seed
    workerinput["harrow_run"] = worker.run


def is_worker(config: pytest.Config) -> bool:
    """Whether an xdist controller drives this process."""
    return hasattr(config, "workerinput")


def _run_name() -> str:
    now = dt.datetime.now(tz=dt.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{os.getpid()}"


def folder_name(nodeid: str, fixture: str = "harrow") -> str:
    """Return a short, safe, unique folder name for a test (and for a fixture with another name)."""
    label = nodeid if fixture == "harrow" else f"{nodeid}@{fixture}"
    plain = re.sub(r"[^A-Za-z0-9_.=-]+", "-", label.rpartition("::")[2]).strip("-.")
    mark = hashlib.sha256(label.encode()).hexdigest()[:6]
    return f"{plain[: NAME_LENGTH_MAX - 7]}-{mark}"
