"""What the checks of a pipeline found, as the part of a verdict: anomalies, doubts, reasons and notes (L5, L6).

Doubts instead of false words:

* Source records that compaction, retention or DeleteRecords removed may have had outputs: what looks like
  `unexpected-output`, `duplicate-output` or `wrong-output`, or a wrong final state, may be legal then. Removed sink
  records may have been the outputs: the same holds for `missing-output` and `commit-before-output`. What was removed
  was not compared, so the verdict is not valid either. Compaction of a sink keeps final states.
* Offsets that were written twice (a topic was created again) have no certain time: no `commit-before-output`.
* A function that raises for an input leaves out what that input requires, and for an output what that output is.
* When several groups commit offsets of the source and only some did it before the outputs, it is not known which of
  them is the pipeline's, unless `group=` says it.

An empty source proves nothing. A pipeline without any output is never valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..checks.promise_findings import PromiseFindings
from ..checks.rows import AnomalyRow
from ..histories.commits import CommitTimes
from ..histories.contents import FinalRead
from .pairing import Pairing
from .pipeline_findings import (
    BOTH,
    DUE_ORDER,
    DUPLICATE,
    EARLY,
    LATE,
    MISSING,
    OUT_OF_ORDER,
    TOO_MANY,
    UNEXPECTED,
    WITHOUT_REASON,
    WRONG,
)
from .pipeline_join import PipelineFindings
from .pipeline_mapper import ACTUAL, DEAD, EXPECTED, RETRIED
from .pipeline_words import PipelineWords
from .relations import KeyedRelation
from .retries import RetryPromise
from .retry_results import RetryDoubts, doubts_of_retries

NAMES = (MISSING, DUPLICATE, UNEXPECTED, WRONG, LATE, OUT_OF_ORDER, BOTH, WITHOUT_REASON, TOO_MANY, EARLY, DUE_ORDER)
SIDES = {EXPECTED: "inputs", ACTUAL: "outputs", RETRIED: "records of retry topics", DEAD: "dead letters"}
OF_INPUTS = (BOTH, WITHOUT_REASON, TOO_MANY)
"""What is said of dead letters and retries by comparing them with all inputs of their record id."""
OF_TOPICS = frozenset({"duplicate", "nonmonotonic-send", "nonmonotonic-poll", "poll-skip"})
"""Anomalies of the topics themselves, which `verify` judges: a pipeline does not answer for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A judged pipeline."""

    pairing: Pairing
    source: str
    sink: str
    sink_note: str = ""
    source_partitions: Sequence[FinalRead] = ()
    sink_partitions: Sequence[FinalRead] = ()
    """Empty for a sink that is no topic."""
    commits: Mapping[str, Mapping[int, CommitTimes]] = field(default_factory=dict[str, Mapping[int, CommitTimes]])
    ordered: bool = False
    rewritten: Sequence[str] = ()
    """Partitions of which offsets were written twice."""
    group: str | None = None
    """The group that the caller named."""
    retry: RetryPromise = field(default_factory=RetryPromise)
    retry_partitions: Sequence[FinalRead] = ()
    """Of the retry topics and the dead letters."""

    @property
    def keyed(self) -> bool:
        """Whether the relation has a state."""
        return isinstance(self.pairing.relation, KeyedRelation)


class PipelineResults:
    """Turns the findings of all tasks into the part of a verdict."""

    def __init__(self, run: PipelineRun, found: PipelineFindings, words: PipelineWords, limit: int) -> None:
        self._run = run
        self._found = found
        self._words = words
        self._limit = limit
        self._counts: Counter[str] = Counter({name: found.counts[name] for name in NAMES})
        self._group: str | None = None
        self._reasons: list[str] = list(found.problems)
        self._notes: list[str] = []
        self._doubts: dict[str, str] = {}

    def findings(self) -> PromiseFindings:
        """Return everything that the verdict needs."""
        if not self._found.problems:
            self._judge_commits()
            self._judge_exceptions()
            self._judge_removed_records()
            self._add(doubts_of_retries(self._run.retry, self._found, self._run.retry_partitions))
            self._judge_orders()
            self._judge_emptiness()
        counts = {name: count for name, count in self._counts.items() if count}
        numbers = {
            f"pipeline_{name}": self._found.counts[name]
            for name in (
                "inputs",
                "outputs",
                "expected_outputs",
                "matched",
                "outputs_not_judged",
                "retries",
                "dead_letters",
            )
        }
        return PromiseFindings(
            operation_counts={name: number for name, number in numbers.items() if number},
            anomaly_counts=counts,
            anomalies=self._anomalies(counts),
            reasons=self._reasons,
            doubts=self._doubts,
            notes=self._notes,
            replaces=OF_TOPICS,
            knows_order=True,
            accounted_topics=(self._run.sink, *self._run.retry.all_topics),
        )

    def _anomalies(self, counts: Mapping[str, int]) -> list[AnomalyRow]:
        shown: list[AnomalyRow] = []
        kept: Counter[str] = Counter()
        for finding in self._found.findings:
            name = finding.name
            if name not in counts or (name == LATE and self._found.group_of(finding) != self._group):
                continue
            if kept[name] < min(self._limit, counts[name]):
                kept[name] += 1
                shown.append(self._words.anomaly(finding))
        return shown

    def _not_judged(self, names: Sequence[str], why: str) -> None:
        """Drop what was found under these names: it may be legal."""
        for name in names:
            if count := self._counts.pop(name, 0):
                self._doubts[name] = f"{count} {name} found, which may be legal: {why}"

    def _not_excluded(self, names: Sequence[str], why: str) -> None:
        """Keep what was found under these names; there may be more."""
        for name in names:
            self._doubts.setdefault(name, f"{name} cannot be excluded: {why}")

    # ----------------------------------------------------------------------------------- commits

    def _judge_commits(self) -> None:
        run, late = self._run, self._found.late
        if run.keyed:
            self._notes.append("commit-before-output was not judged: which update contains which record cannot be seen")
            return
        if not late and run.group is not None:
            self._doubts[LATE] = (
                f"the brokers saw no commit of group {run.group!r} on {run.source}: check the name that group= gives"
            )
            return
        if not late:
            self._notes.append(
                f"commit-before-output was not judged: the brokers saw no group commit an offset of {run.source}"
            )
            return
        guilty = {group: count for group, count in late.items() if count}
        self._notes.append(f"the commits of group {', '.join(late)} were compared with the outputs")
        if len(guilty) == len(late):
            self._group = min(guilty, key=lambda group: (guilty[group], group))
            self._counts[LATE] = guilty[self._group]
        elif guilty:
            listed = ", ".join(f"group {group} {count} times" for group, count in guilty.items())
            innocent = ", ".join(group for group in late if group not in guilty)
            self._doubts[LATE] = (
                f"offsets of {run.source} were committed before the outputs by {listed}, and never by group "
                f"{innocent}: verify_pipeline(group=) says which group is the pipeline's"
            )

    # ------------------------------------------------------------------------------------ doubts

    def _judge_exceptions(self) -> None:
        counted: dict[tuple[str, int], int] = {}
        first: dict[tuple[str, int], str] = {}
        for what, side, count, shown in self._found.raised:
            kind = (what, side)
            counted[kind] = counted.get(kind, 0) + count
            first.setdefault(kind, shown)
        for (name, side), count in sorted(counted.items()):
            times = "once" if count == 1 else f"for {count} records"
            self._reasons.append(f"{name} {times} ({SIDES[side]}): {first[name, side]}")
        sides = {side for _, side in counted}
        if EXPECTED in sides:
            self._drop([*NAMES] if self._run.keyed else [UNEXPECTED, DUPLICATE, WRONG, *OF_INPUTS])
        if ACTUAL in sides:
            self._drop([MISSING, LATE, *([WRONG] if self._run.keyed else [])])
        if RETRIED in sides:
            self._drop([LATE])
        if DEAD in sides:
            self._drop([MISSING, LATE])
        if others := self._found.other_ids:
            self._reasons.append(
                f"record_id= gives {sum(found for found, _ in others)} outputs another record id than their "
                f"input, so that retries and dead letters cannot be found; the first input is {others[0].first}"
            )

    def _drop(self, names: Sequence[str]) -> None:
        """Forget anomalies that the exceptions, which are reported, may have caused."""
        for name in names:
            self._counts.pop(name, None)
            self._doubts.pop(name, None)

    def _judge_removed_records(self) -> None:
        keyed = self._run.keyed
        source = [part for part in self._run.source_partitions if part.removed]
        if source:
            why = f"{_removed(source)}, which may have required outputs"
            self._not_judged([*NAMES] if keyed else [UNEXPECTED, DUPLICATE, WRONG, *OF_INPUTS], why)
            self._not_excluded([MISSING, WRONG] if keyed else [MISSING], why)
        sink = [part for part in self._run.sink_partitions if part.low or (part.removed and not keyed)]
        if sink:
            why = f"{_removed(sink)}, which may have been outputs"
            self._not_judged([MISSING, LATE], why)
            self._not_excluded([UNEXPECTED, DUPLICATE, WRONG], why)
            self._not_excluded([BOTH] if self._run.retry.dead_letters else [], why)
        if self._run.rewritten:
            listed = ", ".join(self._run.rewritten)
            self._not_judged(
                [LATE], f"offsets of {listed} were written twice (a topic was created again, or a leader lost records)"
            )

    def _add(self, found: RetryDoubts) -> None:
        """Take over what the retries leave open."""
        for names, why in found.not_judged:
            self._not_judged(names, why)
        for names, why in found.not_excluded:
            self._not_excluded(names, why)
        for name, why in found.doubts.items():
            self._doubts.setdefault(name, why)
        self._notes += found.notes

    def _judge_orders(self) -> None:
        for kind, count, first in self._found.undecided:
            if kind == "order":
                self._reasons.append(
                    f"the final output of {count} keys depends on the order of records in several partitions, "
                    f"which is not known (the last of the first key is {first}): produce the records of a key "
                    "to one partition"
                )
            else:
                self._reasons.append(
                    f"record_id= does not tell the keys (or windows) apart: {first} are of different ones and "
                    "have the same record id"
                )
        if self._run.ordered and self._found.counts["inputs"] and not self._found.counts["keyed_inputs"]:
            self._reasons.append(f"the guarantee 'ordered' cannot be judged: no record of {self._run.source} has a key")

    def _judge_emptiness(self) -> None:
        run, counts = self._run, self._found.counts
        if not counts["inputs"]:
            self._reasons.append(f"the source {run.source} is empty: the pipeline had nothing to do")
        elif not counts["outputs"] and counts["dead_letters"]:
            self._notes.append(f"{run.sink} is empty: the job gave up every input, or has not processed it")
        elif not counts["outputs"]:
            note = f" ({run.sink_note})" if run.sink_note else ""
            never = "" if run.commits else f"; no group has committed an offset of {run.source}"
            self._reasons.append(
                f"the job produced nothing: {run.source} has {counts['inputs']} records and {run.sink} is empty{note}"
                f"{never}; the job may have died, or never started"
            )


def _removed(partitions: Sequence[FinalRead]) -> str:
    listed = ", ".join(f"{part.topic}-{part.partition} ({part.removed})" for part in partitions)
    return f"retention, compaction or DeleteRecords removed records of {listed}"
