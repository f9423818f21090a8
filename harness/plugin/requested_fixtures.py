"""Which Harrow fixtures a test requests, by the marks that their factories leave, and what they yielded so far."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..run.harrow_run import HarrowRun

RUNS = pytest.StashKey[list["HarrowRun"]]()
SIMULATED_TEST = pytest.StashKey[bool]()
"""Whether the seeds of a test run in processes of their own, and not in this one."""
SEED_COMMAND = pytest.StashKey[tuple[str, bool]]()
"""In the process of a seed: the command that repeats it, and whether its schedules were given to it."""
ARGUMENTS = "harrow_arguments"
"""Attribute of the function of a Harrow fixture: the arguments of its factory (`fixtures.py`)."""


def uses_harrow(item: pytest.Item) -> bool:
    """Whether a test requests a Harrow fixture, directly or through another fixture."""
    return bool(factory_arguments(item))


def factory_arguments(item: pytest.Item) -> list[Mapping[str, Any]]:
    """Return the arguments of the factory of each Harrow fixture that a test requests."""
    return [arguments for rows in harrow_fixtures(item).values() for arguments in rows]


def harrow_fixtures(item: pytest.Item) -> dict[str, list[Mapping[str, Any]]]:
    """Return the arguments of the factories by the names of the Harrow fixtures that a test requests."""
    info: Any = getattr(item, "_fixtureinfo", None)
    found: dict[str, list[Mapping[str, Any]]] = {}
    definitions: dict[str, Any] = info.name2fixturedefs if info is not None else {}
    for name, overrides in definitions.items():
        functions = (getattr(row.func, "__wrapped__", row.func) for row in overrides)
        arguments = [getattr(function, ARGUMENTS, None) for function in functions]
        if given := [row for row in arguments if row is not None]:
            found[name] = given
    return found


def coroutine_of(function: pytest.Function) -> Coroutine[Any, Any, object]:
    """Return the coroutine of an async test, called with its fixtures as pytest calls a plain one."""
    source: Any = function
    names = source._fixtureinfo.argnames  # noqa: SLF001 - as pytest's own hook
    coroutine: Coroutine[Any, Any, object] = function.obj(**{name: function.funcargs[name] for name in names})
    return coroutine


def runs_of(item: pytest.Item) -> list[HarrowRun]:
    """Return what the Harrow fixtures of a test yielded so far."""
    none: list[HarrowRun] = []
    return item.stash.get(RUNS, none)
