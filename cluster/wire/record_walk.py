"""The walk over the records of a client's batch: every byte must belong to a record that decodes (KIP-98).

Owns: `walk_records`. A batch with a right CRC may hold anything, and once it is stored, every consumer fails at it for
ever. So the leader walks each batch before it appends it. Refused (KafkaError, invalid_record):

    a record that ends before or behind what its length says; missing records; bytes behind the last record
    offset deltas other than 0, 1, 2, …
    a header without a key; a negative number of headers; a length of more than 5 bytes, a time of more than 10

Keys, values and the values of headers may be null (any negative length), and a varint need not be the shortest, as in
Kafka. This is the only work for each record on the path of a produce, so it is written for speed: varints of one and
two bytes are read in place; runs of records of one size are compared by columns (`record_runs.py`), and records whose
values differ in size are read with one step for all fields (`record_layouts.py`).

Source: Kafka's `LogValidator`, `DefaultRecord.readFrom`, `DefaultRecordBatch.iterator`.
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from .record_layouts import similar_records
from .record_runs import alike_records

INT_BYTES, LONG_BYTES = 5, 10
_DELTA_MOST, _LONG_MASK = 2**63, 2**64 - 1
_KEY_AND_VALUE = (0, 1)
_RUN_LEAST, _PATIENCE_MOST = 8, 64
"""After a run that is shorter the next runs are looked for less often, up to so many records later."""


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


def _walk(data: bytes, count: int) -> tuple[int, int]:
    lowest, highest = _DELTA_MOST, -_DELTA_MOST
    at = number = next_try = 0
    patience = 1
    last_try = count - _RUN_LEAST
    while number < count:
        start = at
        at, delta = _record(data, start, number)
        number += 1
        if delta < lowest:
            lowest = delta
        if delta > highest:
            highest = delta
        if number < next_try or number > last_try:
            continue
        run = alike_records(data, start, at, number, count)
        if not run[0]:
            run = similar_records(data, start, at, number, count)
        if run[0]:
            number += run[0]
            _, at, low, high = run
            lowest, highest = min(low, lowest), max(high, highest)
        patience = 1 if run[0] >= _RUN_LEAST else min(2 * patience, _PATIENCE_MOST)
        next_try = number + patience
    if at != len(data):
        raise _NotRecordsError(f"{len(data) - at} bytes are behind the last of them")
    return lowest, highest


def _record(data: bytes, at: int, number: int) -> tuple[int, int]:  # noqa: C901 - a call costs more than a field's work
    """The position behind record `number`, which begins at `at`, and its time delta."""
    length = data[at]
    at += 1
    if length > 0x7F:
        following = data[at]
        if following < 0x80:
            length, at = length & 0x7F | following << 7, at + 1
        else:
            length, at = _varint(data, at - 1, INT_BYTES)
    body = at
    time = data[at + 1]  # behind the attributes
    at += 2
    if time > 0x7F:
        following = data[at]
        if following < 0x80:
            time, at = time & 0x7F | following << 7, at + 1
        else:
            time, at = _varint(data, at - 1, LONG_BYTES)
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
    return at, (time >> 1) ^ -(time & 1)


def _behind_headers(data: bytes, at: int) -> int:
    """The position behind the headers of a record; `at`: that of their count."""
    count = data[at]
    at += 1
    if count > 0x7F:
        count, at = _varint(data, at - 1, INT_BYTES)
    if count & 1:
        raise _NotRecordsError("a record has a negative number of headers")
    for _ in range(count >> 1):
        size = data[at]
        at += 1
        if size > 0x7F:
            size, at = _varint(data, at - 1, INT_BYTES)
        if size & 1:
            raise _NotRecordsError("the key of a header is null")
        at += size >> 1
        size = data[at]
        at += 1
        if size > 0x7F:
            size, at = _varint(data, at - 1, INT_BYTES)
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
