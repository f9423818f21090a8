"""The process that runs the seeds of one simulated test: a pytest of its own, forked for each seed.

`simulated_tests.py` starts it with the fixed hash seed of Python and, where the kernel allows it, without random
addresses, so that a seed gives the same run in each such process. It collects the test once. Then it reads requests
(one JSON object a line) and answers each with the result of one run (`SeedResult`): a fork sets up the fixtures, runs
the test on virtual time, tears down, writes its result into a pipe and ends. Nothing of a run is left for the next.

What may fail: a fork that dies, or takes more than `REAL_MOST_S`, is a result whose outcome is `crashed`.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import confluent_kafka
import pytest
from _pytest.runner import runtestprotocol
from harrow.cluster.host.programs.fence import FENCE
from harrow.cluster.host.programs.process_view import note_imports
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.faults.schedule import Schedule

from ..backends.simulated.process import SimulatedProcess
from ..reached import reached
from .fixtures import REPLAYS, Replays
from .repeating import PROPERTY_FAILURE
from .requested_fixtures import SEED_COMMAND, coroutine_of, runs_of
from .workers import WORKER

RUN = "HARROW_SIMULATION_RUN"
"""Environment variable: the name of the run whose folder the runs of seeds are in."""
REAL_MOST_S = 120.0
PASSED, FAILED, SKIPPED, CRASHED = "passed", "failed", "skipped", "crashed"
RDKAFKA = "rdk:"
"""What the names of librdkafka's threads begin with."""
IDLE = "idle"
"""The verdict is unknown only because faults met no operation: the run proves little, and is no counterexample."""
REPEAT_SECTION = "harrow"
CAPTURED_LOG = "Captured log"
PRINTED = "what services printed, and what was logged, by virtual time:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRequest:
    """One run of the test."""

    seed: int
    out: str
    """The out folder of the run."""
    folder: str
    """Name of the run folder below the folder of the worker."""
    schedules: Mapping[str, Any] | None = None
    """By "fixture/block": the JSON of the schedules of the chaos blocks; None: those of the test."""
    command: str = ""
    """What repeats the run, for its report."""
    faultless: bool = False
    """Whether no fault is injected."""
    windows_ms: list[int] = field(default_factory=list[int])
    """How long the traffic of each block lasted without faults."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes that are smaller than the test says (`run/sizes.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """What one run found."""

    seed: int
    outcome: str
    failure: str = ""
    """The forbidden anomalies, or the class of the exception."""
    text: str = ""
    """The report of the failed phase, or why the test was skipped."""
    line: str = ""
    """The first line of the failure."""
    sections: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    properties: list[tuple[str, object]] = field(default_factory=list[tuple[str, object]])
    schedules: dict[str, Any] = field(default_factory=dict[str, Any])
    blocks_ms: list[int] = field(default_factory=list[int])
    virtual_ms: int = 0
    cpu_s: float = 0.0
    trace_sha256: str = ""
    """Of the trace of a run that failed."""
    faults: int = 0
    """How many faults took effect."""
    reached: dict[str, int] = field(default_factory=dict[str, int])
    """By the label of each `sometimes`: how often its condition was true."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """The sizes that the test asked for (`run/sizes.py`)."""
    least_sizes: dict[str, int] = field(default_factory=dict[str, int])
    """What they may be at least."""
    modules: list[str] = field(default_factory=list[str])
    """What a run without faults imported: the process imports it for all later runs."""


class SimulationServer:
    """The plugin of the process: it serves requests in place of running the test once."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Serve requests until the socket is closed."""
        del nextitem
        stream = self._socket.makefile("rw", encoding="utf-8")
        _prepare(item.config.rootpath, ())
        for line in stream:
            result = _forked(item, SeedRequest(**json.loads(line)))
            if result.modules:
                _prepare(item.config.rootpath, result.modules)
            stream.write(json.dumps(asdict(result), default=str) + "\n")
            stream.flush()
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run the coroutine of an async test on the virtual loop; a plain function is called by pytest."""
        if not inspect.iscoroutinefunction(pyfuncitem.obj) or _process is None:
            return None
        _process.run_test(coroutine_of(pyfuncitem))
        return True

    @pytest.hookimpl(wrapper=True, trylast=True)  # within pytest's own capture
    def pytest_runtest_setup(self) -> Generator[None]:
        """Keep what services print."""
        with _output_kept():
            return (yield)

    pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note a verdict that is unknown only because the faults of this seed met no operation."""
        del item
        if call.when == "call" and call.excinfo is not None and _process is not None:
            _process.idle = _met_nothing(call.excinfo.value)


