"""The anomalies of a pipeline in the user's words, with the records that show them, decoded.

The reducers give places; this module reads those few records again and calls the relation for their inputs, so that the
message says what was expected. A field path names the thing: with `record_id="order"` a message says "order 17".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..checks.record import NotJsonError, Record, text_of
from ..checks.rows import AnomalyRow, OperationRow
from ..histories.commits import NEVER, CommitTimes
from ..histories.contents import FinalRead
from .chunk_records import OutputChunk, record_at, text_of_record
from .pairing import Pairing, Unit
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
    PipelineFinding,
    Place,
)
from .record_ids import IdReader, IdSource, canonical
from .relations import KeyedRelation
from .retry_words import NO_RETRIES, RetryWords
from .shapes import Shape, actual_output, expected_output, is_a, shown

Rows = list[OperationRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWords:
    """Describes what the reducers found."""

    pairing: Pairing
    source: str
    sink: str
    chunks: Sequence[OutputChunk]
    """The chunks of both sides, as they are numbered."""
    commits: Mapping[str, Mapping[int, CommitTimes]]
    partitions: Sequence[FinalRead]
    """What was read of each partition of the source."""
    order_key: IdSource | None = None
    retries: RetryWords = NO_RETRIES

    def anomaly(self, finding: PipelineFinding) -> AnomalyRow:
        """Return the anomaly that a finding is."""
        describe = {
            MISSING: self._missing,
            DUPLICATE: self._duplicate,
            UNEXPECTED: self._unexpected,
            WRONG: self._wrong,
            LATE: self._late,
            OUT_OF_ORDER: self._out_of_order,
            BOTH: self._with_both,
            WITHOUT_REASON: self._of_retries,
            TOO_MANY: self._of_retries,
            EARLY: self._of_retries,
            DUE_ORDER: self._of_dues,
        }[finding.name]
        given = self._record(finding.input)
        output = self._record(finding.output)
        operations, explanation = describe(finding, given, output)
        at = output if output is not None and finding.name != LATE else given
        places = {"retry": finding.retry, "attempt": finding.attempt, "letter": finding.letter}
        others = {name: found for name, place in places.items() if (found := self._record(place))}
        for name, found in others.items():
            word = "dead letter" if name == "letter" else name
            shown = self._shown(word, found, self._id_of_output(found))
            if name == "retry":
                shown.update(self.retries.row(found))
            if name == "attempt" and finding.name == EARLY:
                shown["early_ms"] = finding.early_ms
            operations.append(shown)
        if others and finding.name != MISSING and (finding.name != DUPLICATE or not output):
            at = [*others.values()][-1]
        return AnomalyRow(
            name=finding.name,
            topic=self._topic_of(at, output),
            partition=-1 if at is None else at.partition,
            offsets=[] if at is None or at.offset < 0 else [at.offset],
            operations=operations,
            explanation=explanation,
        )

    # ---------------------------------------------------------------------------------- records

    def _topic_of(self, at: Record | None, output: Record | None) -> str:
        if at is not None and at.topic in self.retries.promise.all_topics:
            return at.topic
        return self.sink if at is output else self.source

    def _record(self, place: Place | None) -> Record | None:
        return None if place is None else record_at(self.chunks[place.chunk], place.row)

    def _noun(self) -> str:
        given = self.pairing.record_id
        return given.rpartition(".")[2] if isinstance(given, str) else "record"

    def _id_of_input(self, given: Record, unit: Unit | None) -> str | None:
        if unit is not None and unit.id is not None:
            return unit.id
        try:
            relation = self.pairing.relation
            if isinstance(relation, KeyedRelation) and self.pairing.record_id is None:
                return canonical(relation.group(given)[0])
            return self.pairing.output_id(given)
        except Exception:
            return None

    def _id_of_output(self, output: Record) -> str | None:
        if self.pairing.by_value:
            return None
        try:
            return self.pairing.output_id(output)
        except Exception:
            return None

    def _name(self, identity: str | None, record: Record) -> str:
        return f"{self._noun()} {identity}" if identity is not None else record.place

    def _unit(self, finding: PipelineFinding, given: Record | None) -> Unit | None:
        """Return the expectation of a finding; None where there is none, or it is by record id only."""
        if given is None or self.pairing.relation is None or isinstance(self.pairing.relation, KeyedRelation):
            return None
        try:
            assert finding.input is not None
            return self.pairing.expected(given)[finding.input.part]
        except Exception:  # a function that is not deterministic
            return None

    def _shown(self, operation: str, record: Record, identity: str | None) -> OperationRow:
        return {
            "operation": operation,
            "topic": record.topic or self.sink,
            "partition": None if record.partition < 0 else record.partition,
            "offset": None if record.offset < 0 else record.offset,
            "timestamp_ms": None if record.timestamp_ms < 0 else record.timestamp_ms,
            "key": None if record.key is None else text_of(record.key),
            "value": text_of(text_of_record(record)),
            "record_id": identity,
        }

    def _retry(self, retry: Record) -> OperationRow:
        return {**self._shown("retry", retry, self._id_of_output(retry)), **self.retries.row(retry)}

    def _expected(self, text: str, identity: str | None) -> OperationRow:
        return {"operation": "expected", "topic": self.sink, "value": text, "record_id": identity}

    def _both(
        self, finding: PipelineFinding, given: Record | None, output: Record | None
    ) -> tuple[Rows, str, Unit | None]:
        """Return the rows of input, expected and actual output, the name of the record, and the expectation."""
        unit = self._unit(finding, given)
        identity = None
        if given is not None:
            identity = self._id_of_input(given, unit)
        elif output is not None:
            identity = self._id_of_output(output)
        rows: Rows = []
        if given is not None:
            rows.append(self._shown("record", given, identity))
        text = finding.expected or (shown(unit.value) if unit is not None else None)
        if text is not None:
            rows.append(self._expected(text, identity))
        if output is not None:
            rows.append(self._shown("output", output, self._id_of_output(output)))
        named = given or output
        assert named is not None
        return rows, self._name(identity, named), unit

    # ------------------------------------------------------------------------------- anomalies

    def _missing(self, finding: PipelineFinding, given: Record | None, _: Record | None) -> tuple[Rows, str]:
        assert given is not None
        rows, name, _unit = self._both(finding, given, None)
        facts, commits = self._fate(given)
        if finding.reads > 1:
            facts += f"; clients were delivered it {finding.reads} times"
            rows[0]["deliveries"] = finding.reads
            if stopped := self._stopped_before(given):
                rows[0]["stopped_group"] = stopped
        retry = self._record(finding.retry)
        lacking, reached = self.retries.without_fate(name, retry)
        if retry is not None:  # the commit of an input that a retry topic has loses nothing
            facts, commits = self.retries.taken(retry)
        return rows + commits, f"{lacking}{reached}{facts}"

    def _stopped_before(self, given: Record) -> str | None:
        """Return the group whose committed offset is that of a record, so that the record is its next one."""
        ends = {group: partitions.get(given.partition, CommitTimes()).end for group, partitions in self.commits.items()}
        return next((group for group, end in ends.items() if end == given.offset), None)

    def _fate(self, given: Record) -> tuple[str, Rows]:
        """Return what the groups that read the source committed, for an input without output."""
        passed: list[str] = []
        behind: list[str] = []
        rows: Rows = []
        for group, partitions in self.commits.items():
            times = partitions.get(given.partition, CommitTimes())
            if times.time_of(given.offset) < NEVER:
                passed.append(group)
                at = next(n for n, offset in enumerate(times.offsets) if offset > given.offset)
                rows.append(self._commit(group, given.partition, times.offsets[at], times.times_ns[at]))
            else:
                behind.append(
                    f"{group} has committed {self.source}-{given.partition} up to offset {times.end} of "
                    f"{self._end(given.partition)} (harrow.await_caught_up({group!r}, {self.source!r}) waits for it)"
                )
        if passed:
            return (
                f", and group {' and '.join(passed)} has committed offset {rows[0]['offset']}: the record will not be "
                "read again"
            ), rows
        if behind:
            return f": the job has not finished, because group {'; group '.join(behind)}", rows
        return "", rows

    def _end(self, partition: int) -> int | str:
        return next((part.high for part in self.partitions if part.partition == partition), "?")

    def _commit(self, group: str, partition: int, offset: int, time_ns: int) -> OperationRow:
        return {
            "operation": "commit",
            "topic": self.source,
            "partition": partition,
            "offset": offset,
            "group": group,
            "completed_ns": time_ns,
        }

    def _duplicate(self, finding: PipelineFinding, given: Record | None, output: Record | None) -> tuple[Rows, str]:
        rows, name, _ = self._both(finding, given, output)
        if output is None:
            dead = self.retries.promise.dead_letters
            return rows, f"{dead} has more dead letters of {name} than {self.source} has inputs"
        text = f"{self.sink} has the output for {name} more often than the inputs require"
        retry, first = self._record(finding.retry), self._record(finding.first)
        if retry is None or first is None:
            return rows, text
        rows.append(self._retry(first))
        return rows, f"{text}; {self.retries.again(first, retry)}"

    def _with_both(self, finding: PipelineFinding, given: Record | None, output: Record | None) -> tuple[Rows, str]:
        rows, name, _ = self._both(finding, given, output)
        return rows, (
            f"{name} has an output in {self.sink}, and lies in {self.retries.promise.dead_letters}; {self.source} does "
            "not have it again, as after a replay"
        )

    def _unexpected(self, finding: PipelineFinding, given: Record | None, output: Record | None) -> tuple[Rows, str]:
        if output is None:
            return self._unknown_letter(finding)
        rows, name, _ = self._both(finding, given, output)
        if self.pairing.by_value:
            return (rows, f"no record of {self.source} requires the output {text_of(text_of_record(output))}")
        return rows, f"no record of {self.source} requires an output for {name}"

    def _of_retries(self, finding: PipelineFinding, given: Record | None, _: Record | None) -> tuple[Rows, str]:
        """Describe a finding about a dead letter, or about attempts."""
        letter, attempt, retry = map(self._record, (finding.letter, finding.attempt, finding.retry))
        any_of_them = letter or attempt or retry
        assert any_of_them is not None
        rows: Rows = []
        identity = self._id_of_output(any_of_them)
        if given is not None:
            rows.append(self._shown("record", given, identity))
        name = self._name(identity, any_of_them)
        if finding.name == WITHOUT_REASON:
            assert letter is not None
            return rows, self.retries.lacking(name, letter, given)
        if finding.name == EARLY:
            assert retry is not None
            assert attempt is not None
            return rows, self.retries.early(name, retry, attempt, finding.early_ms)
        return rows, self.retries.too_many(name, any_of_them, finding)

    def _of_dues(self, finding: PipelineFinding, _given: Record | None, _output: Record | None) -> tuple[Rows, str]:
        """Describe two retries of a key that were sent in the wrong order."""
        places = (finding.retry, finding.attempt, finding.after_input, finding.after_output)
        retry, attempt, later, before = map(self._record, places)
        assert retry is not None
        assert attempt is not None
        assert later is not None
        assert before is not None
        rows = [
            self._retry(later),
            self._shown("attempt", before, self._id_of_output(before)),
        ]
        return rows, (
            f"{retry.place} was due at {self.retries.due(retry)}, before {later.place} with the same "
            f"{self._order_of(retry)} at {self.retries.due(later)}, but it was sent as {attempt.place} behind "
            f"{before.place}"
        )

    def _unknown_letter(self, finding: PipelineFinding) -> tuple[Rows, str]:
        letter = self._record(finding.letter)
        assert letter is not None
        name = self._name(self._id_of_output(letter), letter)
        return ([], f"{letter.topic} has a dead letter of {name}, and no record of {self.source} has this record id")

    def _wrong(self, finding: PipelineFinding, given: Record | None, output: Record | None) -> tuple[Rows, str]:
        assert output is not None
        rows, name, unit = self._both(finding, given, output)
        expected = finding.expected
        if unit is not None:
            return rows, f"the output for {name} is wrong: {self._difference(unit, output)}"
        if expected is not None:
            of = f" of {finding.records} records" if finding.records else ""
            return rows, (
                f"the final output for {name}{of} is wrong: expected {expected}, is {text_of(text_of_record(output))}"
            )
        return rows, f"the output for {name} is wrong: it is {text_of(text_of_record(output))}"

    def _difference(self, unit: Unit, output: Record) -> str:
        """Return what differs: the fields of a mapping, or the whole value."""
        value: Any = unit.value
        if is_a(value, tuple) and len(value) == 2:
            value = value[1]
        try:
            actual = output.json
        except NotJsonError:
            actual = None
        rows = self.pairing.rows
        if unit.shape.kind == "object" and is_a(actual, dict) and is_a(value, Mapping):
            wanted: Mapping[str, Any] = value
            fields = cast("dict[str, Any]", actual)
            differing = [
                f"{name} expected {shown(wanted[name])}, "
                + (f"is {shown(fields[name])}" if name in fields else "is missing")
                for name in unit.shape.fields
                if actual_output(output, Shape("object", (name,)), rows)
                != expected_output({name: wanted[name]}, rows).text
            ]
            if differing:
                return "; ".join(differing)
        own = text_of(text_of_record(output))
        if unit.shape.with_key or unit.shape.kind == "record":
            key = unit.value.key if isinstance(unit.value, Record) else None
            expected = shown(unit.value) if key is None else f"key {text_of(key)}, value {shown(unit.value)}"
            return f"expected {expected}, is key {text_of(output.key)}, value {own}"
        return f"expected {shown(unit.value)}, is {own}"

    def _late(self, finding: PipelineFinding, given: Record | None, output: Record | None) -> tuple[Rows, str]:
        assert given is not None
        rows, name, _ = self._both(finding, given, output)
        group, commit_ns, output_ns = [*self.commits][finding.group], finding.commit_ns, finding.output_ns
        times = self.commits[group][given.partition]
        offset = times.offsets[times.times_ns.index(commit_ns)]
        rows.append(self._commit(group, given.partition, offset, commit_ns))
        what = f"group {group} committed offset {offset} of {self.source}-{given.partition}"
        if output is None or output_ns >= NEVER:
            return rows, f"{what}, but {self.sink} has no output for {name}"
        late_s = (output_ns - commit_ns) / 1e9
        return rows, (
            f"{what} {late_s:.3f} s before the output for {name} was acknowledged: a crash in between loses it"
        )

    def _out_of_order(self, finding: PipelineFinding, given: Record | None, output: Record | None) -> tuple[Rows, str]:
        assert given is not None
        assert output is not None
        rows, _name, _ = self._both(finding, given, output)
        later = self._record(finding.after_input)
        earlier = self._record(finding.after_output)
        assert later is not None
        assert earlier is not None
        rows += [
            self._shown("record", later, self._id_of_input(later, None)),
            self._shown("output", earlier, self._id_of_output(earlier)),
        ]
        return rows, (
            f"{given.place} comes before {later.place}, with the same {self._order_of(given)}, but its output "
            f"{output.place} comes after the output {earlier.place}"
        )

    def _order_of(self, given: Record) -> str:
        """Return by what an input has an order."""
        if self.order_key is None:
            return f"key {text_of(given.key)}"
        return f"order key {canonical(IdReader('order_key', self.order_key).of(given))}"
