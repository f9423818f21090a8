"""Waits for a condition until a deadline, until a program of the test has died, or until the waiter is cancelled.

Owns: `looking` and `wait_for`, and the words of their errors. A look that fails (a broker that does not respond now) is
a look that found nothing: the last such error is in the message. The pause between two looks is at least that of what
is looked at, and four times as long as the look took, so that a wait takes a fifth of a CPU at most. A long wait is
noted (`harrow.cluster.wait_notes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Protocol

from harrow.cluster.errors import ConfigError, HarrowError
from harrow.cluster.wait_notes import WaitNotes

from ..errors import ProgramDiedError, WaitTimeoutError
from .conditions import Look

if TYPE_CHECKING:
    from .conditions import Condition
    from .seen import ClusterSeen

TIMEOUT_S = 60.0
LOOK_SHARE = 4


class TestPrograms(Protocol):
    """The programs of the test, for a wait."""

    def died(self, since_ns: int) -> str:
        """Say which program died so that a wait for it is in vain; empty while none did."""
        ...

    def ended(self) -> str:
        """Say which programs have ended otherwise; empty without any."""
        ...


class CancelledWaitError(HarrowError):
    """The task that waited was cancelled; its thread ends with this error, which is dropped."""


def check_timeout(call: str, timeout: object) -> float:
    """Return a timeout in seconds; ConfigError for what is none."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ConfigError(f"{call}(…, timeout={timeout!r}): expected seconds, more than 0")
    return float(timeout)


def wait_for(looks: Generator[float, None, int], pause: Callable[[float], bool | None]) -> int:
    """Return the value of a condition when it holds; `looks`: of `looking`.

    `pause` waits for so many seconds; True where the waiter was cancelled meanwhile.
    """
    while True:
        try:
            pause_s = next(looks)
        except StopIteration as end:
            value: int = end.value
            return value
        if pause(pause_s):
            raise CancelledWaitError("the wait was cancelled")


def looking(
    condition: Condition, timeout_s: float, *, seen: ClusterSeen, programs: TestPrograms, state: Callable[[], str]
) -> Generator[float, None, int]:
    """Look until a condition holds; yield the seconds until the next look, return the value of the condition.

    WaitTimeoutError says what was there instead. `state` says in brackets which brokers do not run. ProgramDiedError as
    soon as a program of the test has died by itself.
    """
    began, began_ns = time.monotonic(), time.monotonic_ns()
    notes = WaitNotes(most_s=timeout_s)
    while True:
        look_began = time.monotonic()
        look = _looked(condition, seen)
        if look.holds:
            return look.value
        if death := programs.died(began_ns):
            raise ProgramDiedError(f"{condition} ends: {death}. There is: {look.there}")
        now = time.monotonic()
        if now >= began + timeout_s:
            ended = programs.ended()
            raise WaitTimeoutError(
                f"{condition}: not within {timeout_s:g} s; {look.there}{f'; {ended}' if ended else ''}{state()}. "
                f"Where it takes longer, write timeout={2 * timeout_s:g}"
            )
        notes.look(str(condition), look.there)
        pause_s = max(seen.pace_s, LOOK_SHARE * (now - look_began))
        yield min(pause_s, max(0.0, began + timeout_s - now))


def _looked(condition: Condition, seen: ClusterSeen) -> Look:
    try:
        return condition.look(seen)
    except ConfigError:
        raise
    except HarrowError as error:
        return Look(holds=False, there=f"the cluster could not be looked at: {error}")
