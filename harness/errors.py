"""What the harness raises, below `HarrowError`:

HarrowError
├── VerdictError        (also an AssertionError) a guarantee was broken, or it could not be judged
├── WaitTimeoutError    (also a TimeoutError) what a test waited for did not happen in time
└── ProgramDiedError    what a test waited for cannot happen, because a program of the test died
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harrow.cluster.errors import HarrowError

if TYPE_CHECKING:
    from .checks.verdict import Verdict

__all__ = ["HarrowError", "ProgramDiedError", "VerdictError", "WaitTimeoutError"]


class VerdictError(HarrowError, AssertionError):
    """The verdict is invalid or unknown. The message contains the anomalies and the command that repeats the run."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict


class WaitTimeoutError(HarrowError, TimeoutError):
    """What a test waited for (`harrow.await_assigned(…)`) did not happen in time; the message says what was there."""


class ProgramDiedError(HarrowError):
    """A wait (`harrow.await_assigned(…)`) ended, because a program of the test died; the message has its last lines."""
