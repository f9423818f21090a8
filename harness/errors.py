"""What the harness raises, below `HarrowError`:

HarrowError
└── VerdictError        (also an AssertionError) a guarantee was broken, or could not be judged
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harrow.cluster.errors import HarrowError

if TYPE_CHECKING:
    from .checks.verdict import Verdict

__all__ = ["HarrowError", "VerdictError"]


class VerdictError(HarrowError, AssertionError):
    """The verdict is invalid or unknown; the message holds the anomalies and the line that repeats the run."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict
