"""The rules of attempts for one record id: how many there are, and when they begin (L5); part of `Compare`.

How many attempts were made, `made`: the number in the header. Spring Kafka counts the attempt that is next: where the
least number in the retry topics of an id is 2, `made` is one less. For a dead letter whose id no retry topic has, the
lower reading counts.

`too-many-attempts`, one finding for each id. With `attempts=N`:

* by the header: a record of a retry topic with N or more attempts asks for another one; a dead letter has more than N;
* the count began again: more producer ids wrote records that count one attempt than the inputs were delivered to
  clients. So a process that did not receive the input wrote one, for a later attempt. A producer that sends a record
  again without receiving the input again has the same producer id. Compared are the records of the topic that had the
  first of them; a scheduler wrote the others. The last of them is written after the first was due. Not judged where
  no tap shows a delivery, or a record has no producer id;
* by records, where no record of the id has the header: a retry topic has more than N - 1 records for each input. Where
  the guarantee allows duplicates, such a record may be one, so this is a doubt (`uncertain-attempts`).

`attempt-before-due`: a record that shows an attempt was written before the next attempt was due, by more than the
tolerance.

* From topic to topic: records with the same number of attempts and the same due time. The topic of the first of them is
  the delay topic; the records in the other topics were sent by the scheduler, and are attempts.
* By the next failure: a record with `made + 1` attempts in a retry topic or the dead letters follows from an attempt
  after a record with `made`. Of several of these the earliest due time counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .pipeline_findings import EARLY, TOO_MANY, Findings, PipelineFinding

if TYPE_CHECKING:
    from .pipeline_rows import IdRows, LetterRow, RetryRow
    from .retries import RetryPromise

UNCERTAIN = "uncertain-attempts"
JUDGED_DUES = "judged_dues"
"""The count of the records that show an attempt with a due time."""
NEXT_IS_COUNTED = 2
"""The least number of attempts in a retry topic where the header counts the attempt that is next."""


def judge_attempts(promise: RetryPromise, rows: IdRows, findings: Findings) -> None:
    """Judge the attempts of an id."""
    if rows.retries or rows.letters:
        if promise.attempts is not None:
            _judge_number(promise, promise.attempts, rows, findings)
        _judge_times(promise, rows, findings)


def _shift(rows: IdRows) -> int:
    """Return how many attempts less than the header says were made."""
    known = [row.attempts for row in rows.retries if row.attempts >= 0]
    return 1 if min(known, default=NEXT_IS_COUNTED) == NEXT_IS_COUNTED else 0


def _judge_number(promise: RetryPromise, most: int, rows: IdRows, findings: Findings) -> None:
    shift = _shift(rows)
    place = rows.inputs[0].place if rows.inputs else None
    known = [row for row in rows.retries if row.attempts >= 0]
    furthest = max(known, key=lambda row: row.attempts, default=None)
    letter = max(rows.letters, key=lambda row: row.attempts, default=None)
    if furthest is not None and furthest.attempts - shift >= most:
        findings.add(PipelineFinding(name=TOO_MANY, input=place, retry=furthest.place, by="header"))
    elif letter is not None and letter.attempts - shift > most:
        findings.add(PipelineFinding(name=TOO_MANY, input=place, letter=letter.place, by="header"))
    elif known:
        again = _begun_again(rows, [row for row in known if row.attempts - shift == 1])
        if again is not None:
            findings.add(PipelineFinding(name=TOO_MANY, input=place, retry=again.place, by="begun again"))
    elif rows.retries:
        topic, count = _fullest(rows.retries)
        if rows.inputs and count > len(rows.inputs) * (most - 1):
            name = TOO_MANY if promise.once else UNCERTAIN
            last = [row for row in rows.retries if row.topic == topic][-1]
            findings.add(PipelineFinding(name=name, input=place, retry=last.place, by="records", records=count))


def _fullest(retries: Iterable[RetryRow]) -> tuple[int, int]:
    """Return the retry topic with the most records, and how many it has."""
    counts = Counter(row.topic for row in retries)
    return max(counts.items(), key=lambda item: (item[1], -item[0]))


def _begun_again(rows: IdRows, first: Sequence[RetryRow]) -> RetryRow | None:
    """Return the last record that counts one attempt where there are too many of them."""
    reads = [given.reads for given in rows.inputs]
    if not first or not reads or min(reads) < 1:
        return None
    written = sorted(first, key=lambda row: (row.sent_ms, row.topic, row.place))
    own = [row for row in written if row.topic == written[0].topic]
    producers = {row.producer for row in own}
    due_ms = min(row.due_ms for row in own)
    known = -1 not in producers
    return own[-1] if known and len(producers) > sum(reads) and own[-1].sent_ms > due_ms else None


def _judge_times(promise: RetryPromise, rows: IdRows, findings: Findings) -> None:
    waiting = [row for row in rows.retries if row.due_ms >= 0]
    place = rows.inputs[0].place if rows.inputs else None
    shown: list[tuple[RetryRow | LetterRow, RetryRow]] = [
        *sent_between_topics(rows.retries),
        *_failed([*rows.retries, *rows.letters], waiting),
    ]
    early: dict[tuple[int, int], tuple[RetryRow | LetterRow, RetryRow]] = {}
    for attempt, wait in shown:
        findings.counts[JUDGED_DUES] += 1
        if attempt.sent_ms < wait.due_ms - promise.tolerance_ms:
            early.setdefault((attempt.place.chunk, attempt.place.row), (attempt, wait))
    for attempt, wait in early.values():
        early_ms = wait.due_ms - attempt.sent_ms
        findings.add(
            PipelineFinding(name=EARLY, input=place, retry=wait.place, attempt=attempt.place, early_ms=early_ms)
        )


def sent_between_topics(retries: Sequence[RetryRow]) -> list[tuple[RetryRow, RetryRow]]:
    """Return the records that were sent from one retry topic to another, each with the first that waited."""
    same: dict[tuple[int, int], list[RetryRow]] = defaultdict(list)
    for row in retries:
        if row.due_ms >= 0:
            same[row.attempts, row.due_ms].append(row)
    pairs: list[tuple[RetryRow, RetryRow]] = []
    for own in same.values():
        first = min(own, key=lambda row: (row.sent_ms, row.topic, row.place))
        pairs += [(row, first) for row in own if row.topic != first.topic]
    return pairs


def _failed(
    rows: Sequence[RetryRow | LetterRow], waiting: Sequence[RetryRow]
) -> list[tuple[RetryRow | LetterRow, RetryRow]]:
    """Return the records that show a failed attempt, each with the record that waited for it and was due first."""
    first: dict[int, RetryRow] = {}
    for row in sorted(waiting, key=lambda row: (row.due_ms, row.place)):
        first.setdefault(row.attempts, row)
    return [(row, first[row.attempts - 1]) for row in rows if row.attempts > 0 and row.attempts - 1 in first]
