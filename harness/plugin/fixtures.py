"""The fixtures `harrow` and `harrow_session`, and factories for more fixtures with names of the user's choice.

```python
from harrow import harrow_fixture

small = harrow_fixture(brokers=1)               # conftest.py: a fixture `small` with its own cluster
```

A fixture starts nothing until its test uses the cluster. The teardown stops the cluster, fails the test when a
broker's trace holds a failed task (a bug in Harrow), and removes the data of a passed test.

`harrow` has a cluster and a verdict for each test. `harrow_session` has one cluster for all tests of a worker, and
fixtures of the user with a wider scope can use it: a service that is started once.

```python
from harrow import Harrow, kill, leader

@pytest.fixture(scope="session")
def shop(harrow_session: Harrow):
    harrow_session.topic("orders", partitions=3)
    with start_shop(harrow_session.bootstrap_servers) as shop:
        yield shop

def test_orders_survive_a_kill(harrow_session: Harrow, shop):
    with harrow_session.chaos(kill(leader("orders"))):
        shop.place_orders()
    harrow_session.verify("orders", guarantee="no-loss")     # judges everything since the topic was created
```
"""

from __future__ import annotations

import enum
import functools
import os
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ..backends.choice import SIMULATED
from ..engines import INLINE
from . import options
from .attempts import attempt_of, begin_attempt
from .requested_fixtures import ARGUMENTS, RUNS, SEED_COMMAND, SIMULATED_TEST, harrow_fixtures, runs_of, uses_harrow
from .workers import WORKER, folder_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harrow.faults import Schedule

    from ..backends.clusters import ClusterSource
    from ..checks import Verdict
    from ..run.harrow import Harrow
    from ..run.harrow_run import HarrowRun
    from ..security.choice import Security
    from .examples import HarrowExamples
    from .options import Options
    from .workers import Worker


class TestState(enum.Enum):
    """The state of a test that uses a Harrow fixture."""

    __test__ = False

    STARTED = "started"
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Replays:
    """What the chaos blocks of a test run instead of their own schedules, while its failure is shrunk."""

    schedules: Mapping[tuple[str, int], Schedule]
    """By the name of the fixture and the number of the block in the test, from 0."""
    folder: str
    """Added to the names of the run folders, so that those of the failed test stay."""
    faultless: bool = False
    """Whether no chaos block injects a fault."""
    others_faultless: bool = False
    """Whether no chaos block injects a fault that has no schedule here."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes that are smaller than the test says (`run/sizes.py`)."""

    def of_fixture(self, name: str) -> dict[int, Schedule]:
        """Return those of one fixture, by number."""
        return {block: schedule for (fixture, block), schedule in self.schedules.items() if fixture == name}


USED = pytest.StashKey[TestState]()
REPLAYS = pytest.StashKey["Replays"]()
MISMATCH = "ScopeMismatch"
"""What pytest's message begins with."""
NO_REPLAYS = Replays({}, "")


def harrow_fixture(
    *,
    brokers: int | None = None,
    config: Mapping[str, object] | None = None,
    defaults: str | None = None,
    as_version: str | None = None,
    scope: str | None = None,
    seed: int | None = None,
    plant: str | Sequence[str] | None = None,
    backend: str | None = None,
    kafka: str | None = None,
    image: str | None = None,
    bootstrap: str | None = None,
    security: str | Security | None = None,
) -> Any:
    """Make a fixture that yields a `Harrow` for each test. The variable that you assign it to is the fixture's name.

    The arguments are those of the marker `harrow` and override it; options of the command line override both. None: the
    marker, the ini file or the default decides.

    * `brokers`: how many the cluster has (1 to 64; default 3).
    * `config`: broker settings by Kafka's names, such as `{"min.insync.replicas": 2}`. Settings of the ini file and of
      the marker stay, except those that are named here.
    * `defaults`: `"kafka"`: all other broker settings have Apache Kafka's own defaults (docs/settings.md), instead of
      Harrow's.
    * `as_version`: `"3.9"`, `"4.0"`, `"4.2"` or `"4.4"`: clients see the requests, versions and features of that
      release of Apache Kafka (docs/compatibility.md).
    * `scope`: `"test"`: a new cluster for each test. `"session"`: the tests of one worker that request the same
      brokers, config and plants share a cluster; topics then get unique names, so use `topic.name`.
    * `seed`: all random values of the tests derive from it, instead of the seed of the run.
    * `plant`: the dotted name of a module with a planted bug, or several (docs/zoo.md).
    * `backend`: where the brokers run, `"local"`, `"apache"`, `"docker"` or `"external"` (docs/backends.md).
    * `kafka`: the folder of the Apache Kafka of the backend `apache`.
    * `image`: the image of the backend `docker`.
    * `bootstrap`: the address of the cluster of the backend `external`.
    * `security`: how clients reach the brokers: `"ssl"`, `"mtls"`, `"sasl_plaintext"`, `"sasl_ssl"`,
      `"sasl_ssl:PLAIN"`, or a `Security` with users, ACLs and more (docs/security.md).

    An unknown argument or an invalid value is a `pytest.UsageError` that names the valid ones.
    """
    given = {
        "brokers": brokers,
        "config": config,
        "defaults": defaults,
        "as_version": as_version,
        "scope": scope,
        "seed": seed,
        "plant": plant,
        "backend": backend,
        "kafka": kafka,
        "image": image,
        "bootstrap": bootstrap,
        "security": security,
    }
    arguments = options.check_arguments(given, "harrow_fixture")

    def harrow(request: pytest.FixtureRequest) -> Iterator[Harrow]:
        """A Kafka cluster with faults and verdicts (`harrow.Harrow`). The cluster starts at the first use."""
        yield from _serve_test(request, arguments)

    setattr(harrow, ARGUMENTS, arguments)
    return pytest.fixture(harrow)


