"""What the fault layer raises, below `HarrowError`:

HarrowError
├── ConfigError (cluster)   an argument of a fault, target or schedule that cannot be used
└── FaultError
    ├── TargetError         nobody plays the target's role at this moment; may change, so it is retried
    └── NemesisError        a run of faults that did not do what it was asked: the run proves nothing
"""

from __future__ import annotations

from harrow.cluster.errors import ConfigError, HarrowError

__all__ = ["ConfigError", "FaultError", "NemesisError", "TargetError"]


class FaultError(HarrowError):
    """A fault could not be injected, proved or healed."""


class TargetError(FaultError):
    """Nobody plays the target's role at this moment."""


class NemesisError(FaultError):
    """A fault had no proved effect, never fired, or was not healed."""
