"""One pytest process of a run: its seed, its folders, its shared clusters.

Without xdist there is one worker without a name. With xdist the controller chooses the seed and the run's name and
sends both to the workers in `workerinput`; the verdicts return in the `user_properties` of the reports. Folders:
`<out>/<run>/<test>/`, with xdist `<out>/<run>/<worker>/<test>/`. The workers have one Spark (`checks/spark_client.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .. import out_folder
from ..backends.choice import LOCAL, ORIGIN_OPTIONS, SIMULATED, BackendChoice, unused_origin
from ..seeds import fresh_seed
from ..user_spark import UserSpark
from . import options as declared
from .options import Options
from .requested_fixtures import factory_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..backends.clusters import ClusterSource, SharedClusters
    from ..checks import SparkHandle
    from ..run.harrow_run import HarrowRun

NAME_LENGTH_MAX = 48
"""Maximum length of a test's folder name: the paths of Unix sockets below it have at most 107 bytes."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """State that the fixtures of one process share."""

    seed: int
    run: str
    name: str
    flags: Mapping[str, Any]
    ini: Mapping[str, Any]
    root: Path
    controller: int
    """Process id of xdist's controller, or of this process: the run ends when that process ends."""
    shared: dict[BackendChoice, SharedClusters] = field(default_factory=dict[BackendChoice, "SharedClusters"])
    spark_handle: SparkHandle | None = None
    temporary_out: Path | None = None
    """The folder that replaces an out folder that cannot be written."""
    out_problem: str = ""
    """Why the out folder cannot be written."""
    item: pytest.Item | None = None
    """The test that runs now."""
    session_runs: dict[str, HarrowRun] = field(default_factory=dict[str, "HarrowRun"])
    """What the session-scoped fixtures yielded, by the fixture's name."""
    stderr: int | None = None
    """A descriptor of stderr as it was before pytest captured it: notes of long waits are written there."""
    failed_folders: set[Path] = field(default_factory=set[Path])
    """Folders of the runs of failed tests: their data stays."""
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    """How often each test began in this process, by its node id (`attempts.py`)."""

    def written_options(self, item: pytest.Item, arguments: Mapping[str, Any]) -> Options:
        """Return the options of a test without those of the command line."""
        return declared.make_options({"seed": self.seed}, self.ini, read_marker(item), arguments)

    def options(self, item: pytest.Item | None, arguments: Mapping[str, Any]) -> Options:
        """Return the options of a test. Priority: flag, factory argument, marker, ini, default."""
        marker = read_marker(item) if item is not None else {}
        layers = ({"seed": self.seed}, self.ini, marker, arguments, self.flags)
        chosen = declared.make_options(*layers)
        # a flag replaces the backend for which the arguments were written
        if "backend" not in self.flags:
            declared.check_origins(chosen.backend, {**marker, **arguments})
        return chosen

    def run_folder(self, options: Options) -> Path:
        """Return the folder of the whole run; all workers share it."""
        return self.out(options) / self.run

    def out(self, options: Options) -> Path:
        """Return the folder of all runs."""
        if self.temporary_out is not None:
            return self.temporary_out
        return options.out if options.out.is_absolute() else self.root / options.out

    def check_out(self) -> None:
        """Replace an out folder that cannot be written by a temporary one; UsageError for one of the command line."""
        out = self.out(self.options(None, {}))
        self.out_problem = out_folder.why_not_writable(out)
        if not self.out_problem:
            return
        if "out" in self.flags:
            raise pytest.UsageError(
                f"--harrow-out={self.flags['out']}: Harrow cannot write there ({self.out_problem}); name another folder"
            )
        self.temporary_out = out_folder.temporary_folder()

    def prepare_out(self) -> None:
        """Make the out folder before the first cluster of a test writes into it."""
        out_folder.prepare(self.out(self.options(None, {})))

    def folder(self, options: Options) -> Path:
        """Return this worker's part of the run folder."""
        return self.run_folder(options) / self.name

    def spark(self, options: Options) -> SparkHandle:
        """Return the handle of the run's Spark server."""
        from ..verdict.verifier import spark_of_run

        self.prepare_out()
        self.spark_handle = spark_of_run(
            self.run_folder(options), UserSpark(options.spark, options.spark_data), controller=self.controller
        )
        return self.spark_handle

    def check_combinations(self, items: Sequence[pytest.Item] | None = None) -> None:
        """Raise UsageError for an option of the command line that has no effect in this run.

        `items`: the tests of the run, whose markers may choose a backend; None: they are not known yet.
        """
        chosen = self.options(None, {})
        if "spark_data" in self.flags and not chosen.spark:
            raise pytest.UsageError(
                "--harrow-spark-data: Harrow's own Spark reads the run folders; name yours too: --harrow-spark ADDRESS"
            )
        if not any(name in self.flags for name in ORIGIN_OPTIONS):
            return
        backends = {chosen.backend}
        if "backend" not in self.flags:
            if items is None:
                return
            for item in items:
                backends |= {self.options(item, row).backend for row in factory_arguments(item)}
        for name in ORIGIN_OPTIONS:
            if name in self.flags and all(unused_origin(used, name) for used in backends):
                declared.check_origins(chosen.backend, self.flags, "--harrow-")

    def check_backend(self) -> None:
        """Raise UsageError when the command line or the ini file names a backend that cannot be used here."""
        choice = self.options(None, {}).backend_choice
        if choice.name == LOCAL:
            return
        from harrow.faults.errors import CapabilityError

        from ..backends.kinds import check_backend

        try:
            check_backend(choice)
        except CapabilityError as error:
            raise pytest.UsageError(f"backend {choice.name}: {error}") from None

    def own_clusters(self, options: Options) -> ClusterSource:
        """Return a source of new clusters; CapabilityError where the backend cannot be used here."""
        from ..backends.kinds import new_source

        return new_source(options.backend_choice, self.prepare_out)

    def shared_clusters(self, options: Options) -> SharedClusters:
        """Return the clusters that tests with `scope="session"` share; they stop at the end of the session."""
        choice = options.backend_choice
        if choice not in self.shared:
            from ..backends.clusters import SharedClusters

            self.shared[choice] = SharedClusters(self.own_clusters(options))
        return self.shared[choice]

    def close(self) -> None:
        """Stop the shared clusters and close the Spark handle; the Spark server ends with the controlling process."""
        if self.spark_handle is not None:
            self.spark_handle.close()
            self.spark_handle = None
        shared, self.shared = list(self.shared.values()), {}
        with contextlib.ExitStack() as closing:
            for clusters in shared:
                closing.callback(clusters.close)
        descriptor, self.stderr = self.stderr, None
        if descriptor is not None:
            os.close(descriptor)

    def tidy_out(self) -> None:
        """At the end of the whole run: remove old runs, and a temporary folder into which nothing was written."""
        chosen = self.options(None, {})
        if self.run_folder(chosen).exists():
            out_folder.prune(self.out(chosen), chosen.keep_runs)
        elif self.temporary_out is not None:
            with contextlib.suppress(OSError):
                self.temporary_out.rmdir()