def harrow_session_fixture(
    *,
    brokers: int | None = None,
    config: Mapping[str, object] | None = None,
    defaults: str | None = None,
    as_version: str | None = None,
    seed: int | None = None,
    plant: str | Sequence[str] | None = None,
    backend: str | None = None,
    kafka: str | None = None,
    image: str | None = None,
    bootstrap: str | None = None,
    security: str | Security | None = None,
) -> Any:
    """Make a session-scoped fixture: one `Harrow`, with one cluster, for all tests of a worker.

    The arguments are those of `harrow_fixture`; a marker has no effect, because the cluster belongs to no test. Each
    xdist worker has a cluster of its own. Several tests may call `topic` with the same arguments and get the same
    topic. A verdict judges the topic since its creation, so an anomaly that one test found is found by later tests
    too; give a test a topic of its own where that matters.
    """
    given = {
        "brokers": brokers,
        "config": config,
        "defaults": defaults,
        "as_version": as_version,
        "seed": seed,
        "plant": plant,
        "backend": backend,
        "kafka": kafka,
        "image": image,
        "bootstrap": bootstrap,
        "security": security,
    }
    arguments = options.check_arguments(given, "harrow_session_fixture")

    def harrow_session(request: pytest.FixtureRequest) -> Iterator[Harrow]:
        """One cluster for all tests of a worker (`harrow.Harrow`), for session fixtures such as a service."""
        yield from _serve_session(request, arguments)

    setattr(harrow_session, ARGUMENTS, arguments)
    return pytest.fixture(scope="session")(harrow_session)


def _make_examples_fixture() -> Any:
    def harrow_examples(request: pytest.FixtureRequest) -> Iterator[HarrowExamples]:
        """A cluster and a verdict for each example of a property-based test (`harrow.HarrowExamples`)."""
        yield _examples(request.config.stash[WORKER], str(request.fixturename))

    setattr(harrow_examples, ARGUMENTS, options.NOTHING)
    return pytest.fixture(scope="session")(harrow_examples)


harrow = harrow_fixture()
harrow_session = harrow_session_fixture()
harrow_examples = _make_examples_fixture()


def wants_verdict(item: pytest.Item) -> bool:
    """Whether a test uses a Harrow fixture and its file calls `verify`. Other tests start Spark when they need it."""
    return uses_harrow(item) and _calls_verify(item.path)


@functools.cache
def _calls_verify(path: Path) -> bool:
    try:
        return b".verify(" in path.read_bytes()
    except OSError:
        return True


def explain_scope(item: pytest.Item, error: BaseException) -> None:
    """Add the remedy to pytest's ScopeMismatch of a wider fixture that uses a Harrow fixture for one test."""
    if not isinstance(error, pytest.fail.Exception) or not str(error.msg).startswith(MISMATCH):
        return
    names = [name for name in harrow_fixtures(item) if f"fixture {name} " in str(error.msg)]
    for name in names:
        wider = "harrow_session" if name == "harrow" else f"one of harrow_session_fixture(…) instead of {name}"
        error.msg = (
            f"{error.msg}\n\nharrow: the fixture {name} has a cluster for one test. A fixture with a wider scope uses "
            f"{wider}: one cluster for all tests of a worker; or give your fixture the scope of a function"
        )


