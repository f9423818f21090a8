"""Tests of the backend `simulated`: the same test over many seeds, each a run on virtual time that repeats exactly.

For each such test this process starts one or more pytest processes that have only that test (`simulation_server.py`),
and asks them for one seed after the other. Seed 0 runs first without faults: it must pass, and says how long the
traffic of each chaos block lasts, so that faults can be spread over it. The first seed that fails ends the search: its
schedule is made smaller by further runs, and the report has the failure, the smallest schedule as a test to paste, the
page of that run and the command that repeats the seed.

The test's fixtures are not set up in this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..backends.choice import LOCAL
from ..owned_folders import make_owned
from ..run_folder import SCHEDULE
from ..search.pasted import pasted_seed
from . import options as declared
from .recorded_schedules import recorded, sizes_of
from .repeating import argument_of, configuration_words, given_words, original_nodeid
from .requested_fixtures import SIMULATED_TEST, factory_arguments, harrow_fixtures
from .seed_progress import SeedProgress
from .shrinking_seeds import RUNS_MOST, Rows, SeedShrinker, SmallerFailure
from .simulation_server import CRASHED, FAILED, IDLE, REAL_MOST_S, RUN, SKIPPED, SeedRequest, SeedResult
from .workers import SIMULATION_SOCKET, WORKER, Worker, folder_name

if TYPE_CHECKING:
    from .options import Options

PROPERTY_SIMULATED = "harrow.simulated"
BASELINE_SEED = 0
NO_RANDOM_ADDRESSES = 0x0040000
"""ADDR_NO_RANDOMIZE of personality(2)."""
START_S = 60.0
"""How long a process may take until it begins its first run."""
END_S = 10.0
SPACE = 1 << 30
"""So many bytes must be free in the shared memory for the run folders of seeds."""
ON_PROCESSES = "--harrow-repeat=5"
"""Real processes do not repeat the order of packets."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a folder with a random name is made in it


def simulate(item: pytest.Function) -> None:
    """Replace what pytest would do with a simulated test."""
    item.stash[SIMULATED_TEST] = True
    item.setup = _nothing  # type: ignore[method-assign]  # the fixtures are set up where the seeds run
    item.runtest = lambda: run_seeds(item)  # type: ignore[method-assign]


def _nothing() -> None:
    """Set up nothing."""


def run_seeds(item: pytest.Function) -> None:
    """Run a simulated test over its seeds; fail with the first seed that fails, made smaller."""
    worker = item.config.stash[WORKER]
    chosen = worker.options(item, next(iter(factory_arguments(item)), declared.NOTHING))
    if chosen.scope == "session":
        pytest.fail("a simulated test has a cluster of its own: leave out scope='session'", pytrace=False)
    search = SeedSearch(item, worker, chosen)
    try:
        failed = search.run()
        item.user_properties.append((PROPERTY_SIMULATED, search.line()))
        if failed is not None:
            item.user_properties += search.properties(failed)
            pytest.fail(search.explained(failed), pytrace=False)
        if missing := search.never_reached():
            pytest.fail(missing, pytrace=False)
    finally:
        search.close()


