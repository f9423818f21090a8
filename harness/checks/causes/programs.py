"""Programs of the test that had died: the first line of every cause, and of every verdict that is unknown.

A program that ended by itself with an exit code other than 0 is named, whatever the anomaly, and so is one that a fault
ended and that was not started again. A fault's kill after which the program runs again is what the test wanted, and the
test's own `stop()` is no death. A program that ended by itself with exit code 0 may have done its work: it is named
where records are missing, behind every other cause, and in a verdict that is unknown.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence

from ...histories.program_ends import FAULT, ITSELF, ProgramEnd
from ...run_folder import RunTimes

SENTENCES_MOST = 2
SIGNALLED = 128
NAMED_AFTER_ITS_WORK = frozenset({"missing-output"})
"""Anomalies that a program which ended with exit code 0 may explain."""


def deaths(ends: Iterable[ProgramEnd], times: RunTimes) -> list[str]:
    """Return a sentence for each program that had died, in the order of their first deaths."""
    return _sentences([end for end in ends if _is_death(end)], times)


def quiet_ends(ends: Iterable[ProgramEnd], times: RunTimes) -> list[str]:
    """Return a sentence for each program that ended by itself with exit code 0 and was not started again."""
    quiet = [end for end in ends if end.by == ITSELF and not end.exit_code and not end.started_again]
    return _sentences(quiet, times)


def _is_death(end: ProgramEnd) -> bool:
    if end.by == ITSELF:
        return end.exit_code != 0
    return end.by == FAULT and not end.started_again


def _sentences(ends: Sequence[ProgramEnd], times: RunTimes) -> list[str]:
    """The last end of each program is described; what came before is counted."""
    by_name: dict[str, list[ProgramEnd]] = {}
    for end in ends:
        by_name.setdefault(end.name, []).append(end)
    return [_sentence(own, times) for own in by_name.values()][:SENTENCES_MOST]


def _sentence(own: Sequence[ProgramEnd], times: RunTimes) -> str:
    last = own[-1]
    when = f" at {times.text(last.ended_ns)}" if last.ended_ns else ""
    if last.by == FAULT:
        text = f"program {last.name!r} was ended by a fault{when} ({_code(last)}) and was not started again"
    else:
        again = ", and was started again" if last.started_again else ""
        text = f"program {last.name!r} ended by itself{when} with {_code(last)}{again}"
        text += "; neither a fault nor the test ended it"
    if len(own) > 1:
        text += f" (it ended so {len(own)} times)"
    if last.last_words:
        text += "; its last lines: " + " | ".join(last.last_words)
    return text


def _code(end: ProgramEnd) -> str:
    number = end.exit_code - SIGNALLED
    if number > 0:
        try:
            return f"{signal.Signals(number).name}, exit code {end.exit_code}"
        except ValueError:
            pass
    return f"exit code {end.exit_code}"