# ------------------------------------------------------------------------------- a cluster for a test


def _serve_test(request: pytest.FixtureRequest, arguments: Mapping[str, Any]) -> Iterator[Harrow]:
    from ..run.harrow import run_of
    from .repeating import original_nodeid

    item: pytest.Item = cast("Any", request).node  # it has no annotation before pytest 9.2
    worker = request.config.stash[WORKER]
    chosen = _options(worker, item, arguments)
    name = str(request.fixturename)
    replays = item.stash.get(REPLAYS, NO_REPLAYS)
    if chosen.schedule and replays is NO_REPLAYS:
        replays = _recorded(chosen, name)
    harrow = _new_harrow(
        worker,
        chosen,
        name,
        folder=folder_name(item.nodeid, name, attempt_of(item)) + replays.folder,
        seed_names=(original_nodeid(item), name),
        clusters=_source(worker, chosen),
    )
    run = run_of(harrow)
    run.replays = replays.of_fixture(name)
    run.faultless, run.others_faultless = replays.faultless, replays.others_faultless
    run.shrink_sizes(replays.sizes)
    if chosen.backend == SIMULATED and not chosen.keep:
        run.draw_invalid_only()
    run.made.on_verdict(lambda verdict: _record(worker, run, verdict))
    _begin(item, run)
    try:
        yield harrow
    finally:
        if item.stash[USED] is TestState.FAILED:
            run.take_unused()  # the test failed for another reason
        failures = run.close()
        if item.stash[USED] is TestState.PASSED and not failures and not chosen.keep:
            run.remove_data()
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


def _recorded(chosen: Options, fixture: str) -> Replays:
    """Return what `--harrow-schedule` lets the chaos blocks of a test run."""
    from .recorded_schedules import by_roles, cluster_sizes, recorded, sizes_of

    schedules = recorded(chosen)
    rows = {(fixture, block): by_roles(schedule) for block, schedule in schedules.items()}
    return Replays(rows, "", others_faultless=True, sizes=cluster_sizes(sizes_of(schedules)))


def _source(worker: Worker, chosen: Options) -> ClusterSource:
    """Return where the test's cluster comes from; a backend that cannot be used here skips the test."""
    from harrow.faults.errors import CapabilityError

    shared = chosen.scope == "session"
    try:
        return worker.shared_clusters(chosen) if shared else worker.own_clusters(chosen)
    except CapabilityError as error:
        pytest.skip(str(error))


def _options(worker: Worker, item: pytest.Item | None, arguments: Mapping[str, Any]) -> Options:
    try:
        return worker.options(item, arguments)
    except pytest.UsageError as error:
        pytest.fail(str(error), pytrace=False)


def _new_harrow(
    worker: Worker, chosen: Options, name: str, *, folder: str, seed_names: Sequence[str], clusters: Any
) -> Harrow:
    from ..run.harrow import Harrow
    from ..terminal_notes import show_on

    show_on(lambda: worker.stderr, lambda: worker.item.nodeid if worker.item is not None else name)
    return Harrow(
        worker.folder(chosen) / folder,
        seed=chosen.seed,
        seed_names=seed_names,
        brokers=chosen.brokers,
        config=chosen.cluster_config,
        plants=chosen.plant,
        spark=lambda: worker.spark(chosen),
        name=name,
        engine=INLINE if chosen.backend == SIMULATED else chosen.engine,
        early_spark=False,  # the plugin starts Spark at collection when the test calls verify
        clusters=clusters,
        security=chosen.security,
    )


def unused_in(item: pytest.Item) -> list[str]:
    """Return what a test made and did not use, so that it met no fault; each once."""
    found = [text for run in runs_of(item) for text in run.take_unused()]
    if SIMULATED_TEST in item.stash:
        return found
    own_marker = any(mark.name == "harrow" and mark.kwargs for mark in item.own_markers)
    sessions = item.config.stash[WORKER].session_runs.values()
    if own_marker and not any(run not in sessions for run in runs_of(item)):
        found.append(
            "the marker @pytest.mark.harrow has no effect: this test uses no Harrow fixture with a cluster of its own; "
            "add the argument harrow, or take the marker away"
        )
    return found


