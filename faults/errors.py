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

__all__ = ["CapabilityError", "ConfigError", "FaultError", "NemesisError", "TargetError", "nearest"]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the part of a message that asks for the known word which `word` resembles; empty where none does."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


class FaultError(HarrowError):
    """A fault could not be injected, proved or healed."""


class CapabilityError(FaultError):
    """The backend lacks a capability that a fault needs."""


class TargetError(FaultError):
    """No broker plays the target's role at this moment."""


class NemesisError(FaultError):
    """A fault had no proved effect, never fired, or was not healed."""
