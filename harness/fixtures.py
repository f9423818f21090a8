"""The fixture `harrow`, and the factory that makes more under the user's own names.

```python
from harrow import harrow_fixture

small = harrow_fixture(brokers=1)               # conftest.py: a fixture `small`, a cluster of its own
```

A fixture costs nothing until its test touches the cluster. Teardown stops the cluster, fails the test
when a broker traced a failed task (a bug of ours), and removes a passed test's data.
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


class Outcome(enum.Enum):
    """How far a test that uses Harrow got."""

    STARTED = "started"
    PASSED = "passed"
    FAILED = "failed"


USED = pytest.StashKey[Outcome]()
RUNS = pytest.StashKey[list["Harrow"]]()


def harrow_fixture(
    *,
    brokers: int | None = None,
    config: Mapping[str, object] | None = None,
    scope: str | None = None,
    seed: int | None = None,
    plant: str | Sequence[str] | None = None,
) -> Any:
    """Make a fixture that yields a `Harrow`; assign it to the name it shall have.

    Arguments as the marker's. `scope="session"` shares the cluster among the tests of a worker that ask
    for the same brokers and config; topics then get unique names, so use `topic.name`.
    """
    given = {"brokers": brokers, "config": config, "scope": scope, "seed": seed, "plant": plant}
    arguments = options.check_arguments(given, "harrow_fixture")

    @pytest.fixture
    def harrow(request: pytest.FixtureRequest) -> Iterator[Harrow]:
        """A cluster to break and to judge (`harrow.Harrow`): topics, chaos, verdicts; starts when touched."""
        yield from _serve(request, arguments)

    return harrow


harrow = harrow_fixture()


def wants_verdict(item: pytest.Item) -> bool:
    """Whether a test uses a fixture made here and its file calls `verify`; others start Spark when they get to it."""
    return uses_harrow(item) and _speaks_of_verify(item.path)


@functools.cache
def _speaks_of_verify(path: Path) -> bool:
    try:
        return b".verify(" in path.read_bytes()
    except OSError:
        return True


def uses_harrow(item: pytest.Item) -> bool:
    """Whether a test asks for a fixture that this module made."""
    info: Any = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info is not None else ()
    functions = (getattr(one.func, "__wrapped__", one.func) for all_ in definitions for one in all_)
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
    item.stash.setdefault(USED, Outcome.STARTED)
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
        early_spark=False,  # the plugin asks for it at collection, where a test speaks of verdicts
        clusters=worker.shared_clusters() if chosen.scope == "session" else None,
    )
    run.on_verdict(lambda verdict: _record(item, run, verdict))
    runs.append(run)
    try:
        yield run
    finally:
        failures = run.close()
        if item.stash[USED] is Outcome.PASSED and not failures and not chosen.keep:
            run.remove_data()
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


def _repeat_line(item: pytest.Item) -> str:
    from .plugin import repeat_line

    return repeat_line(item)


def _record(item: pytest.Item, run: Harrow, verdict: Any) -> None:
    """Put a verdict where JUnit, the terminal and xdist's controller find it."""
    number = sum(name.startswith("harrow.verdict") for name, _ in item.user_properties) + 1
    suffix = "" if number == 1 else f"-{number}"
    item.user_properties += [
        (f"harrow.verdict{suffix}", run.verdict_line(verdict)),
        (f"harrow.seed{suffix}", str(run.seed)),
        (f"harrow.folder{suffix}", str(run.folder)),
    ]
    item.user_properties += [(f"harrow.planted{suffix}", bug) for bug in verdict.planted]