_process: SimulatedProcess | None = None
"""What the fork runs on."""


@contextlib.contextmanager
def _output_kept() -> Generator[None]:
    if _process is None:
        yield
        return
    with _process.view.output.shown():
        yield


def _prepare(root: Path, modules: Iterable[str]) -> None:
    """Import what each run would import, except modules of the user's project; then keep the memory as it is."""
    for name in modules:
        found = sys.modules.get(name)
        if found is None and not _is_of_project(name, root):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    note_imports()
    gc.collect()
    gc.freeze()


def _is_of_project(name: str, root: Path) -> bool:
    top = name.partition(".")[0]
    if top == "harrow":  # also where the project is Harrow itself
        return False
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return True
    origin = None if spec is None else spec.origin
    if origin is None or origin in ("built-in", "frozen"):
        return spec is None
    path = Path(origin)
    return path.is_relative_to(root) and "site-packages" not in path.parts


def _forked(item: pytest.Item, request: SeedRequest) -> SeedResult:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w", encoding="utf-8") as pipe:
                pipe.write(json.dumps(asdict(run_seed(item, request)), default=str))
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    os.close(writer)
    return _received(pid, reader, request.seed)


def _received(pid: int, reader: int, seed: int) -> SeedResult:
    chunks: list[bytes] = []
    late = False
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while not late:
        if not poll.poll(REAL_MOST_S * 1000):
            late = True
            os.kill(pid, signal.SIGKILL)
        elif chunk := os.read(reader, 1 << 16):
            chunks.append(chunk)
        else:
            break
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if late:
        text = f"the run took more than {REAL_MOST_S:.0f} s of real time, and was ended"
        return SeedResult(seed=seed, outcome=CRASHED, failure="crashed", text=text, line=text)
    try:
        return SeedResult(**json.loads(b"".join(chunks)))
    except ValueError:
        text = f"the process of the run ended with status {status} and gave no result"
        return SeedResult(seed=seed, outcome=CRASHED, failure="crashed", text=text, line=text)


def run_seed(item: pytest.Item, request: SeedRequest) -> SeedResult:
    """Run the test once in this process, on a world of its own."""
    global _process
    gc.disable()
    worker = item.config.stash[WORKER]
    worker.seed = request.seed
    worker.flags = {**worker.flags, "seed": request.seed, "out": Path(request.out)}
    known = set(sys.modules)
    schedules = {_block(key): Schedule.from_json(json.dumps(row)) for key, row in (request.schedules or {}).items()}
    item.stash[SEED_COMMAND] = (request.command, request.schedules is not None)
    item.stash[REPLAYS] = Replays(
        schedules,
        "",
        faultless=request.faultless,
        others_faultless=request.schedules is not None,
        sizes=request.sizes,
    )
    began = os.times()
    _process = process = SimulatedProcess(request.seed)
    process.windows_ms = list(request.windows_ms)
    worker.name, worker.run = request.folder, os.environ.get(RUN, worker.run)
    with process.running(), _without_librdkafka():
        reports = runtestprotocol(item, nextitem=None, log=False)
    ended = os.times()
    return replace(
        _result(item, request.seed, reports, process),
        cpu_s=ended.user - began.user + ended.system - began.system,
        modules=[name for name in sys.modules if name not in known] if request.faultless else [],
    )


