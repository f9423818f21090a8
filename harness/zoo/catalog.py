"""All bugs of the zoo, in the order of their numbers."""

from __future__ import annotations

import difflib

from harrow.cluster.errors import ConfigError

from . import replication, storage, transactions
from .bug import Bug

ZOO: tuple[Bug, ...] = tuple(sorted((*replication.BUGS, *storage.BUGS, *transactions.BUGS), key=lambda bug: bug.number))


def bug_named(name: str) -> Bug:
    """Return a bug by its number or its module's name; ConfigError names one that resembles it."""
    for bug in ZOO:
        if name in (str(bug.number), bug.name):
            return bug
    near = difflib.get_close_matches(name, [bug.name for bug in ZOO], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"no bug {name!r} in the zoo{hint} (see: harrow zoo --list)")
