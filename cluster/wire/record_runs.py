"""Runs of records of one shape, which are compared by columns: in C, and not one record after the other.

Owns: `alike_records`. In many batches the records have one size, with keys of one size and values of one size. Then
each byte of their structure lies at a fixed distance from that of the record before, and a slice with a step has this
byte of all records. Two records behind each other, in hexadecimal:

    length  attributes  time delta  offset delta  length and key  length and value  number of headers
    14      00          02          04            02 6b           02 76             00
    14      00          04          06            02 6c           02 77             00

The columns of the lengths and of the number of headers must repeat the byte of the first record. The column of the
offset deltas must continue. The column of the time deltas gives the lowest and the highest time.

A run is a shortcut only: a record that does not fit ends it, and the caller reads that record byte by byte. A run ends
where the offset delta gets another byte (64, 8,192), and at every further 8,192 records. The records are compared in
windows that grow eightfold, so that a run that ends early costs little.
"""

from __future__ import annotations

from typing import NamedTuple

_ROOM_LEAST, _WINDOW_FIRST, _WINDOW_GROWTH = 16, 1024, 8
_COLUMNS_MOST = 24
"""A record with more bytes of structure, which has many headers, is not compared by columns."""
_TIME_BYTES_MOST, _OFFSET_BYTES_MOST = 2, 3