def _begin(item: pytest.Item, run: HarrowRun) -> None:
    """Connect a run with the test that uses it now."""
    from .repeating import repeat_line

    item.stash.setdefault(USED, TestState.STARTED)
    item.stash.setdefault(RUNS, []).append(run)
    command, recorded = item.stash.get(SEED_COMMAND, ("", False))
    if recorded:
        command += f" --harrow-schedule={shlex.quote(os.path.relpath(run.folder, item.config.invocation_params.dir))}"
    run.repeat = command or repeat_line(item)


def _record(worker: Worker, run: HarrowRun, verdict: Verdict) -> None:
    """Store a verdict in the user properties: JUnit, the terminal summary and xdist's controller read them."""
    item = worker.item
    if item is None:
        return
    number = sum(name.startswith("harrow.verdict") for name, _ in item.user_properties) + 1
    item.user_properties += _properties_of(run, verdict, number)


def _properties_of(run: HarrowRun, verdict: Verdict, number: int) -> list[tuple[str, object]]:
    """Return the user properties of the test's verdict with this number, from 1 up."""
    from .. import run_folder

    suffix = "" if number == 1 else f"-{number}"
    return [
        (f"harrow.verdict{suffix}", run.made.line(verdict)),
        (f"harrow.seed{suffix}", str(run.seed)),
        (f"harrow.folder{suffix}", str(run.folder)),
        (f"harrow.page{suffix}", str(run_folder.page_of(run.made.file_of(verdict)))),
        *((f"harrow.planted{suffix}", bug) for bug in verdict.planted),
    ]


# ------------------------------------------------------------------------ a cluster for an example of a test


def _examples(worker: Worker, name: str) -> HarrowExamples:
    from ..run.harrow import run_of
    from .examples import HarrowExamples
    from .repeating import original_nodeid

    def begin(item: pytest.Item, number: int) -> Harrow:
        chosen = _options(worker, item, options.NOTHING)
        folder = f"{folder_name(item.nodeid, name, attempt_of(item))}-{number}"
        harrow = _new_harrow(
            worker,
            chosen,
            name,
            folder=folder,
            seed_names=(original_nodeid(item), name),
            clusters=_source(worker, replace(chosen, scope="test")),
        )
        item.stash[RUNS] = [row for row in runs_of(item) if row.name != name]  # the last example
        _begin(item, run_of(harrow))
        return harrow

    return HarrowExamples(
        lambda: worker.item, begin, _properties_of, lambda item: _options(worker, item, options.NOTHING).keep
    )


# --------------------------------------------------------------------- a cluster for all tests of a worker


def _serve_session(request: pytest.FixtureRequest, arguments: Mapping[str, Any]) -> Iterator[Harrow]:
    from ..run.harrow import run_of

    worker = request.config.stash[WORKER]
    name = str(request.fixturename)
    chosen = _options(worker, None, arguments)
    harrow = _new_harrow(
        worker, chosen, name, folder=name, seed_names=(name,), clusters=_source(worker, replace(chosen, scope="test"))
    )
    run = run_of(harrow)
    run.made.on_verdict(lambda verdict: _record(worker, run, verdict))
    worker.session_runs[name] = run
    try:
        yield harrow
    finally:
        del worker.session_runs[name]
        failures = run.close()
        if not failures and not chosen.keep and run.folder not in worker.failed_folders:
            run.remove_data()
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


def begin_test_run(item: pytest.Item) -> None:
    """Begin an attempt of a test: what an earlier attempt left on the item is not this one's.

    The further runs of `--harrow-shrink` belong to the attempt that failed.
    """
    if REPLAYS not in item.stash:
        begin_attempt(item, item.config.stash[WORKER].attempts)
        item.stash[RUNS] = []
        if USED in item.stash:
            del item.stash[USED]
    begin_test(item)


def begin_test(item: pytest.Item) -> None:
    """Connect the session runs that a test uses with it: their random values then derive from its node id.

    Called before the fixtures of the test are set up, for the session runs that exist, and again before the test's
    function is called, for those that its fixtures created.
    """
    worker = item.config.stash[WORKER]
    worker.item = item
    if not worker.session_runs:
        return
    from .repeating import original_nodeid

    requested: set[str] = set(getattr(item, "fixturenames", ()))
    for name, run in worker.session_runs.items():
        if name in requested and run not in runs_of(item):
            run.begin_test(original_nodeid(item), name)
            _begin(item, run)
