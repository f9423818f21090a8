"""The checks of a pipeline in plain Python, for small histories: what the Spark stages are tested against (L5).

`judge_pipeline` counts the anomalies by name. It shares the relations, the shapes and the pairing with the stages,
because these say what an expectation is; it does not share the matching, the times, the order and the folding. Where
the stages match outputs in one pass, the oracle tries every assignment and takes the best. The head of
`pipeline_checks.py` defines the rules.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import NEVER, Commit
from harrow.harness.promises.pairing import Pairing, Unit
from harrow.harness.promises.record_ids import canonical
from harrow.harness.promises.relations import KeyedRelation, RecordRelation
from harrow.harness.promises.retries import RetryPromise
from harrow.harness.promises.shapes import Shape, actual_output
from oracle_of_attempts import Attempts, dues_out_of_order
from oracle_of_retries import Fates

MISSING, DUPLICATE, UNEXPECTED = "missing-output", "duplicate-output", "unexpected-output"
WRONG, LATE, OUT_OF_ORDER = "wrong-output", "commit-before-output", "out-of-order-output"
OutputTime = Callable[[Record], int]


class Expectation(NamedTuple):
    """An expected output and its input."""

    record: Record
    part: int
    shape: Shape
    text: str

    def equals(self, output: Record, pairing: Pairing) -> bool:
        """True when `output` is as expected."""
        return self.text == actual_output(output, self.shape, pairing.rows)


class Judgement(NamedTuple):
    """What was found."""

    counts: Counter[str]
    late: Counter[str]
    """`commit-before-output` by group."""
    undecided: int = 0
    """Ids of which the result depends on an order that is not known."""


def _units(pairing: Pairing, record: Record) -> list[Unit]:
    """Return `pairing.expected` without its fast way."""
    if pairing.relation is None:
        return pairing.expected(record)
    assert isinstance(pairing.relation, RecordRelation)
    return [pairing.unit(given, (record,)) for given in pairing.relation.outputs(record)]


def judge_pipeline(
    inputs: Sequence[Record],
    outputs: Sequence[Record],
    pairing: Pairing,
    *,
    commits: Sequence[Commit] = (),
    time_of: OutputTime = lambda _: 0,
    retries: Sequence[Record] = (),
    letters: Sequence[Record] = (),
    promise: RetryPromise | None = None,
    reads_of: Callable[[Record], int] = lambda _: -1,
    producer_of: Callable[[Record], int] = lambda _: -1,
) -> Judgement:
    """Judge a pipeline whose functions raise nothing. `time_of`: of all records; 0 where it is not known."""
    if isinstance(pairing.relation, KeyedRelation):
        return _judge_keyed(inputs, outputs, pairing)
    expected: dict[str, list[Expectation]] = defaultdict(list)
    actual: dict[str, list[Record]] = defaultdict(list)
    for record in inputs:
        for index, unit in enumerate(_units(pairing, record)):
            name = unit.text if unit.id is None else unit.id
            expected[name].append(Expectation(record, index, unit.shape, unit.text))
    shapes = {item.shape for items in expected.values() for item in items} or {Shape("raw")}
    for output in outputs:
        if pairing.by_value:
            actual[actual_output(output, min(shapes), pairing.rows)].append(output)
        elif (found := pairing.output_id(output)) is not None:
            actual[found].append(output)
    judge = _Judge(pairing, commits, time_of)
    retried: dict[str | None, int] = {}
    for record in retries:
        found = pairing.output_id(record)
        retried[found] = min(time_of(record), retried.get(found, NEVER))
    given = _named(inputs if pairing.record_id is not None else (), pairing)
    dead = _named(letters, pairing)
    for name in sorted({*expected, *actual, *dead}):
        fates = Fates(given.get(name, []), dead.get(name, []), time_of)
        judge.judge(expected[name], actual[name], fates, retried.get(name))
    if promise is not None:
        again, sent = _named(retries, pairing), list[tuple[Record, Record]]()
        for name in {*again, *dead}:
            attempts = Attempts(
                promise, given.get(name, []), again.get(name, []), dead.get(name, []), time_of, reads_of, producer_of
            )
            judge.counts += attempts.judge()
            sent += attempts.sent()
        judge.counts += dues_out_of_order(sent, promise)
    judge.order()
    return Judgement(judge.counts, judge.late)


def _named(records: Iterable[Record], pairing: Pairing) -> Mapping[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if (name := pairing.output_id(record)) is not None:
            found[name].append(record)
    return found


class _Judge:
    """Judges the ids one after the other."""

    def __init__(self, pairing: Pairing, commits: Sequence[Commit], time_of: OutputTime) -> None:
        self._pairing = pairing
        self._commits = commits
        self._groups = sorted({commit.group for commit in commits})
        self._time_of = time_of
        self.counts: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self._pairs: list[tuple[Expectation, Record]] = []

    def judge(
        self, expected: Sequence[Expectation], actual: Sequence[Record], fates: Fates, retried_ns: int | None = None
    ) -> None:
        """Judge the expected and actual outputs of one id."""
        by_text: dict[tuple[Shape, str], list[Expectation]] = defaultdict(list)
        for item in expected:
            by_text[item.shape, item.text].append(item)
        classes = list(by_text.values())
        assignment = self._best(classes, actual)
        of_class = [
            [output for output, chosen in zip(actual, assignment, strict=True) if chosen == at]
            for at in range(len(classes))
        ]
        strangers = assignment.count(None)
        lacking = [
            0
            if self._overwritten(at, classes, of_class) or fates.covered([item.record for item in items])
            else max(0, self._needed(items) - len(of_class[at]))
            for at, items in enumerate(classes)
        ]
        wrong = strangers if classes else 0
        self.counts[UNEXPECTED] += strangers - wrong
        self.counts[WRONG] += wrong
        for at in sorted(range(len(classes)), key=lambda at: self._priority(classes[at])):
            paired = min(wrong, lacking[at])
            wrong -= paired
            lacking[at] -= paired
        self.counts[MISSING] += sum(lacking)
        for at, items in enumerate(classes):
            self.counts[DUPLICATE] += max(0, len(of_class[at]) - len(items))
            letters = fates.of([item.record for item in items])
            self._judge_commits(items, [*of_class[at], *letters], lacking[at], retried_ns)
            if len(items) == 1:
                self._pairs += [(items[0], output) for output in of_class[at]]
        self.counts += fates.judge(
            [([item.record for item in items], len(outputs)) for items, outputs in zip(classes, of_class, strict=True)]
        )

    @staticmethod
    def _priority(items: Sequence[Expectation]) -> tuple[int, int, int]:
        first = min(items, key=lambda item: (item.record.partition, item.record.offset))
        return -len(first.shape.fields), first.record.partition, first.record.offset

    def _needed(self, items: Sequence[Expectation]) -> int:
        if self._pairing.by_value:
            return len(items)
        return max(Counter(id(item.record) for item in items).values())

    def _best(self, classes: Sequence[Sequence[Expectation]], actual: Sequence[Record]) -> list[int | None]:
        """Return the class of each output (None: of none): the assignment with the fewest missing and doubled."""
        choices: list[Sequence[int | None]] = []
        for output in actual:
            fitting: list[int | None] = [
                at for at, items in enumerate(classes) if items[0].equals(output, self._pairing)
            ]
            choices.append(fitting or [None])

        def cost(assignment: Iterable[int | None]) -> tuple[int, int]:
            counted = Counter(assignment)
            return (
                sum(max(0, self._needed(items) - counted[at]) for at, items in enumerate(classes)),
                sum(max(0, counted[at] - len(items)) for at, items in enumerate(classes)),
            )

        return list(min(itertools.product(*choices), key=cost))

    def _overwritten(
        self, at: int, classes: Sequence[Sequence[Expectation]], of_class: Sequence[Sequence[Record]]
    ) -> bool:
        """True for a row that a later input's row may have replaced."""
        if not self._pairing.rows.loose:
            return False
        own = [item.record for item in classes[at]]
        last = max(own, key=lambda record: (record.partition, record.offset))
        later = [
            item.record
            for other, items in enumerate(classes)
            if other != at and of_class[other]
            for item in items
            if all(item.record is not record for record in own)
        ]
        return any(record.partition != last.partition or record.offset > last.offset for record in later)

    def _judge_commits(
        self, items: Sequence[Expectation], outputs: Sequence[Record], missing: int, retried_ns: int | None
    ) -> None:
        times = sorted(self._time_of(output) for output in outputs)
        first = times[0] if times else 0
        while len(times) + missing < len(items):
            times.insert(0, first)
        times += [NEVER] * missing
        for group in self._groups:
            committed = sorted(self._committed(group, item.record) for item in items)
            if retried_ns is not None:
                committed = sorted(NEVER if retried_ns <= time else time for time in committed)
            self.late[group] += sum(commit < time for commit, time in zip(committed, times, strict=False))

    def _committed(self, group: str, record: Record) -> int:
        """Return when the group had first committed beyond a record."""
        return min(
            (
                commit.completed_ns
                for commit in self._commits
                if commit.group == group and commit.partition == record.partition and commit.offset > record.offset
            ),
            default=NEVER,
        )

    def order(self) -> None:
        """Count the outputs that come after the output of a later input with the same key."""
        lanes: dict[tuple[object, ...], dict[tuple[int, int], int]] = defaultdict(dict)
        for item, output in self._pairs:
            if item.record.key is None:
                continue
            lane = lanes[item.record.key, item.record.partition, output.partition]
            unit = (item.record.offset, item.part)
            lane[unit] = min(output.offset, lane.get(unit, output.offset))
        for lane in lanes.values():
            self.counts[OUT_OF_ORDER] += sum(
                any(earlier < own and other > unit[0] for (other, _), earlier in lane.items())
                for unit, own in lane.items()
            )