class SeedSearch:
    """The seeds of one test, run by a few processes."""

    def __init__(self, item: pytest.Function, worker: Worker, chosen: Options) -> None:
        self._item = item
        self._worker = worker
        self._chosen = chosen
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jobs = chosen.jobs or (1 if hasattr(item.config, "workerinput") else cores)
        self._jobs = max(1, min(jobs, chosen.seeds))
        self._processes: list[SeedProcess] = []
        self._windows: list[int] = []
        self._results: list[SeedResult] = []
        self._shrinker: SeedShrinker | None = None
        self._smaller: SmallerFailure | None = None
        self._kept: SeedResult | None = None
        """The run of the smallest failure whose folder the user has."""
        self._said = ""
        self._started = 0
        self._progress = SeedProgress(item, worker)
        self._scratch = make_owned("harrow-seeds-", _scratch_root())
        """The out folder of runs whose folder is not kept."""

    # ------------------------------------------------------------------------------------ running

    def run(self) -> SeedResult | None:
        """Run the baseline and the seeds; return the first failure, and shrink it."""
        if self._chosen.schedule:
            return self._replay()
        first = self._process(0)
        baseline = first.ask(self._request(BASELINE_SEED, "without-faults", faultless=True))
        if baseline.outcome == SKIPPED:
            pytest.skip(baseline.text)
        if baseline.outcome in (FAILED, CRASHED):
            self._said = "it fails without any fault"
            return first.ask(self._request(BASELINE_SEED, "without-faults", kept=True, faultless=True))
        self._remove("without-faults")
        self._windows = baseline.blocks_ms
        failed = self._search()
        if failed is None and all(result.outcome == IDLE for result in self._results):
            self._said = "no seed was judged: the faults of each met no operation"
            failed = self._results[0]
            self._keep(failed)
        if failed is not None and failed.outcome == FAILED:
            self._check_replay(failed)
            if failed.schedules and self._shrink_runs:
                self._shrink(failed)
            self._keep(failed)
        return failed

    def _replay(self) -> SeedResult | None:
        """Run one seed with the schedules of `--harrow-schedule`, and the sizes of the run that recorded them."""
        schedules = recorded(self._chosen)
        (fixture,) = harrow_fixtures(self._item)
        rows = {f"{fixture}/{block}": json.loads(schedule.to_json()) for block, schedule in schedules.items()}
        seed, sizes = self._chosen.seed, sizes_of(schedules)
        result = self._process(0).ask(self._request(seed, f"seed-{seed}", kept=True, schedules=rows, sizes=sizes))
        if result.outcome == SKIPPED:
            pytest.skip(result.text)
        self._results.append(result)
        return result if result.outcome in (FAILED, CRASHED) else None

    def _search(self) -> SeedResult | None:
        """Run the seeds in order on all processes; return the failure with the lowest seed among those that ran."""
        seeds = iter(range(self._chosen.seed, self._chosen.seed + self._chosen.seeds))
        busy: dict[SeedProcess, SeedRequest] = {}
        failed: list[SeedResult] = []
        for number in range(self._jobs):
            if (seed := next(seeds, None)) is not None:
                process = self._process(number)
                busy[process] = process.send(self._request(seed, f"seed-{seed}"))
        while busy:
            for process in _readable(busy):
                request = busy.pop(process)
                result = process.receive(request.seed)
                self._results.append(result)
                self._progress.show(f"harrow: {self._search_words()}")
                if result.outcome in (FAILED, CRASHED):
                    failed.append(result)
                self._remove(f"seed-{request.seed}")
                if not failed and (seed := next(seeds, None)) is not None:
                    busy[process] = process.send(self._request(seed, f"seed-{seed}"))
        failed.sort(key=lambda result: result.seed)
        return failed[0] if failed else None

    def _process(self, number: int) -> SeedProcess:
        while len(self._processes) <= number:
            self._processes.append(self._new_process())
        return self._processes[number]

    def _new_process(self) -> SeedProcess:
        self._started += 1
        return SeedProcess(self._item, self._worker, self._scratch / f"process-{self._started}.log")

    def _request(
        self, seed: int, name: str, *, kept: bool = False, schedules: Rows | None = None, **fields: Any
    ) -> SeedRequest:
        """`kept`: whether the run folder is to stay. Each run itself notes in its schedules what it ran on."""
        if schedules is not None:
            fields["schedules"] = {key: {**row, "run": {}} for key, row in schedules.items()}
        out = self._worker.out(self._chosen) if kept or self._chosen.keep else self._scratch
        fields |= {"command": self._repeat(seed), "windows_ms": self._windows}
        return SeedRequest(seed=seed, out=str(out), folder=f"{self._base}/{name}", **fields)

    @property
    def _base(self) -> str:
        return str(Path(self._worker.name) / f"simulated-{folder_name(self._item.nodeid)}")

    def _remove(self, name: str) -> None:
        shutil.rmtree(self._scratch / self._worker.run / self._base / name, ignore_errors=True)

    # ------------------------------------------------------------------------------------ smaller

    def _check_replay(self, failed: SeedResult) -> None:
        """Run the failed seed again in another process: the same run, or the report says that it is none."""
        process = self._new_process()
        try:
            again = process.ask(self._request(failed.seed, "again"))
        finally:
            process.close()
            self._remove("again")
        if again.trace_sha256 != failed.trace_sha256:
            self._said = (
                "the seed gave another run in another process, so something in the test depends on more than the seed "
                "(docs/simulate-your-service.md says what may)"
            )

    @property
    def _shrink_runs(self) -> int:
        """How many runs a shrink may use."""
        given = "shrink" in self._worker.flags or "shrink" in self._worker.ini
        return self._chosen.shrink if given else RUNS_MOST

    def _shrink(self, failed: SeedResult) -> None:
        self._shrinker = SeedShrinker(failed, self._run_smaller, self._windows, self._shrink_runs)
        self._smaller = self._shrinker.shrink()

    def _run_smaller(
        self, seed: int, rows: Rows, sizes: Mapping[str, int], windows_ms: list[int], *, faultless: bool = False
    ) -> SeedResult:
        name = f"smaller-{len(self._results)}"
        request = self._request(seed, name, faultless=faultless, sizes=sizes, schedules=None if faultless else rows)
        result = self._process(0).ask(replace(request, windows_ms=windows_ms))
        self._results.append(result)
        if self._shrinker is not None:
            self._progress.show(f"harrow: {self._shrinker.best_words()}, {self._rate_words()}")
        self._remove(name)
        return result

    def _keep(self, failed: SeedResult) -> None:
        """Run the smallest failure once more, in the out folder of the user."""
        smallest, sizes, rows = self._smallest_of(failed), dict[str, int](), None
        if self._smaller is not None:
            rows, sizes = self._smaller.rows, self._smaller.sizes
        request = self._request(smallest.seed, f"seed-{smallest.seed}", kept=True, schedules=rows, sizes=sizes)
        again = self._process(0).ask(request)
        if again.outcome == smallest.outcome:
            self._kept = again

    def _smallest_of(self, failed: SeedResult) -> SeedResult:
        return self._kept or (failed if self._smaller is None else self._smaller.result)

    # -------------------------------------------------------------------------------------- words

    def _search_words(self) -> str:
        """Say how far the search is."""
        idle = sum(result.outcome == IDLE for result in self._results)
        words = f"{len(self._results)} of {self._chosen.seeds} seeds"
        return ", ".join([words, *([f"{idle} not judged"] if idle else []), self._rate_words()])

    def _rate_words(self) -> str:
        return f"{len(self._results) / self._progress.elapsed_s:.1f} runs a second"

    def line(self) -> str:
        """Say how many seeds ran, and how fast."""
        cpu_s = sum(result.cpu_s for result in self._results) or 1e-9
        virtual_s = sum(result.virtual_ms for result in self._results) / 1000
        wrong = sum(result.outcome in (FAILED, CRASHED) for result in self._results)
        idle = sum(result.outcome == IDLE for result in self._results)
        not_judged = f"{idle} not judged because faults met no operation, " if idle else ""
        faults = sum(result.faults for result in self._results)
        return (
            f"{len(self._results)} runs, {wrong} failed, {not_judged}{faults} faults, "
            f"{virtual_s:,.0f} s of virtual time, {len(self._results) / cpu_s:.1f} runs a second of a core"
            + "".join(f"; {label!r} in {count} runs" for label, count in self._reached().items())
        )

    def _reached(self) -> dict[str, int]:
        """In how many runs each label was reached."""
        labels = dict.fromkeys((label for result in self._results for label in result.reached), 0)
        for result in self._results:
            for label, count in result.reached.items():
                labels[label] += count > 0
        return labels

    def never_reached(self) -> str:
        """Say which labels of `reaches=` no run reached; empty where there is none."""
        reached = self._reached()
        missing = [label for label in self._chosen.reaches if not reached.get(label)]
        if not missing:
            return ""
        named = "; ".join(f"{label!r}{'' if label in reached else ' (no sometimes() has it)'}" for label in missing)
        return (
            f"{len(self._results)} runs never reached: {named}. Give the test more seeds, other faults or more "
            "traffic, or take the label out of reaches="
        )

    def properties(self, failed: SeedResult) -> list[tuple[str, object]]:
        """Return what the reports of pytest show of the failure: the verdict, its page."""
        smallest = self._smallest_of(failed)
        return [(name, value) for name, value in smallest.properties if name.startswith("harrow.")]

    def explained(self, failed: SeedResult) -> str:
        """Return the report of the test."""
        smallest = self._smallest_of(failed)
        parts = [f"seed {failed.seed}: {failed.line or failed.text}"]
        if self._said:
            parts.append(f"harrow: {self._said}")
        if self._smaller is not None:
            parts += self._shrunk_words(self._smaller, failed)
        parts.append(smallest.text)
        parts += [f"{name}\n{body}" for name, body in smallest.sections]
        page = dict(smallest.properties).get("harrow.page")
        if page:
            parts.append(f"the page of this run: {page}")
        parts.append(f"repeat with: {self._repeat(failed.seed)}")
        if self._kept is not None and (found := self._schedules_of(self._kept)):
            schedule = f"--harrow-schedule={found}"
            if self._smaller is not None:
                parts.append(f"repeat the smallest run with: {self._repeat(self._kept.seed, schedule)}")
            again = self._command(f"--harrow-backend={LOCAL}", schedule, ON_PROCESSES)
            parts.append(f"the same faults on real processes: {again}")
        return "\n\n".join(part.rstrip() for part in parts if part)

    def _shrunk_words(self, smaller: SmallerFailure, failed: SeedResult) -> Iterator[str]:
        """Yield what the shrink found: the schedule of each block as a test to paste."""
        found = f"{failed.failure}; {smaller.summary()}"
        yield found
        name = (self._item.originalname or self._item.name).removeprefix("test_")
        for key in smaller.shrunk:
            schedule = smaller.schedule(key)
            if schedule.steps:
                yield pasted_seed(name, smaller.result.seed, schedule, found, smaller.sizes)
            else:
                yield f"{key}: {failed.failure} needs no fault of this block"

    def _repeat(self, seed: int, *more: str) -> str:
        return self._command(f"--harrow-seed={seed}", "--harrow-seeds=1", *more, *_given_words(self._item.config))

    def _command(self, *options: str) -> str:
        return shlex.join(["pytest", argument_of(self._item.config, original_nodeid(self._item)), *options])

    def _schedules_of(self, kept: SeedResult) -> str:
        """Return the file, or the folder of the files, with the schedules of a run that was kept; empty without any."""
        run = self._worker.run_folder(self._chosen) / self._base / f"seed-{kept.seed}"
        files = sorted(run.glob(f"*/{SCHEDULE.partition('.')[0]}*.json"))
        if not files:
            return ""
        found = files[0] if len(files) == 1 else files[0].parent
        return os.path.relpath(found, self._item.config.invocation_params.dir)

    def close(self) -> None:
        """End the processes."""
        self._progress.end()
        for process in self._processes:
            process.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _scratch_root() -> Path:
    """Return a folder in memory, if there is one with enough space: that of a container often has 64 MB."""
    if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free >= SPACE:
        return Path(SHARED_MEMORY)
    return Path(tempfile.gettempdir())


