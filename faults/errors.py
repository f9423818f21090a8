"""What the fault layer raises, below `HarrowError`:

HarrowError
├── ConfigError (cluster)   an argument of a fault, target or schedule that cannot be used
└── FaultError
    ├── CapabilityError     the backend cannot do what a fault needs: raised before anything is broken
    ├── TargetError         no broker plays the target's role at this moment; it may change, so it is retried
    └── NemesisError        a run of faults that did not do what was planned: the run proves nothing
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from harrow.cluster.errors import ConfigError, HarrowError

__all__ = ["CapabilityError", "ConfigError", "FaultError", "NemesisError", "TargetError", "absent", "listed", "nearest"]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the part of a message that asks for the known word which `word` resembles; empty where none does."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def listed(values: Iterable[object], most: int = 10) -> str:
    """Return the first `most` values with commas, and how many more there are."""
    rows = [str(value) for value in values]
    more = len(rows) - most
    return ", ".join(rows[:most]) + (f" and {more} more" if more > 0 else "")


def absent(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for a topic, group or transactional id that the cluster lacks, with those that it has."""
    names = sorted(known)
    return f"the cluster has no {kind} {name!r}{nearest(name, names)}; it has {listed(names) or 'none'}"


class FaultError(HarrowError):
    """A fault could not be injected, proved or healed."""


class CapabilityError(FaultError):
    """The backend lacks a capability that a fault needs."""


class TargetError(FaultError):
    """No broker plays the target's role at this moment."""


class NemesisError(FaultError):
    """A fault had no proved effect, never fired, or was not healed."""
