"""The fixture `harrow`, and a factory for more fixtures with names of the user's choice.

```python
from harrow import harrow_fixture

small = harrow_fixture(brokers=1)               # conftest.py: a fixture `small` with its own cluster
```

A fixture starts nothing until its test uses the cluster. The teardown stops the cluster, fails the test when a
broker's trace holds a failed task (a bug in Harrow), and removes the data of a passed test.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any

import pytest

from . import options
from .seeds import child_seed
from .workers import WORKER, folder_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from .run import Harrow


class TestState(enum.Enum):
    """The state of a test that uses a Harrow fixture."""

    __test__ = False

    STARTED = "started"
    PASSED = "passed"
    FAILED = "failed"


USED = pytest.StashKey[TestState]()
RUNS = pytest.StashKey[list["Harrow"]]()


def harrow_fixture(
    *,
    brokers: int | None = None,
    config: Mapping[str, object] | None = None,
    scope: str | None = None,
    seed: int | None = None,
    plant: str | Sequence[str] | None = None,
) -> Any:
    """Make a fixture that yields a `Harrow`. The variable that you assign it to is the fixture's name.

    The arguments are those of the marker. With `scope="session"` the tests of one worker that request the same
    brokers, config and plants share a cluster; topics then get unique names, so use `topic.name`.
    """
    given = {"brokers": brokers, "config": config, "scope": scope, "seed": seed, "plant": plant}
    arguments = options.check_arguments(given, "harrow_fixture")

    @pytest.fixture
    def harrow(request: pytest.FixtureRequest) -> Iterator[Harrow]:
        """A Kafka cluster with faults and verdicts (`harrow.Harrow`). The cluster starts at the first use."""
        yield from _serve(request, arguments)

    return harrow


harrow = harrow_fixture()


def wants_verdict(item: pytest.Item) -> bool:
    """Whether a test uses a Harrow fixture and its file calls `verify`. Other tests start Spark when they need it."""
    return uses_harrow(item) and _calls_verify(item.path)


@functools.cache
def _calls_verify(path: Path) -> bool:
    try:
        return b".verify(" in path.read_bytes()
    except OSError:
        return True


def uses_harrow(item: pytest.Item) -> bool:
    """Whether a test requests a fixture of this module."""
    info: Any = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info is not None else ()
    functions = (
        getattr(definition.func, "__wrapped__", definition.func)
        for overrides in definitions
        for definition in overrides
    )
    return any(getattr(function, "__module__", "") == __name__ for function in functions)


def _serve(request: pytest.FixtureRequest, arguments: Mapping[str, Any]) -> Iterator[Harrow]:
    from .run import Harrow

    item: Any = request.node
    worker = request.config.stash[WORKER]
    try:
        chosen = worker.options(item, arguments)
    except pytest.UsageError as error:
        pytest.fail(str(error), pytrace=False)
    name = str(request.fixturename)
    item.stash.setdefault(USED, TestState.STARTED)
    runs = item.stash.setdefault(RUNS, [])
    run = Harrow(
        worker.folder(chosen) / folder_name(item.nodeid, name),
        seed=child_seed(chosen.seed, item.nodeid, name),
        brokers=chosen.brokers,
        config=chosen.config,
        plants=chosen.plant,
        spark=lambda: worker.spark(chosen),
        name=name,
        repeat=_repeat_line(item),
        early_spark=False,  # the plugin starts Spark at collection when the test calls verify
        clusters=worker.shared_clusters() if chosen.scope == "session" else None,
    )
    run.on_verdict(lambda verdict: _record(item, run, verdict))
    runs.append(run)
    try:
        yield run
    finally:
        failures = run.close()
        if item.stash[USED] is TestState.PASSED and not failures and not chosen.keep:
            run.remove_data()
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


def _repeat_line(item: pytest.Item) -> str:
    from .plugin import repeat_line

    return repeat_line(item)


def _record(item: pytest.Item, run: Harrow, verdict: Any) -> None:
    """Store a verdict in the user properties: JUnit, the terminal summary and xdist's controller read them."""
    number = sum(name.startswith("harrow.verdict") for name, _ in item.user_properties) + 1
    suffix = "" if number == 1 else f"-{number}"
    item.user_properties += [
        (f"harrow.verdict{suffix}", run.verdict_line(verdict)),
        (f"harrow.seed{suffix}", str(run.seed)),
        (f"harrow.folder{suffix}", str(run.folder)),
    ]
    item.user_properties += [(f"harrow.planted{suffix}", bug) for bug in verdict.planted]