SHORT, LEVEL = 64, 8192
_SINGLE = bytes(range(0, 2 * SHORT, 2))
"""The offset deltas 0 to 63 as varints of one byte."""
LOW = bytes(0x80 | byte for byte in _SINGLE) * (LEVEL // SHORT)
"""The first byte of each offset delta from 0 to 8,191, as varints of several bytes; then it repeats."""
_HIGH = b"".join(bytes((number,)) * SHORT for number in range(LEVEL // SHORT))
"""The second byte, where it is the last one."""
MIDDLE = bytes(0x80 | byte for byte in _HIGH)
"""The second byte, where a third one follows."""

_LAST_BYTES, _EARLIER_BYTES = bytes(range(128)), bytes(range(128, 256))
"""The bytes that end a varint, and those that do not."""
_NOT_NEGATIVE = bytes(range(0, 256, 2))
"""The first bytes of varints of numbers that are not negative."""

Run = tuple[int, int, int, int]
"""How many records, the position behind them, and their lowest and highest time delta."""

NOTHING: Run = (0, -1, 2**63, -(2**63))


class _Shape(NamedTuple):
    """Where the bytes of the structure are, relative to the begin of a record."""

    size: int
    constants: list[tuple[int, int]]
    """Position and value of each byte that all records have in common."""
    time_at: int
    offset_at: int
    offset_end: int


def alike_records(data: bytes, start: int, end: int, number: int, count: int) -> Run:
    """The records behind `end` that are valid and have the shape of the valid record between `start` and `end`.

    `number` is that of the record at `end`; the batch has `count` records.
    """
    size = end - start
    length = data[start : behind(data, start)]
    if not (data.startswith(length, end) and data.startswith(length, end + size)):
        return NOTHING
    room = min(count, offset_border(number), number + (len(data) - end) // size) - number
    shape = _shape(data, start, end) if room >= _ROOM_LEAST else None
    if shape is None:
        return NOTHING
    done, _, low, high = NOTHING
    window = _WINDOW_FIRST
    while room:
        wanted = min(window, room)
        found = _fitting(data, end, shape, number + done, wanted)
        if found:
            columns = _columns(data, end, shape, shape.time_at, shape.offset_at, found)
            lowest, highest = _times(columns)
            low, high = min(low, lowest), max(high, highest)
        done, room, end = done + found, room - found, end + found * size
        if found < wanted:
            break
        window *= _WINDOW_GROWTH
    return done, end, low, high


def offset_border(number: int) -> int:
    """The first record behind `number` whose offset delta has another last byte, or more bytes."""
    return SHORT if number < SHORT else (number // LEVEL + 1) * LEVEL


def _shape(data: bytes, start: int, end: int) -> _Shape | None:
    """The shape of a valid record; None where it cannot be compared by columns."""
    time_at = behind(data, start) + 1
    offset_at = behind(data, time_at)
    offset_end = behind(data, offset_at)
    positions = [*range(start, time_at - 1)]
    at = _behind_bytes(data, offset_end, positions)
    at = _behind_bytes(data, at, positions)
    positions.append(at)
    strings = data[at]  # a zigzag number is twice the number of headers, each of which is two strings
    if strings > _COLUMNS_MOST or offset_at - time_at > _TIME_BYTES_MOST or offset_end - offset_at > _OFFSET_BYTES_MOST:
        return None
    at += 1
    for _ in range(strings):
        at = _behind_bytes(data, at, positions)
    if len(positions) > _COLUMNS_MOST:
        return None
    constants = [(position - start, data[position]) for position in positions]
    return _Shape(end - start, constants, time_at - start, offset_at - start, offset_end - start)


def behind(data: bytes, at: int) -> int:
    """The position behind the varint at `at`."""
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _behind_bytes(data: bytes, at: int, positions: list[int]) -> int:
    """The position behind a length and its bytes; adds the positions of the length to `positions`."""
    end = behind(data, at)
    positions += range(at, end)
    return end + max(0, number_at(data, at))


def number_at(data: bytes, at: int) -> int:
    """The number of the varint at `at`."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return (number >> 1) ^ -(number & 1)
        at += 1
        shift += 7


def _columns(data: bytes, at: int, shape: _Shape, begin: int, end: int, count: int) -> list[bytes]:
    """The bytes at the positions `begin` to `end` of `count` records, of which the first is at `at`."""
    stop = at + count * shape.size
    return [data[at + position : stop : shape.size] for position in range(begin, end)]


def _fitting(data: bytes, at: int, shape: _Shape, number: int, wanted: int) -> int:
    """How many of the `wanted` records from `at` on, which begin with record `number`, are valid and of this shape."""
    size, stop = shape.size, at + wanted * shape.size
    for position, byte in shape.constants:
        column = data[at + position : stop : size]
        if column.count(byte) != wanted:
            wanted -= len(column.lstrip(bytes((byte,))))
            stop = at + wanted * size
    *earlier, last = _columns(data, at, shape, shape.time_at, shape.offset_at, wanted)
    for column in earlier:
        wanted = min(wanted, len(column) - len(column.lstrip(_EARLIER_BYTES)))
    if not last.isascii():
        wanted = min(wanted, len(last) - len(last.lstrip(_LAST_BYTES)))
    columns = _columns(data, at, shape, shape.offset_at, shape.offset_end, wanted)
    for column, expected in zip(columns, _offsets(len(columns), number, wanted), strict=True):
        if column != expected:
            pairs = enumerate(zip(column, expected, strict=False))
            differing = (index for index, (found, due) in pairs if found != due)
            wanted = min(wanted, next(differing, len(expected)))
    return wanted


def _offsets(width: int, number: int, count: int) -> list[bytes]:
    """The columns of the offset deltas `number`, `number` + 1, … as varints of `width` bytes."""
    if width == 1:
        return [_SINGLE[number : number + count]]
    place = number % LEVEL
    part = slice(place, place + count)
    if width == 2:
        return [LOW[part], _HIGH[part] if number < LEVEL else b""]
    return [LOW[part], MIDDLE[part], bytes((number // LEVEL & 0x7F,)) * count]


def _times(columns: list[bytes]) -> tuple[int, int]:
    """The lowest and the highest of the time deltas whose varints are in `columns`, of one or two bytes."""
    if len(columns) == 1:
        (only,) = columns
        first, last = only[0], only[-1]
        if not (first | last) & 1 and not only.translate(None, bytes(range(first, last + 1, 2))):
            return first >> 1, last >> 1  # the times do not decrease, as usual
    else:
        ordered = _ordered_times(*columns)
        if ordered is not None:
            return ordered
    times = [_time(*row) for row in set(zip(*columns, strict=True))]
    return min(times), max(times)


def _ordered_times(low: bytes, high: bytes) -> tuple[int, int] | None:
    """The first and the last time delta, when none of them is negative, below the first or above the last."""
    first, last = high[0], high[-1]
    begin = low[: len(high) - len(high.lstrip(bytes((first,))))]
    end = low[len(high.rstrip(bytes((last,)))) :]
    if (
        not low.translate(None, _NOT_NEGATIVE)
        and not high.translate(None, bytes(range(first, last + 1)))
        and (high.count(first), high.count(last)) == (len(begin), len(end))
        and not begin.translate(None, bytes(range(begin[0], 256)))
        and not end.translate(None, bytes(range(end[-1] + 1)))
    ):
        return _time(begin[0], first), _time(end[-1], last)
    return None


def _time(low: int, high: int = 0) -> int:
    number = low & 0x7F | high << 7
    return (number >> 1) ^ -(number & 1)
