"""How a test ended, and what its run gets: a verdict of Spark, a verdict without Spark, or none.

| ending | errors | the run gets |
| --- | --- | --- |
| skipped | `pytest.skip`, `unittest.SkipTest` | nothing |
| interrupted | KeyboardInterrupt, `pytest.exit` | at once the verdict unknown and a page, without Spark |
| harness | NemesisError and the like | the same: the faults did not do what the test asked |
| failed | all else, and `OF_THE_TEST`: `pytest.fail`, `pytest.xfail`, timeouts, `sys.exit`, … | a verdict and a page |

A test that ended while its verdict was made gets the verdict unknown too: a second try would last as long.
`pytest.fail`, `pytest.xfail` and CancelledError of asyncio are no `Exception`; `pytest.exit` is one. May fail: nothing.
"""

from __future__ import annotations

import contextlib
import enum
import unittest
from typing import TYPE_CHECKING, Protocol

from harrow.cluster.errors import HarrowError

from ..errors import ProgramDiedError, VerdictError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from ..checks import Verdict
    from ..topics import Topic
    from .made import MadeVerdicts

REASON_MOST = 300
OF_THE_TEST = (VerdictError, WaitTimeoutError, ProgramDiedError)
"""Errors of Harrow's that say what the application did: the faults did what the test asked."""


class Ending(enum.Enum):
    """How a test ended that did not pass."""

    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"
    HARNESS = "harness"
    FAILED = "failed"


def ending_of(error: BaseException) -> Ending:
    """Return how a test ended that raised `error`."""
    from _pytest.outcomes import Exit, Skipped

    if isinstance(error, Skipped | unittest.SkipTest):
        return Ending.SKIPPED
    if isinstance(error, KeyboardInterrupt | Exit):
        return Ending.INTERRUPTED
    if isinstance(error, HarrowError) and not isinstance(error, OF_THE_TEST):
        return Ending.HARNESS
    return Ending.FAILED


def why_not_judged(error: BaseException, *, judging: bool) -> str:
    """Return the reason of the verdict unknown; empty when the run can be judged.

    `judging`: the test ended while its verdict was made.
    """
    ending = ending_of(error)
    if ending is Ending.INTERRUPTED:
        return f"the test was interrupted ({in_short(error)}), so nothing was judged; run it again"
    if judging:
        return f"the test ended with {in_short(error)} while its verdict was made; give it more time"
    if ending is Ending.HARNESS:
        return f"nothing was judged, because the test ended with {in_short(error)}"
    return ""


def in_short(error: BaseException) -> str:
    """Return the class and the first line of an error's message."""
    first = str(error).partition("\n")[0][:REASON_MOST]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def note_verdict(error: BaseException, text: str) -> None:
    """Add what was found to the error with which a test ended; nothing where nothing was judged."""
    if text:
        error.add_note(f"harrow: the verdict on this run:\n{text}")


class JudgedRun(Protocol):
    """What gives a run its verdict."""

    made: MadeVerdicts

    @property
    def needs_no_verdict(self) -> bool:
        """Whether the running test has a verdict, or there is nothing to judge."""
        ...

    def judged(self, topics: Iterable[Topic | str]) -> Verdict:
        """Judge the run on Spark."""
        ...

    def judged_without_spark(self, reason: str) -> Verdict:
        """Give the run the verdict unknown."""
        ...


class VerdictsOfFailures:
    """Gives the run of a failed test its verdict."""

    def __init__(self, run: JudgedRun) -> None:
        self._run = run
        self._judging = False
        """A verdict is being made; it stays true when an interrupt or a timeout of the test ends that."""

    def verdict_of_failure(self, error: BaseException) -> str:
        """Judge a run whose test ended with `error`, and return what was found.

        The text is empty when there is nothing to judge: the test was skipped, its run has a verdict, or it made no
        chaos block or no topic.
        """
        if ending_of(error) is Ending.SKIPPED or self._run.needs_no_verdict:
            return ""
        if reason := why_not_judged(error, judging=self._judging):
            return self.end_unjudged(reason)
        try:
            return self._run.made.explained(self._run.judged(()))
        except Exception as failure:
            return f"this run could not be judged: {failure}"

    def end_unjudged(self, reason: str) -> str:
        """Give the run, unless it has one, the verdict unknown and its page: without the cluster and without Spark."""
        if self._run.needs_no_verdict:
            return ""
        self._judging = False
        return self._run.made.explained(self._run.judged_without_spark(reason))

    def attach_verdict(self, error: Exception) -> None:
        """Judge the run at the end of a chaos block in which a test failed; other endings are judged after the test."""
        if ending_of(error) is Ending.FAILED:
            note_verdict(error, self.verdict_of_failure(error))

    @contextlib.contextmanager
    def making_a_verdict(self) -> Generator[None]:
        """Note that a verdict is being made, until the block has ended without an interrupt."""
        self._judging = True
        try:
            yield
        except Exception:
            self._judging = False
            raise
        self._judging = False