def _block(key: str) -> tuple[str, int]:
    fixture, _, number = key.rpartition("/")
    return fixture, int(number)


def _result(item: pytest.Item, seed: int, reports: list[pytest.TestReport], process: SimulatedProcess) -> SeedResult:
    failed = next((report for report in reports if report.failed), None)
    skipped = next((report for report in reports if report.skipped), None)
    shown = failed or skipped or reports[-1]
    outcome = FAILED if failed else SKIPPED if skipped else PASSED
    text = "" if outcome == PASSED else shown.longreprtext
    failure = str(dict(shown.user_properties).get(PROPERTY_FAILURE, "")) if failed else ""
    line = _line(shown) if failed else ""
    if started := _native_threads():
        FENCE.refuse(f"a library in C, which started the threads {started}")
    if FENCE.met and outcome == PASSED:
        outcome, failure, text = FAILED, "FenceError", "\n".join(map(str, FENCE.met))
        line = str(FENCE.met[0])
    if outcome == FAILED and process.idle and sum(report.failed for report in reports) == 1:
        outcome, failure = IDLE, ""
    runs, world = runs_of(item), process.world
    return SeedResult(
        seed=seed,
        outcome=outcome,
        failure=failure or ("error" if outcome == FAILED else ""),
        text=text,
        line=line,
        sections=_sections(shown, process.view.output.text()) if outcome in (FAILED, IDLE) else [],
        properties=list(shown.user_properties),
        schedules={
            f"{run.name}/{number}": json.loads(schedule.to_json())
            for run in runs
            for number, schedule in enumerate(run.schedules)
        },
        blocks_ms=process.blocks_ms,
        sizes={name: size for run in runs for name, size in run.sizes.asked.items()},
        least_sizes={name: size for run in runs for name, size in run.sizes.least.items()},
        reached=reached(),
        virtual_ms=world.loop.elapsed_ns // NS_PER_MS,
        trace_sha256=hashlib.sha256(world.trace.text().encode()).hexdigest() if outcome == FAILED else "",
        faults=sum(step.fired_ms is not None for run in runs for schedule in run.schedules for step in schedule.steps),
    )


def _sections(report: pytest.TestReport, printed: str) -> list[tuple[str, str]]:
    """Return what the report of a failure shows beside it; the log of pytest is in what was printed, with its times."""
    found = [(name, body) for name, body in report.sections if name != REPEAT_SECTION]
    if not printed:
        return found
    return [(PRINTED, printed), *((name, body) for name, body in found if not name.startswith(CAPTURED_LOG))]


@contextlib.contextmanager
def _without_librdkafka() -> Generator[None]:
    """Refuse the clients of confluent-kafka, in every module that has them: no audit event shows their threads."""
    with contextlib.ExitStack() as undo:
        for name in ("Producer", "Consumer"):
            made = getattr(confluent_kafka, name)

            def refuse(*_: object, name: str = name, **__: object) -> NoReturn:
                raise FENCE.refuse(f"confluent_kafka.{name}(…), whose threads are those of a library in C")

            for module in list(sys.modules.values()):
                if getattr(module, "__dict__", {}).get(name) is made:
                    undo.callback(setattr, module, name, made)
                    setattr(module, name, refuse)
        yield


def _native_threads() -> str:
    """Return the names of threads of librdkafka, which no audit event shows; empty without any."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return ", ".join(sorted({name for name in names if name.startswith(RDKAFKA)}))


def _met_nothing(error: BaseException) -> bool:
    from ..checks.fault_windows import are_of_missed_faults
    from ..checks.verdict import Status
    from ..errors import VerdictError

    if not isinstance(error, VerdictError):
        return False
    return error.verdict.status is Status.UNKNOWN and are_of_missed_faults(error.verdict.reasons)


def _line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(getattr(crash, "message", "") or report.longreprtext)
    return message.strip().partition("\n")[0]
