"""The rules of a topic for the single records of a producer's batch: keys of compacted topics, times (KIP-467).

Owns: `RecordChecks`. A batch of which one record is refused is refused as a whole; the error names each record that
is at fault (`RecordsRefusedError`).

    a record without a key in a compacted topic                                            invalid_record
    a time outside message.timestamp.before.max.ms and message.timestamp.after.max.ms,
    where the producer sets the times                                                      invalid_timestamp

Only batches that may be refused are walked, and decompressed before if necessary: all batches of a compacted topic,
those whose header has a time too far ahead, and all batches where `before.max.ms` is set.

Source: Kafka's `LogValidator.validateKey`, `validateTimestamp`, `processRecordErrors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import CorruptLogError, ErrorCode, KafkaError, RecordsRefusedError
from ..ids import TopicPartition
from ..wire.batch_header import HEADER_SIZE, BatchHeader
from ..wire.compression import decompress
from ..wire.records import read_varint
from .record_spans import RecordSpan, record_spans

if TYPE_CHECKING:
    from ..config import TopicConfig
    from ..host.seam import Buffer

_NO_TIMESTAMP = -1
_LONG_MAX = 2**63 - 1
_SHOWN = 3


class RecordChecks:
    """What a topic with these settings asks of each record."""

    __slots__ = ("_after_ms", "_before_ms", "_compacted", "_log")

    def __init__(self, log: TopicPartition, config: TopicConfig) -> None:
        self._log = log
        self._compacted = "compact" in config.text("cleanup.policy")
        if config.text("message.timestamp.type") == "LogAppendTime":
            self._before_ms = self._after_ms = _LONG_MAX
        else:
            self._before_ms = config.number("message.timestamp.before.max.ms")
            self._after_ms = config.number("message.timestamp.after.max.ms")

    def check(self, records: Buffer, header: BatchHeader, now_ms: int) -> None:
        """Refuse the batch `records`, whose CRC was checked; KafkaError when its bytes are no records."""
        if header.is_control:
            return
        timed = self._before_ms != _LONG_MAX or header.max_timestamp > now_ms + self._after_ms
        if not timed and not self._compacted:
            return
        data = decompress(header.codec, memoryview(records)[HEADER_SIZE : header.size])
        try:
            spans = record_spans(data, header.record_count)
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.invalid_record, str(error)) from None
        if self._compacted:
            self._refuse_without_key(spans)
        if timed:
            self._refuse_out_of_time(data, spans, header.base_timestamp, now_ms)

    def _refuse_without_key(self, spans: Sequence[RecordSpan]) -> None:
        problem = (
            f"Compacted topic cannot accept message without key in topic partition {self._log}"
        )
        errors = [(index, problem) for index, span in enumerate(spans) if span[3] is None]
        if errors:
            shown = ", ".join(
                f"RecordError(batchIndex={index}, message='{text}')"
                for index, text in errors[:_SHOWN]
            )
            raise RecordsRefusedError(
                ErrorCode.invalid_record,
                f"One or more records have been rejected due to {len(errors)} record errors in total, "
                f"and only showing the first three errors at most: [{shown}]",
                errors,
            )

    def _refuse_out_of_time(
        self, data: bytes, spans: Sequence[RecordSpan], base_ms: int, now_ms: int
    ) -> None:
        low, high = now_ms - self._before_ms, now_ms + self._after_ms
        borders = f"The timestamp should be within [{low}, {high}]"
        errors = [
            (index, f"Timestamp {time} of message with offset {index} is out of range. {borders}")
            for index, time in enumerate(_times(data, spans, base_ms))
            if time != _NO_TIMESTAMP and not low <= time <= high
        ]
        if errors:
            raise RecordsRefusedError(
                ErrorCode.invalid_timestamp,
                "One or more records have been rejected due to invalid timestamp",
                errors,
            )


def _times(data: bytes, spans: Sequence[RecordSpan], base_ms: int) -> Iterator[int]:
    for start, *_ in spans:
        _, at = read_varint(data, start)
        delta, _ = read_varint(data, at + 1)  # behind the attributes
        yield base_ms + delta