def _judge_keyed(inputs: Sequence[Record], outputs: Sequence[Record], pairing: Pairing) -> Judgement:
    """Judge the final outputs of `folded` and `windowed`."""
    relation = pairing.relation
    assert isinstance(relation, KeyedRelation)
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(inputs, key=lambda record: (record.partition, record.offset)):
        groups[canonical(relation.group(record))].append(record)
    expected: dict[str, tuple[Expectation, ...]] = {}
    for records in groups.values():
        units = [pairing.unit(value, records, relation.group(records[0])[0]) for value in relation.candidates(records)]
        assert units[0].id is not None
        assert units[0].id not in expected, "the record id does not tell two groups apart"
        expected[units[0].id] = tuple(Expectation(records[-1], 0, unit.shape, unit.text) for unit in units)
    actual = _by_id(outputs, pairing)
    counts: Counter[str] = Counter()
    undecided = 0
    for name in sorted({*expected, *actual}):
        if name not in expected:
            counts[UNEXPECTED] += 1
        elif name not in actual:
            counts[MISSING] += 1
        else:
            undecided += _judge_final(expected[name], actual[name], pairing, counts)
    return Judgement(counts, Counter(), undecided)


def _by_id(outputs: Iterable[Record], pairing: Pairing) -> Mapping[str, list[Record]]:
    """Return the outputs by id: of a topic the last one in each partition."""
    found: dict[str, dict[object, Record]] = defaultdict(dict)
    for number, output in enumerate(sorted(outputs, key=lambda output: (output.partition, output.offset))):
        name = pairing.output_id(output)
        if name is not None:
            found[name][number if pairing.rows.loose else output.partition] = output
    return {name: list(last.values()) for name, last in found.items()}


def _judge_final(
    expected: Sequence[Expectation], outputs: Sequence[Record], pairing: Pairing, counts: Counter[str]
) -> int:
    """Judge the final outputs of an id; return 1 if that depends on an order that is not known."""
    good = [output for output in outputs if any(item.equals(output, pairing) for item in expected)]
    if good:
        if pairing.rows.loose:
            counts[WRONG] += len(outputs) - len(good)
            counts[DUPLICATE] += len(good) - 1
        return 0
    if len({item.text for item in expected}) > 1:
        return 1
    counts[WRONG] += 1
    return 0
