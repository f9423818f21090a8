"""Makes cases from a seed, compares them, and keeps the smallest request of each difference that no row explains.

Owns: which case comes next, what a finding is, and the report. Case number n of a seed is the same in every run: its
random numbers come from the seed and n alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random

from .cases import Case, Json
from .duel import READS, Pair
from .known import Known, unexplained
from .mutations import change
from .normal import ABSENT, Difference
from .programs import program
from .requests import BASES, Maker
from .shrink import as_sent, smallest

PROGRAM_SHARE = 0.05
PLAIN_SHARE = 0.1
TWO_FIELDS_SHARE = 0.25
Say = Callable[[str], None]


@dataclass
class Finding:
    """A difference with the smallest case found, and in how many cases it was seen."""

    difference: Difference
    case: Case
    others: list[Difference]
    count: int = 1
    number: int = 0

    def to_json(self) -> Json:
        """Returns what `--replay` reads, with the difference."""
        return {
            **self.case.to_json(),
            "difference": asdict(self.difference),
            "text": self.text().splitlines(),
        }

    def text(self) -> str:
        """Returns the finding for a person."""
        d = self.difference
        head = f"{d.api} v{d.version} ({d.role}) {d.path}: Kafka {_short(d.kafka)}, Harrow {_short(d.harrow)}"
        also = [
            f"{o.api}.{o.path}: {_short(o.kafka)} / {_short(o.harrow)}" for o in self.others[:4]
        ]
        seen = f"   {self.case.note}, seen in {self.count} cases, first in case {self.number}"
        return "\n".join(
            [
                head,
                seen,
                *(f"   also {each}" for each in also),
                *(f"   {each}" for each in as_sent(self.case)),
            ]
        )


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=repr)
    return text if len(text) < 160 else text[:157] + "…"


@dataclass
class Run:
    """A run of cases over a pair of systems."""

    pair: Pair
    known: Sequence[Known]
    versions: Mapping[str, tuple[int, int]]
    controller: Callable[[], int]
    shrink_attempts: int = 60
    keep: Callable[[Finding], None] = lambda _: None
    findings: dict[tuple[str, ...], Finding] = field(default_factory=dict[tuple[str, ...], Finding])
    cases: int = 0
    unconfirmed: int = 0

    def case(self, seed: int, number: int, only: str | None = None) -> Case:
        """Returns case `number` of a seed; with `only`, of this request alone."""
        random = Random(f"{seed} {number}")
        maker = Maker(random=random, versions=self.versions, controller=self.controller())
        share = random.random()
        if only is None and share < PROGRAM_SHARE:
            return program(maker)
        api = only or random.choice(sorted(set(BASES) & set(self.versions)))
        low, high = self.versions[api]
        case = maker.case(api, random.choice((random.randint(low, high), high)))
        if share > 1 - PLAIN_SHARE:
            return case
        case = change(case, random)
        return change(case, random) if random.random() < TWO_FIELDS_SHARE else case

    def go(self, seed: int, cases: int, only: str | None, say: Say) -> None:
        """Runs the cases of a seed."""
        begin = time.monotonic()
        for number in range(cases):
            case = self.case(seed, number, only)
            try:
                self.one(case, number, say)
            except ConnectionError:
                say("\n".join([f"a system did not respond after case {number}:", *as_sent(case)]))
                raise
            if number % 500 == 499:
                rate = (number + 1) / (time.monotonic() - begin)
                say(f"{number + 1} cases, {rate:.0f} a second, {len(self.findings)} findings")

    def findings_of(self, differing: list[Difference]) -> list[Difference]:
        """Returns what no row explains.

        An explained error also explains the other fields of its response, and what follows when it spoils the state.
        """
        found = unexplained(differing, self.known)
        explained = [each for each in differing if each not in found]
        refused = {each.step for each in explained if is_error(each)}
        spoilt = min(
            (each.step for each in explained if spoils(each)), default=len(differing) + 1_000
        )
        return [
            each
            for each in found
            if each.step <= spoilt and (is_error(each) or each.step not in refused)
        ]

    def one(self, case: Case, number: int, say: Say) -> None:
        """Compares one case; a difference that no row explains is repeated alone, and shrunk when it is new."""
        self.cases += 1
        differing = self.pair.compare(case)
        found = self.findings_of(differing)
        if not found:
            if any(map(spoils, differing)):
                self.pair.renew()
            return
        first = leading(found)
        if first.signature in self.findings:
            self.findings[first.signature].count += 1
            self.pair.renew()
            return
        self.pair.renew()
        again = self.findings_of(self.pair.compare(case))
        same = [each for each in again if each.signature == first.signature]
        if not same:
            self.unconfirmed += 1
            say(f"not again: case {number}, {case.origin}")
            for each in found:
                say(
                    f"   {each.step} {each.api} {each.path}: {_short(each.kafka)} / {_short(each.harrow)}"
                )
            self.pair.renew()
            return
        small = smallest(self.pair, case, same[0], self.shrink_attempts)
        self.pair.renew()
        others = [each for each in again if each.signature != first.signature]
        finding = Finding(difference=same[0], case=small, others=others, number=number)
        self.findings[first.signature] = finding
        self.keep(finding)
        say(finding.text())


def is_error(difference: Difference) -> bool:
    """True when the difference is in an error code, or in what became of the request."""
    return difference.path.endswith("rrorCode") or difference.path == "outcome"


def spoils(difference: Difference) -> bool:
    """True when the systems may be in different states behind a difference, also behind one that a row explains."""
    is_missing = ABSENT in (difference.kafka, difference.harrow)
    return difference.api not in READS and (is_error(difference) or is_missing)


def leading(found: Sequence[Difference]) -> Difference:
    """Returns the difference that names the finding: a process's end first, then the first step that differs."""
    return min(
        found, key=lambda each: (each.path != "(process)", each.step, "rror" not in each.path)
    )
