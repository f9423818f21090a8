"""Runs of records of one layout, whose values differ in size: a few steps for each, and not one for each field.

Owns: `similar_records`. Records of one topic often have keys of one size and no headers, and differ in the size of
their values alone. Then the fields before the value have fixed places, one `unpack` reads them, and the length of the
record says how long the value must be:

    length  attributes  time delta  offset delta  length and key  length of the value  value  number of headers: 0

A run is a shortcut only: a record that does not fit ends it, and the caller reads that record byte by byte. So does a
series of records of one size, which `record_runs.py` compares by columns.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .record_runs import LEVEL, LOW, MIDDLE, NOTHING, SHORT, Run, behind, number_at, offset_border

_CODES = {1: "B", 2: "H"}
_FORMS = {1: (0x81, 0x00), 2: (0x8081, 0x0080)}
"""By the bytes of a varint, read as little-endian: which bits say where it ends, or that it is negative, and what they
must be."""
_SAME_MOST = 16
_RUN_MOST = 256
"""A longer run goes on with the next one: the offsets of a run are copied."""
_NO_FIT = (-1, 0)


class _Layout(NamedTuple):
    """How the records of a run begin."""

    unpack: Callable[[bytes, int], tuple[int, int, int, bytes, int]]
    length_bytes: int
    time_bytes: int
    offset_bytes: int
    value_bytes: int
    fixed: bytes
    """The bytes between those that count the offset and the key: the last byte of a long offset, the key's length."""
    overhead: int
    """How many bytes of the record, behind its length, are not of its value."""


def similar_records(data: bytes, start: int, end: int, number: int, count: int) -> Run:
    """The records behind `end` that are valid and have the layout of the valid record between `start` and `end`.

    `number` is that of the record at `end`; the batch has `count` records.
    """
    layout = _layout(data, start, end)
    if layout is None:
        return NOTHING
    stop = min(count, offset_border(number), number + _RUN_MOST)
    return _run(data, end, layout, _offsets(layout.offset_bytes, number, stop))


def _run(data: bytes, at: int, layout: _Layout, due: Iterable[int]) -> Run:
    unpack, fixed = layout.unpack, layout.fixed
    mask, form = _FORMS[layout.time_bytes]
    sizes = _sizes(layout.length_bytes, layout.value_bytes, layout.overhead)
    done = same = high = 0
    low, before = mask, _NO_FIT
    try:
        for expected in due:
            length, time, offset, tail, value = unpack(data, at)
            size = sizes.get(length)
            if size is None:
                size = sizes[length] = _size(length, layout)
            if offset != expected or tail != fixed or value != size[0] or time & mask != form:
                break
            following = at + size[1]
            if data[following - 1]:
                break
            at = following
            done += 1
            if time > high:
                high = time
            if time < low:
                low = time
            if size is not before:
                before, same = size, 0
                continue
            same += 1
            if same > _SAME_MOST:
                break
    except (struct.error, IndexError):
        pass  # the caller reads the last records, or refuses them
    if not done:
        return NOTHING
    return done, at, _number(low, layout.time_bytes) >> 1, _number(high, layout.time_bytes) >> 1


def _layout(data: bytes, start: int, end: int) -> _Layout | None:
    """The layout of a valid record; None for a record with headers, without a value, or with a large field."""
    if data[end - 1]:
        return None
    time_at = behind(data, start) + 1
    offset_at = behind(data, time_at)
    key_at = behind(data, offset_at)
    key = behind(data, key_at)
    value_at = key + max(0, number_at(data, key_at))
    value = behind(data, value_at)
    widths = time_at - 1 - start, offset_at - time_at, key_at - offset_at, value - value_at
    if number_at(data, value_at) != end - 1 - value or not _supported(*widths):
        return None
    long = max(0, widths[2] - 2)
    fixed = data[key_at - long : key]
    shape = (*widths, len(fixed), value_at - key)
    return _Layout(_unpack(*shape), *widths, fixed, value - (time_at - 1) + 1)


def _supported(length: int, time: int, offset: int, value: int) -> bool:
    return max(length, time, value) <= 2 and offset <= 3


@functools.lru_cache(maxsize=256)
def _unpack(
    length: int, time: int, offset: int, value: int, fixed: int, key: int
) -> Callable[[bytes, int], tuple[int, int, int, bytes, int]]:
    code = f"<{_CODES[length]}x{_CODES[time]}{_CODES[min(offset, 2)]}{fixed}s{key}x{_CODES[value]}"
    return struct.Struct(code).unpack_from


def _offsets(width: int, number: int, stop: int) -> Iterable[int]:
    """The offset deltas from `number` to `stop`, as the first one or two bytes of varints are unpacked."""
    if width == 1:
        return range(2 * number, 2 * min(stop, SHORT), 2)
    if number >= LEVEL and width == 2:
        return ()
    place = number % LEVEL
    return _two_bytes(long=width > 2)[place : place + stop - number]


@functools.cache
def _two_bytes(*, long: bool) -> tuple[int, ...]:
    continued = 0x80 if long else 0
    return tuple(low | (middle & 0x7F | continued) << 8 for low, middle in zip(LOW, MIDDLE, strict=True))


@functools.lru_cache(maxsize=4)
def _sizes(_length_bytes: int, _value_bytes: int, _overhead: int) -> dict[int, tuple[int, int]]:
    """By the varint of a record's length: what `_size` found; at most 16,384 entries."""
    return {}


def _size(length: int, layout: _Layout) -> tuple[int, int]:
    """What the varint of the value's length must be, and the size of the record; `_NO_FIT` for an impossible length."""
    mask, form = _FORMS[layout.length_bytes]
    body = _number(length, layout.length_bytes) >> 1
    value = 2 * (body - layout.overhead)
    if length & mask != form or value < 0:
        return _NO_FIT
    if layout.value_bytes > 1:
        value = value & 0x7F | 0x80 | value >> 7 << 8
    return value, body + layout.length_bytes


def _number(unpacked: int, width: int) -> int:
    return unpacked if width == 1 else unpacked & 0x7F | unpacked >> 1 & 0x3F80