def _readable(processes: Iterable[SeedProcess]) -> list[SeedProcess]:
    """Wait until one of them has answered; return those that have."""
    by_descriptor = {process.fileno(): process for process in processes}
    poll = select.poll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    ready = [by_descriptor[descriptor] for descriptor, _ in poll.poll((REAL_MOST_S + START_S) * 1000)]
    if not ready:
        pytest.fail(f"no process of the seeds answered within {REAL_MOST_S + START_S:.0f} s", pytrace=False)
    return ready


def _given_words(config: pytest.Config) -> Iterator[str]:
    """Yield the options of the command line that the processes of the seeds need too."""
    yield from given_words(config, ("brokers", "backend", "defaults", "as_version", "out"))
    yield from configuration_words(config)


class SeedProcess:
    """A pytest process that runs seeds of one test; it ends when this object is closed, or this process ends."""

    def __init__(self, item: pytest.Function, worker: Worker, output: Path) -> None:
        """`output`: the file for what the process prints."""
        self._output = output
        self._own, other = socket.socketpair()
        config = item.config
        plugins = getattr(config.option, "plugins", None) or ()
        command = [
            sys.executable,
            "-m",
            "pytest",
            argument_of(config, original_nodeid(item)),
            f"--rootdir={config.rootpath}",
            "--import-mode",
            str(getattr(config.option, "importmode", None) or "prepend"),
            "-q",
            "-o",
            f"harrow_seed={worker.seed}",
            *(word for name in plugins for word in ("-p", name)),
            *(["-n", "0"] if config.pluginmanager.hasplugin("xdist") else []),
            *(["--no-cov"] if config.pluginmanager.hasplugin("_cov") else []),
            *(["--timeout=0"] if config.pluginmanager.hasplugin("timeout") else []),
            *(word for word in _given_words(config) if not word.startswith("--rootdir=")),
        ]
        environment = {
            **os.environ,
            SIMULATION_SOCKET: str(other.fileno()),
            "PYTHONHASHSEED": "0",
            "AIOKAFKA_NO_EXTENSIONS": "1",  # its extension takes the time from C
            "POLARS_MAX_THREADS": "1",  # a run is small, and each fork would start its threads
            RUN: worker.run,
        }
        with other, self._output.open("wb") as printed:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and words of this run
                command,
                cwd=config.invocation_params.dir,
                env=environment,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                preexec_fn=_fix_addresses,  # noqa: PLW1509 - before exec, without threads of its own
            )
        self._stream = self._own.makefile("rw", encoding="utf-8")

    def fileno(self) -> int:
        """For select."""
        return self._own.fileno()

    def ask(self, request: SeedRequest) -> SeedResult:
        """Run one seed."""
        self.send(request)
        return self.receive(request.seed)

    def send(self, request: SeedRequest) -> SeedRequest:
        """Begin to run one seed."""
        try:
            self._stream.write(json.dumps(asdict(request)) + "\n")
            self._stream.flush()
        except OSError:
            self._died()
        return request

    def receive(self, seed: int) -> SeedResult:
        """Return the result of the seed that was sent last."""
        _readable([self])
        try:
            line = self._stream.readline()
        except OSError:
            line = ""
        if not line:
            self._died()
        result = SeedResult(**json.loads(line))
        assert result.seed == seed, f"seed {seed} was asked for, and seed {result.seed} ran"
        return replace(result, properties=[(str(name), value) for name, value in result.properties])

    def _died(self) -> None:
        self._process.kill()
        self._process.wait(END_S)
        said = self._output.read_text(encoding="utf-8", errors="replace")
        pytest.fail(f"the process that runs the seeds of this test has ended:\n{said}", pytrace=False)

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):  # a request that a process which has ended did not read
            self._stream.close()
        self._own.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_S)


def _fix_addresses() -> None:
    """Let the process have the same addresses each time, where the kernel allows it (Linux)."""
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is not None:
        personality(NO_RANDOM_ADDRESSES)
