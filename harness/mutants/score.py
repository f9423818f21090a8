"""From runs of a suite to its score: which mutants it kills, by which tests, and why the others survive.

Owns: `MutantResult` and `result_of`, pure functions of what runs said. A mutant is **killed** when a test fails with it
that passes without it, or when the suite does not end. It is **never executed** when no request and no client was
changed. It **survives** otherwise, and the reason is the first of these that is true of the tests that executed it:

    no verdict       none of them asked for a verdict
    no guarantee     none of the guarantees that they asked for forbids what the mutant does
    no fault         it shows under faults only, and none took effect in these tests
    not noticed      a guarantee forbids it and faults took effect: other faults, or more seeds, may show it

The score is killed / executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..mutant_rows import MutantRow
from .catalogue import Mutant

KILLED, SURVIVED, NEVER_EXECUTED = "killed", "survived", "never executed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantResult:
    """What a suite did to a mutant."""

    mutant: Mutant
    state: str
    reason: str
    """Why it survived, what is needed, or the first failure."""
    tests: Sequence[str] = ()
    """The tests that failed."""
    anomalies: Sequence[str] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "mutant": self.mutant.name,
            "does": self.mutant.words,
            "where": self.mutant.where,
            "state": self.state,
            "reason": self.reason,
            "tests": list(self.tests),
            "anomalies": list(self.anomalies),
            "seconds": round(self.seconds, 1),
        }


def result_of(
    mutant: Mutant,
    failed: Mapping[str, str],
    rows: Sequence[MutantRow],
    *,
    anomalies: Sequence[str] = (),
    seconds: float = 0.0,
    endless: bool = False,
) -> MutantResult:
    """Return what the suite did to a mutant; `failed`: tests with the message of each."""
    if endless or failed:
        first = "the suite did not end" if endless else next(iter(failed.values()))
        return MutantResult(
            mutant=mutant,
            state=KILLED,
            reason=first,
            tests=tuple(failed),
            anomalies=tuple(anomalies),
            seconds=seconds,
        )
    if not any(row.changed for row in rows):
        reason = "no test has a client that does what it changes"
        return MutantResult(mutant=mutant, state=NEVER_EXECUTED, reason=reason, seconds=seconds)
    return MutantResult(mutant=mutant, state=SURVIVED, reason=why_survived(mutant, rows), seconds=seconds)


def why_survived(mutant: Mutant, rows: Sequence[MutantRow]) -> str:
    """Return the reason; a mutant of a client is taken as executed in every test of Harrow."""
    with_test = [row for row in rows if row.test]
    met = [row for row in with_test if row.changed] or with_test
    asked = {name for row in met for name in row.guarantees}
    faults = {name for row in met for name in row.faults}
    breaks = " or ".join(sorted(mutant.breaks))
    if not asked:
        return f"no verdict: none of {_tests(met)} verifies what it reads or writes; it breaks {breaks}"
    if not asked & mutant.breaks:
        return f"no guarantee forbids it: {', '.join(sorted(asked))} was verified, and it breaks {breaks}"
    if mutant.shown_by and not faults:
        return f"no fault that shows it: none took effect in {_tests(met)}; it needs {mutant.shown_by}"
    if not mutant.shown_by:
        return f"not noticed by {_tests(met)}, although it needs no fault"
    return f"not noticed under {', '.join(sorted(faults))}; it needs {mutant.shown_by}: more seeds may show it"


def _tests(rows: Sequence[MutantRow]) -> str:
    names = {row.test for row in rows}
    return "1 test" if len(names) == 1 else f"{len(names)} tests"


def score(results: Sequence[MutantResult]) -> tuple[int, int]:
    """Return how many mutants were killed, of how many that were executed."""
    executed = [result for result in results if result.state != NEVER_EXECUTED]
    return sum(result.state == KILLED for result in executed), len(executed)
