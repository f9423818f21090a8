"""All bugs of the zoo, in the order of their numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from harrow.cluster.errors import ConfigError
from harrow.faults import zoo
from harrow.faults.zoo.bug import Bug


def _bugs() -> Iterator[Bug]:
    """Yield the bug of each module of the zoo that has one."""
    for module in iter_modules(zoo.__path__, f"{zoo.__name__}."):
        bug: object = getattr(import_module(module.name), "BUG", None)
        if isinstance(bug, Bug):
            yield bug


ZOO: tuple[Bug, ...] = tuple(sorted(_bugs(), key=lambda bug: bug.number))


def bug_named(name: str) -> Bug:
    """Return a bug by its number or its module's name; ConfigError names one that resembles it."""
    for bug in ZOO:
        if name in (str(bug.number), bug.name):
            return bug
    near = difflib.get_close_matches(name, [bug.name for bug in ZOO], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"no bug {name!r} in the zoo{hint} (see: harrow zoo --list)")