read_marker = declared.read_marker
WORKER = pytest.StashKey[Worker]()
SIMULATION_SOCKET = "HARROW_SIMULATION_SOCKET"
"""Environment variable of a process that runs the seeds of a simulated test: the descriptor of its requests."""


def start_worker(config: pytest.Config) -> Worker:
    """Build the worker of this process from its options and, under xdist, from the controller's input."""
    flags, ini = declared.read_flags(config), declared.read_ini(config)
    received: Mapping[str, Any] = getattr(config, "workerinput", {})
    chosen = received.get("harrow_seed", flags.get("seed", ini.get("seed")))
    worker = Worker(
        seed=fresh_seed() if chosen is None else chosen,
        run=received.get("harrow_run") or out_folder.run_name(),
        name=received.get("workerid", ""),
        flags=flags,
        ini=ini,
        root=config.rootpath,
        controller=received.get("harrow_controller") or os.getpid(),
        temporary_out=_path(received.get("harrow_temporary_out")),
        stderr=_kept_stderr(),
    )
    if not is_worker(config):
        worker.check_out()
    config.stash[WORKER] = worker
    return worker


def _kept_stderr() -> int | None:
    with contextlib.suppress(OSError):
        return os.dup(2)
    return None


def send_to_worker(worker: Worker, workerinput: dict[str, Any]) -> None:
    """Send the controller's seed, run name, process id and temporary out folder to an xdist worker."""
    workerinput["harrow_controller"] = os.getpid()
    workerinput["harrow_seed"] = worker.seed
    workerinput["harrow_run"] = worker.run
    workerinput["harrow_temporary_out"] = str(worker.temporary_out or "")


def is_simulated_test(item: pytest.Item) -> bool:
    """Whether a test has a Harrow fixture of the backend simulated."""
    worker = item.config.stash[WORKER]
    try:
        return any(worker.options(item, arguments).backend == SIMULATED for arguments in factory_arguments(item))
    except pytest.UsageError:
        return False  # the set-up of the test says what is wrong with its options


def is_written_for_simulations(item: pytest.Item) -> bool:
    """Whether a test has a Harrow fixture whose backend is simulated where the command line names no other one."""
    worker = item.config.stash[WORKER]
    try:
        marked = (worker.written_options(item, arguments).backend for arguments in factory_arguments(item))
        return any(backend == SIMULATED for backend in marked)
    except pytest.UsageError:
        return False


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is an xdist worker."""
    return hasattr(config, "workerinput")


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def folder_name(nodeid: str, fixture: str = "harrow", attempt: int = 1) -> str:
    """Return a short, safe and unique folder name for a test, a fixture and an attempt of the test."""
    label = nodeid if fixture == "harrow" else f"{nodeid}@{fixture}"
    plain = re.sub(r"[^A-Za-z0-9_.=-]+", "-", label.rpartition("::")[2]).strip("-.")
    mark = hashlib.sha256(label.encode()).hexdigest()[:6]
    end = f"-{mark}" if attempt == 1 else f"-{mark}-attempt-{attempt}"
    name = plain[: NAME_LENGTH_MAX - len(end)] + end
    assert len(name) <= NAME_LENGTH_MAX, f"the folder {name} has {len(name)} characters: sockets below it are too long"
    return name
