"""The walk over the records of a client's batch: every byte must belong to a record that decodes (KIP-98).

Owns: `walk_records`. A batch with a right CRC may hold anything, and once it is stored, every consumer fails at it for
ever. So the leader walks each batch before it appends it. Refused (KafkaError, invalid_record):

    a record that ends before or behind what its length says; missing records; bytes behind the last record
    offset deltas other than 0, 1, 2, …
    a header without a key; a negative number of headers; a length of more than 5 bytes, a time of more than 10

Keys, values and the values of headers may be null (any negative length), and a varint need not be the shortest, as in
Kafka. This is the only work for each record on the path of a produce, so it is written for speed: varints of one and
two bytes are read in place, and records of one shape are compared by columns (`record_runs.py`).

Source: Kafka's `LogValidator`, `DefaultRecord.readFrom`, `DefaultRecordBatch.iterator`.
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from .record_runs import alike_records

INT_BYTES, LONG_BYTES = 5, 10
_DELTA_MOST, _LONG_MASK = 2**63, 2**64 - 1
_KEY_AND_VALUE = (0, 1)
_ALIKE_LEAST = 3
"""After so many records of one size the next ones are compared by columns."""


class _NotRecordsError(Exception):
    """What is wrong with the bytes."""


def walk_records(data: bytes, count: int) -> tuple[int, int]:
    """The lowest and the highest timestamp delta of the `count` records in `data`, which are not compressed.

    KafkaError(invalid_record) unless `data` is exactly `count` whole records, at least one.
    """
    try:
        return _walk(data, count)
    except _NotRecordsError as error:
        problem = str(error)
    except IndexError:
        problem = f"the last of them is cut off at byte {len(data)}"
    raise KafkaError(ErrorCode.invalid_record, f"the batch claims {count} records, but {problem}")


def _walk(data: bytes, count: int) -> tuple[int, int]:  # noqa: C901 - a call costs more than a record's work
    lowest, highest = _DELTA_MOST, -_DELTA_MOST
    at = number = size_before = alike = 0
    patience = _ALIKE_LEAST
    while number < count:
        start = at
        length = data[at]
        at += 1
        if length > 0x7F:
            following = data[at]
            if following < 0x80:
                length, at = length & 0x7F | following << 7, at + 1
            else:
                length, at = _varint(data, start, INT_BYTES)
        body = at
        byte = data[at + 1]  # behind the attributes
        at += 2
        if byte > 0x7F:
            following = data[at]
            if following < 0x80:
                byte, at = byte & 0x7F | following << 7, at + 1
            else:
                byte, at = _varint(data, at - 1, LONG_BYTES)
        delta = (byte >> 1) ^ -(byte & 1)
        if delta > highest:
            highest = delta
        if delta < lowest:
            lowest = delta
        byte = data[at]
        at += 1
        if byte > 0x7F:
            following = data[at]
            if following < 0x80:
                byte, at = byte & 0x7F | following << 7, at + 1
            else:
                byte, at = _varint(data, at - 1, INT_BYTES)
        if byte != number << 1:
            raise _wrong_offset(number, byte)
        for _ in _KEY_AND_VALUE:
            byte = data[at]
            at += 1
            if byte > 0x7F:
                following = data[at]
                if following < 0x80:
                    byte, at = byte & 0x7F | following << 7, at + 1
                else:
                    byte, at = _varint(data, at - 1, INT_BYTES)
            if not byte & 1:
                at += byte >> 1
        byte = data[at]
        at += 1
        if byte:
            at = _behind_headers(data, at - 1)
        if at - body << 1 != length:
            raise _wrong_length(number, at - body, length)
        number += 1
        if at - start != size_before:
            size_before, alike = at - start, 0
            continue
        alike += 1
        if alike >= patience:
            alike = 0
            run, low, high = alike_records(data, start, at, number, count)
            number += run
            at += run * size_before
            lowest, highest = min(low, lowest), max(high, highest)
            patience = 1 if run else patience * 2
    if at != len(data):
        raise _NotRecordsError(f"{len(data) - at} bytes are behind the last of them")
    return lowest, highest


def _behind_headers(data: bytes, at: int) -> int:
    """The position behind the headers of a record; `at`: that of their count."""
    count, at = _varint(data, at, INT_BYTES)
    if count & 1:
        raise _NotRecordsError("a record has a negative number of headers")
    for _ in range(count >> 1):
        size, at = _varint(data, at, INT_BYTES)
        if size & 1:
            raise _NotRecordsError("the key of a header is null")
        at += size >> 1
        size, at = _varint(data, at, INT_BYTES)
        if not size & 1:
            at += size >> 1
    return at


def _varint(data: bytes, at: int, bytes_most: int) -> tuple[int, int]:
    """The number at `at` as it is written, zigzag, and the position behind it."""
    number = 0
    for index in range(bytes_most):
        byte = data[at + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number & _LONG_MASK, at + index + 1
    raise _NotRecordsError(f"the number at byte {at} has more than {bytes_most} bytes")


def _wrong_offset(number: int, written: int) -> _NotRecordsError:
    delta = (written >> 1) ^ -(written & 1)
    return _NotRecordsError(f"record {number} has the offset delta {delta}")


def _wrong_length(number: int, size: int, written: int) -> _NotRecordsError:
    length = (written >> 1) ^ -(written & 1)
    return _NotRecordsError(f"record {number} has {size} bytes, its length says {length}")
