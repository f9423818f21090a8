"""The anomalies of topics in the user's words, with the records that show them, decoded.

The reducers give chunks and rows; this module reads those few records again. A field path names the thing: with
`record_id="order"` a message says "order 17", with a function "record 17".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..checks.record import Record, text_of
from ..checks.rows import AnomalyRow, OperationRow
from ..histories.contents import ContentsChunk
from ..wording import times
from .chunk_records import record_at
from .expectations import ExpectedChunk
from .record_ids import IdReader, canonical
from .topic_checks import TopicFinding

Rows = list[OperationRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWords:
    """Describes what the reducers found."""

    topics: Sequence[str]
    contents: Sequence[ContentsChunk]
    expected: Sequence[ExpectedChunk]
    id_reader: IdReader | None = None
    key_reader: IdReader | None = None

    def anomaly(self, found: TopicFinding) -> AnomalyRow:
        """Return the anomaly that a finding is."""
        records = [record_at(self.contents[chunk], row) for chunk, row in found.records]
        describe = {
            "missing": self._missing,
            "unexpected": self._unexpected,
            "duplicate": self._duplicate,
            "split-key": self._split_key,
            "out-of-order": self._out_of_order,
        }[found.name]
        operations, explanation = describe(found, records)
        partitions = {(record.topic, record.partition) for record in records}
        topic, partition = partitions.pop() if len(partitions) == 1 else (self._topic(records), -1)
        return AnomalyRow(
            name=found.name,
            topic=topic,
            partition=partition,
            offsets=[record.offset for record in records],
            operations=operations,
            explanation=explanation,
        )

    def _topic(self, records: Sequence[Record]) -> str:
        return ", ".join(dict.fromkeys(record.topic for record in records)) or ", ".join(self.topics)

    @property
    def _noun(self) -> str:
        source = None if self.id_reader is None else self.id_reader.source
        return source.rpartition(".")[2] if isinstance(source, str) else "record"

    def _id_text(self, record: Record) -> str | None:
        """Return the id of a record that the mapper could read; a function of the user may be random nevertheless."""
        if self.id_reader is None:
            return None
        try:
            return canonical(self.id_reader.of(record))
        except Exception:
            return None

    def _name(self, record: Record) -> str:
        identity = self._id_text(record)
        return f"the record {text_of(record.value)}" if identity is None else f"{self._noun} {identity}"

    def _key(self, record: Record) -> str:
        if self.key_reader is None:
            return text_of(record.key)
        try:
            return canonical(self.key_reader.of(record))
        except Exception:
            return text_of(record.key)

    def _shown(self, record: Record) -> OperationRow:
        return {
            "operation": "record",
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": text_of(record.key),
            "value": text_of(record.value),
            "record_id": self._id_text(record),
        }

    def _missing(self, found: TopicFinding, records: list[Record]) -> tuple[Rows, str]:
        assert found.expected is not None
        chunk, row = found.expected
        identity, position = self.expected[chunk].ids()[row], self.expected[chunk].start + row
        where = " or ".join(self.topics)
        if records:
            text = (
                f"{self._noun} {identity} was believed sent {times(found.claimed)}, but {where} has it "
                f"{times(found.there)}"
            )
        else:
            text = f"{self._noun} {identity} was believed sent, but is in no partition of {where}"
        expected: OperationRow = {"operation": "expected", "record_id": identity, "position": position}
        return [expected, *map(self._shown, records)], text

    def _unexpected(self, _: TopicFinding, records: list[Record]) -> tuple[Rows, str]:
        text = (
            f"{self._name(records[0])} is in {_places(records)}, but the application does not believe that it sent "
            "this record"
        )
        return list(map(self._shown, records)), text

    def _duplicate(self, found: TopicFinding, records: list[Record]) -> tuple[Rows, str]:
        believed = f"was believed sent {times(found.claimed)}" if self.expected else "is expected once"
        more = "" if found.copies == len(records) else ", …"
        text = (
            f"{self._name(records[0])} {believed}, but {records[0].topic} has it {times(found.copies)}: "
            f"{_places(records)}{more}"
        )
        return list(map(self._shown, records)), text

    def _split_key(self, found: TopicFinding, records: list[Record]) -> tuple[Rows, str]:
        text = (
            f"the records of key {self._key(records[0])} are in {found.partitions} partitions of "
            f"{records[0].topic}, so they have no order: {_places(records)}"
        )
        return list(map(self._shown, records)), text

    def _out_of_order(self, found: TopicFinding, records: list[Record]) -> tuple[Rows, str]:
        first, second = records
        text = (
            f"{self._name(second)} was sent before {self._name(first)} of the same key {self._key(first)}, but is "
            f"after it in the log: {second.place}, after {first.place}"
        )
        sent: Rows = [{**self._shown(record), "sent": at} for record, at in zip(records, found.sent, strict=True)]
        return sent, text


def _places(records: Sequence[Record]) -> str:
    return ", ".join(record.place for record in records)
