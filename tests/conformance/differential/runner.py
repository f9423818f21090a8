"""Makes cases from a seed, compares them, and keeps the smallest request of each difference that no row explains.

Owns: which case comes next in which lane, what a finding is, and the report. Case number n of a seed is the same in
every run: its random numbers come from the seed and n alone. Lanes run at the same time (`lanes.py`); a difference
counts when it is there again while all other lanes wait.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from random import Random

from .cases import Case, Json
from .duel import READS, Pair
from .known import Known, unexplained
from .lanes import Gate
from .mutations import change
from .normal import ABSENT, Difference
from .programs import program
from .requests import BASES, Maker
from .shrink import as_sent, smallest
from .world import is_changed_by

PROGRAM_SHARE = 0.05
PLAIN_SHARE = 0.1
TWO_FIELDS_SHARE = 0.25
CONFIRMATIONS = 4
"""How often a difference must be there again: which partitions a member of a group gets depends on random topic ids."""
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
        return {**self.case.to_json(), "difference": asdict(self.difference), "text": self.text().splitlines()}

    def text(self) -> str:
        """Returns the finding for a person."""
        d = self.difference
        head = f"{d.api} v{d.version} ({d.role}) {d.path}: Kafka {_short(d.kafka)}, Harrow {_short(d.harrow)}"
        also = [f"{o.api}.{o.path}: {_short(o.kafka)} / {_short(o.harrow)}" for o in self.others[:4]]
        seen = f"   {self.case.note}, seen in {self.count} cases, first in case {self.number}"
        return "\n".join(
            [head, seen, *(f"   also {each}" for each in also), *(f"   {each}" for each in as_sent(self.case))]
        )


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=repr)
    return text if len(text) < 160 else text[:157] + "…"


@dataclass
class Run:
    """A run of cases over pairs of systems: one lane for each pair."""

    pairs: Sequence[Pair]
    known: Sequence[Known]
    versions: Mapping[str, tuple[int, int]]
    controller: Callable[[], int]
    shrink_attempts: int = 60
    keep: Callable[[Finding], None] = lambda _: None
    findings: dict[tuple[str, ...], Finding] = field(default_factory=dict[tuple[str, ...], Finding])
    cases: int = 0
    unconfirmed: int = 0
    gate: Gate = field(default_factory=Gate)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards what the lanes count and find."""

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
        """Runs the cases of a seed in all lanes; a lane that fails ends the others behind their present case."""
        begin = time.monotonic()
        numbers = iter(range(cases))
        failed = threading.Event()

        def lane(pair: Pair) -> None:
            for number in numbers:
                if failed.is_set():
                    return
                case = self.case(seed, number, only)
                try:
                    self.one(pair, case, number, say)
                except BaseException:
                    failed.set()
                    say("\n".join([f"a lane ended at case {number}:", *as_sent(case)]))
                    raise
                if number % 500 == 499:
                    rate = (number + 1) / (time.monotonic() - begin)
                    say(f"{number + 1} cases, {rate:.1f} a second, {len(self.findings)} findings")

        with ThreadPoolExecutor(len(self.pairs)) as threads:
            for ended in [threads.submit(lane, pair) for pair in self.pairs]:
                ended.result()

    def findings_of(self, differing: list[Difference]) -> list[Difference]:
        """Returns what no row explains.

        An explained error also explains the other fields of its response, and what follows when it spoils the state.
        Where a list has an explained row that the other system lacks, its rows cannot be paired.
        """
        found = unexplained(differing, self.known)
        explained = [each for each in differing if each not in found]
        refused = {each.step for each in explained if is_error(each)}
        unpaired = {(each.step, each.path) for each in explained if is_missing(each)}
        spoilt = min((each.step for each in explained if spoils(each)), default=len(differing) + 1_000)
        return [
            each
            for each in found
            if each.step <= spoilt
            and (is_error(each) or each.step not in refused)
            and (each.step, each.path.rpartition(".")[0]) not in unpaired
        ]

    def one(self, pair: Pair, case: Case, number: int, say: Say) -> None:
        """Compares one case; a difference that no row explains is repeated alone, and shrunk when it is new."""
        differing = self.compare(pair, case)
        found = self.findings_of(differing)
        with self.lock:
            self.cases += 1
        if not found:
            if any(map(spoils, differing)) or is_changed_by(case):
                pair.renew()
            return
        first = leading(found)
        with self.lock:
            is_known = first.signature in self.findings
            if is_known:
                self.findings[first.signature].count += 1
        pair.renew()
        if is_known:
            return
        for _ in range(CONFIRMATIONS):
            again = self.findings_of(self.compare(pair, case, alone=True))
            pair.renew()
            if first.signature not in {each.signature for each in again}:
                self._not_again(case, number, found, say)
                return
            found = again
        same = next(each for each in found if each.signature == first.signature)
        small = smallest(Gated(self, pair), case, same, self.shrink_attempts)
        pair.renew()
        others = [each for each in found if each.signature != first.signature]
        finding = Finding(difference=same, case=small, others=others, number=number)
        with self.lock:
            if first.signature in self.findings:  # another lane was first
                self.findings[first.signature].count += 1
                return
            self.findings[first.signature] = finding
        self.keep(finding)
        say(finding.text())

    def compare(self, pair: Pair, case: Case, *, alone: bool = False) -> list[Difference]:
        """Compares one case beside those of other lanes, or alone."""
        with self.gate.of(case, alone=alone):
            return pair.compare(case)

    def _not_again(self, case: Case, number: int, found: Sequence[Difference], say: Say) -> None:
        with self.lock:
            self.unconfirmed += 1
        rows = [
            f"   {each.step} {each.api} {each.path}: {_short(each.kafka)} / {_short(each.harrow)}" for each in found
        ]
        say("\n".join([f"not again: case {number}, {case.origin}", *rows]))


@dataclass(frozen=True, slots=True)
class Gated:
    """A pair whose comparisons pass the gate of a run."""

    run: Run
    pair: Pair

    def compare(self, case: Case) -> list[Difference]:
        return self.run.compare(self.pair, case)

    def renew(self) -> None:
        self.pair.renew()


def is_error(difference: Difference) -> bool:
    """True when the difference is in an error code, or in what became of the request."""
    return difference.path.endswith("rrorCode") or difference.path == "outcome"


def spoils(difference: Difference) -> bool:
    """True when the systems may be in different states behind a difference, also behind one that a row explains."""
    return difference.api not in READS and (is_error(difference) or is_missing(difference))


def is_missing(difference: Difference) -> bool:
    """True when one system has a row or a field that the other lacks."""
    return ABSENT in (difference.kafka, difference.harrow)


def leading(found: Sequence[Difference]) -> Difference:
    """Returns the difference that names the finding: a process's end first, then the first step that differs."""
    return min(found, key=lambda each: (each.path != "(process)", each.step, "rror" not in each.path))
