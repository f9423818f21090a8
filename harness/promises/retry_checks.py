"""The rules of retry topics and dead letters for one record id: part of the reducer `Compare` (L5).

`tests/support/oracle_of_retries.py` has the same rules in plain Python. The fate of an input is its output or a dead
letter.

* A dead letter is one of an input of its id with the same key and value. Where no input of the id has its key and
  value, it may be one of each.
* `missing-output`: a class whose last input was written before a dead letter of it lacks no output. An input that was
  written again after its last dead letter (a replay) needs an output or another dead letter.
* `output-and-dead-letter`: of n equal inputs, more than n have an output or a dead letter, each input counted once for
  each. So a replay, which is in the source twice, may have both. One finding for each input that must have both.
* `dead-letter-without-reason`: a dead letter without a reason in its headers (`retries.REASON_HEADERS`), or with a key
  or a value that no input of its id has.
* `duplicate-output`: more dead letters than inputs. `unexpected-output`: a dead letter, and no input has its id.

`attempt_rules.py` has the rules about attempts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..histories.commits import NEVER
from .pipeline_findings import BOTH, DUPLICATE, UNEXPECTED, WITHOUT_REASON, Findings, PipelineFinding, Place

if TYPE_CHECKING:
    from .pipeline_rows import Content, IdRows, InputRow, LetterRow, OutputRow, RetryRow, UnitRow


def letters_of(members: Sequence[UnitRow], rows: IdRows) -> list[LetterRow]:
    """Return the dead letters that may be of the inputs of a class."""
    if not rows.letters:
        return []
    own = {unit.content for unit in members}
    known = {given.content for given in rows.inputs}
    return [letter for letter in rows.letters if letter.content in own or letter.content not in known]


def covers(letters: Sequence[LetterRow], members: Sequence[UnitRow]) -> bool:
    """True where a dead letter of a class was written after each of its inputs; unknown times count as such."""
    last = max(unit.time for unit in members)
    return any((letter.time or NEVER) > last for letter in letters)


def last_retry(retries: Sequence[RetryRow]) -> Place | None:
    """Return the place of the last record in a retry topic."""
    last = max(retries, key=lambda row: (row.time, row.sent_ms, row.topic, row.place.offset), default=None)
    return None if last is None else last.place


def sent_again(retries: Sequence[RetryRow]) -> tuple[Place | None, Place | None]:
    """Return the first of its kind, and the last record that a retry topic has again.

    The same retry has the same number of attempts and the same due time.
    """
    first: dict[tuple[int, int, int], RetryRow] = {}
    found: tuple[Place | None, Place | None] = None, None
    for row in sorted(retries, key=lambda row: (row.time, row.sent_ms, row.place.offset)):
        if row.attempts >= 0 and row.due_ms >= 0:
            earlier = first.setdefault((row.topic, row.attempts, row.due_ms), row)
            if earlier is not row:
                found = earlier.place, row.place
    return found


def judge_letters(
    rows: IdRows,
    classes: Sequence[Sequence[UnitRow]],
    matched: Sequence[Sequence[OutputRow]],
    letters: Sequence[Sequence[LetterRow]],
    findings: Findings,
) -> None:
    """Judge how many dead letters of an id there are."""
    if not rows.letters:
        return
    for letter in rows.letters:
        if not letter.has_reason or not _has_input(letter, rows):
            likest = max(rows.inputs, key=lambda given: _likeness(letter, given), default=None)
            place = None if likest is None else likest.place
            findings.add(PipelineFinding(name=WITHOUT_REASON, input=place, letter=letter.place))
    if not rows.inputs:
        for letter in rows.letters:
            findings.add(PipelineFinding(name=UNEXPECTED, letter=letter.place))
        return
    both = [_with_both(members, outputs, own) for members, outputs, own in zip(classes, matched, letters, strict=True)]
    for _ in range(max(both, default=0)):
        at = both.index(max(both))
        given, output, letter = classes[at][-1], matched[at][-1], letters[at][-1]
        findings.add(PipelineFinding(name=BOTH, input=given.place, output=output.place, letter=letter.place))
    for letter in _surplus(rows):
        findings.add(PipelineFinding(name=DUPLICATE, input=rows.inputs[0].place, letter=letter.place))


def _has_input(letter: LetterRow, rows: IdRows) -> bool:
    return not rows.inputs or any(given.content == letter.content for given in rows.inputs)


def _likeness(letter: LetterRow, given: InputRow) -> int:
    """Return in how much an input is like a dead letter: the value counts more than the key."""
    key, value = letter.content
    return (given.content[1] == value) * 2 + (given.content[0] == key)


def _with_both(members: Sequence[UnitRow], outputs: Sequence[OutputRow], letters: Sequence[LetterRow]) -> int:
    """Return how many inputs of a class must have an output and a dead letter."""
    per_input = Counter((unit.place.chunk, unit.place.row) for unit in members)
    inputs = len(per_input)
    with_output = min(inputs, -(-len(outputs) // max(per_input.values())))
    return max(0, with_output + min(inputs, len(letters)) - inputs)


def _surplus(rows: IdRows) -> list[LetterRow]:
    """Return the dead letters that no input is left for."""
    left: Counter[Content] = Counter(given.content for given in rows.inputs)
    known = set(left)
    unmatched: list[LetterRow] = []
    changed: list[LetterRow] = []
    for letter in rows.letters:
        if letter.content not in known:
            changed.append(letter)
        elif left[letter.content]:
            left[letter.content] -= 1
        else:
            unmatched.append(letter)
    return unmatched + changed[left.total() :]
