"""What the retries and dead letters of a pipeline leave open (L6): part of `pipeline_results.py`.

* Removed dead letters may have been the fate of an input. Removed records of retry topics may have kept inputs, and may
  have shown attempts.
* Attempts that only records count may be duplicates, where the guarantee allows these.
* No header with the attempts, or with the due time: a note says what was not judged, or by what; where the caller named
  another header than the usual one, it is a doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..histories.contents import FinalRead
from ..wording import counted
from .attempt_rules import JUDGED_DUES, UNCERTAIN
from .pipeline_findings import BOTH, DUE_ORDER, DUPLICATE, EARLY, LATE, MISSING, TOO_MANY, UNEXPECTED, WITHOUT_REASON
from .pipeline_join import PipelineFindings
from .retries import ATTEMPTS_HEADER, DUE_HEADER, RetryPromise

NamesAndWhy = tuple[Sequence[str], str]


@dataclass(slots=True)
class RetryDoubts:
    """What was not judged, and what cannot be excluded."""

    not_judged: list[NamesAndWhy] = field(default_factory=list[NamesAndWhy])
    """Names of anomalies of which what was found may be legal."""
    not_excluded: list[NamesAndWhy] = field(default_factory=list[NamesAndWhy])
    """Names of anomalies of which there may be more."""
    doubts: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])


def doubts_of_retries(promise: RetryPromise, found: PipelineFindings, partitions: Sequence[FinalRead]) -> RetryDoubts:
    """Return what is open. `partitions`: what was read of the retry topics and the dead letters."""
    doubts = RetryDoubts()
    if promise:
        _removed(promise, partitions, doubts)
        if promise.topics and not found.counts["retries"]:
            listed = " and ".join(promise.topics)
            doubts.notes.append(f"nothing was retried: {listed} has no record")
        elif promise.topics:
            _attempts(promise, found, doubts)
            _dues(promise, found, doubts)
    return doubts


def _removed(promise: RetryPromise, partitions: Sequence[FinalRead], doubts: RetryDoubts) -> None:
    removed = [part for part in partitions if part.removed or part.low]
    letters = [part for part in removed if part.topic == promise.dead_letters]
    if letters:
        why = f"{_listed(letters)}, which may have been dead letters"
        doubts.not_judged.append(([MISSING, LATE], why))
        doubts.not_excluded.append(([DUPLICATE, UNEXPECTED, BOTH, WITHOUT_REASON, TOO_MANY], why))
    retries = [part for part in removed if part not in letters]
    if retries:
        why = f"{_listed(retries)}, which may have kept inputs"
        doubts.not_judged.append(([LATE], why))
        doubts.not_excluded.append(([TOO_MANY] if promise.attempts else [], why))
        doubts.not_excluded.append(([EARLY, DUE_ORDER], why))


def _listed(partitions: Sequence[FinalRead]) -> str:
    listed = ", ".join(f"{part.topic}-{part.partition} ({part.removed})" for part in partitions)
    return f"retention, compaction or DeleteRecords removed records of {listed}"


def _attempts(promise: RetryPromise, found: PipelineFindings, doubts: RetryDoubts) -> None:
    counts, header = found.counts, promise.attempts_header
    without = f"no record of {' and '.join(promise.topics)} has the header {header!r} with a number"
    if promise.attempts is None:
        doubts.notes.append(f"{TOO_MANY} was not judged: attempts= says how often the job may try an input")
    elif uncertain := counts[UNCERTAIN]:
        doubts.doubts[TOO_MANY] = (
            f"a retry topic has {counted(uncertain, 'input')} more often than attempts={promise.attempts} allows, and "
            f"their records have no header {header!r} with the number of the attempt: they may be duplicates, which "
            "the guarantee allows; write the header"
        )
    elif not counts["retries_with_attempts"]:
        if header != ATTEMPTS_HEADER:
            doubts.doubts[TOO_MANY] = f"{without}: check the name that attempts_header= gives"
        else:
            doubts.notes.append(f"{TOO_MANY} was judged by the number of records: {without}")


def _dues(promise: RetryPromise, found: PipelineFindings, doubts: RetryDoubts) -> None:
    counts, header = found.counts, promise.due_header
    listed = " and ".join(promise.topics)
    if not counts["retries_with_due"]:
        text = f"no record of {listed} has the header {header!r} with a time"
        if header != DUE_HEADER:
            doubts.doubts[EARLY] = f"{text}: check the name that due_header= gives"
        else:
            doubts.notes.append(f"{EARLY} was not judged: {text}")
    elif not counts[JUDGED_DUES]:
        doubts.notes.append(
            f"{EARLY} was not judged: no attempt of {listed} can be seen, because no record was sent to another retry "
            "topic, and none failed again"
        )
