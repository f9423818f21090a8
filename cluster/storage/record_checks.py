"""The records of a client's batch: they must decode, and satisfy the rules of the topic (KIP-467).

Owns: `RecordChecks`. Every batch of a client is decompressed, once, and walked (`wire/record_walk.py`) before it is
appended. A batch of which one record is refused is refused as a whole; the error names each record that is at fault
(`RecordsRefusedError`), except where the bytes are no records:

    bytes that are no records, or not in the codec that the header names                   invalid_record
    a compressed record above max.decompressed.message.bytes                               invalid_record
    a record without a key in a compacted topic                                            invalid_record
    a time outside message.timestamp.before.max.ms and message.timestamp.after.max.ms,
    where the producer sets the times                                                      invalid_timestamp
    a batch that claims to have the broker's time (LogAppendTime), in a topic whose times
    the broker sets, or without a time                                                     invalid_timestamp

The walk also finds the highest time, which the log stores as the max timestamp of the batch: what the header says may
be wrong, and time index, retention and ListOffsets depend on it. A time is 64 bits, and a sum that is larger wraps.

Source: Kafka's `LogValidator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, RecordsRefusedError
from ..ids import TopicPartition
from ..wire.batch_header import HEADER_SIZE, BatchHeader
from ..wire.compression import decompress
from ..wire.record_walk import walk_records
from ..wire.records import read_varint, too_large
from .record_spans import RecordSpan, record_spans

if TYPE_CHECKING:
    from ..config import TopicConfig
    from ..host.seam import Buffer

RECORD_BYTES_MAX = "max.decompressed.message.bytes"
_NO_TIMESTAMP = -1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_SHOWN = 3
_Faults = dict[int, str]
"""What is wrong with which record, by its index."""


class RecordChecks:
    """What a topic with these settings asks of the records of a client's batch."""

    __slots__ = ("_after_ms", "_before_ms", "_bytes_max", "_compacted", "_log", "_log_append_time")

    def __init__(self, log: TopicPartition, config: TopicConfig) -> None:
        self._log = log
        self._compacted = "compact" in config.text("cleanup.policy")
        self._bytes_max = config.number(RECORD_BYTES_MAX)
        self._log_append_time = config.text("message.timestamp.type") == "LogAppendTime"
        self._before_ms = config.number("message.timestamp.before.max.ms")
        self._after_ms = config.number("message.timestamp.after.max.ms")

    def check(self, records: Buffer, header: BatchHeader, now_ms: int) -> int:
        """Refuse the batch `records`, whose header and CRC were checked, or return the highest time of its records.

        -1 where no record has a time. Milliseconds since the epoch.
        """
        data = _decompressed(records, header)
        low, high = walk_records(data, header.record_count)
        if header.codec:
            check_sizes(data, header.record_count, self._bytes_max)
        if header.is_log_append_time:
            least = most = header.max_timestamp
            is_sound = not self._log_append_time and most != _NO_TIMESTAMP
        else:
            least, most = header.base_timestamp + low, header.base_timestamp + high
            is_sound = least >= _LONG_MIN and most <= _LONG_MAX
        if not self._log_append_time:
            is_sound &= now_ms - self._before_ms <= least and most <= now_ms + self._after_ms
        if is_sound and not self._compacted:
            return max(most, _NO_TIMESTAMP)
        spans = record_spans(data, header.record_count)
        errors = self._without_key(spans) if self._compacted else {}
        if is_sound:
            _refuse(ErrorCode.invalid_record, errors)
            return max(most, _NO_TIMESTAMP)
        times = _times(data, spans, header)
        untimely = self._untimely(times, header, now_ms)
        is_timely = untimely.keys() <= errors.keys()  # a record without a key is not checked further
        code = ErrorCode.invalid_record if is_timely else ErrorCode.invalid_timestamp
        _refuse(code, untimely | errors)
        return max(*times, _NO_TIMESTAMP)

    def _without_key(self, spans: Sequence[RecordSpan]) -> _Faults:
        problem = f"Compacted topic cannot accept message without key in topic partition {self._log}"
        return {index: problem for index, span in enumerate(spans) if span[3] is None}

    def _untimely(self, times: Sequence[int], header: BatchHeader, now_ms: int) -> _Faults:
        low, high = now_ms - self._before_ms, now_ms + self._after_ms
        faults: _Faults = {}
        for index, time in enumerate(times):
            if time != _NO_TIMESTAMP and not self._log_append_time:
                if not low <= time <= high:
                    faults[index] = (
                        f"Timestamp {time} of message with offset {index} is out of range. "
                        f"The timestamp should be within [{low}, {high}]"
                    )
            elif header.is_log_append_time:
                faults[index] = (
                    f"Invalid timestamp type in message with offset {index}. "
                    "Producer should not set timestamp type to LogAppendTime."
                )
        return faults


def _decompressed(records: Buffer, header: BatchHeader) -> bytes:
    try:
        return decompress(header.codec, memoryview(records)[HEADER_SIZE : header.size])
    except KafkaError as error:
        raise KafkaError(ErrorCode.invalid_record, error.message) from None


def check_sizes(data: bytes, count: int, bytes_max: int) -> None:
    """KafkaError(invalid_record) for `count` decompressed records of which one is larger than `bytes_max`."""
    if len(data) <= bytes_max:
        return
    at = 0
    for _ in range(count):
        size, at = read_varint(data, at)
        if size > bytes_max:
            raise too_large(size, bytes_max)
        at += size


def _times(data: bytes, spans: Sequence[RecordSpan], header: BatchHeader) -> list[int]:
    """The time of each record."""
    if header.is_log_append_time:
        return [header.max_timestamp] * len(spans)
    times: list[int] = []
    for start, *_ in spans:
        _, at = read_varint(data, start)
        delta, _ = read_varint(data, at + 1)  # behind the attributes
        times.append((header.base_timestamp + delta - _LONG_MIN) % 2**64 + _LONG_MIN)
    return times


def _refuse(code: ErrorCode, faults: _Faults) -> None:
    """Raise for these records; nothing where there are none."""
    if not faults:
        return
    errors = sorted(faults.items())
    if code is ErrorCode.invalid_timestamp:
        problem = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_SHOWN])
        problem = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
    raise RecordsRefusedError(code, problem, errors)
