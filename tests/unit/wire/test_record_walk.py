"""The walk over a client's records accepts exactly what decodes and keeps the rules of offsets (A4)."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.wire.batch_header import HEADER_SIZE
from harrow.cluster.wire.record_walk import walk_records
from harrow.cluster.wire.records import NewRecord, build_batch, decode_records
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from malformed_batches import MALFORMED, WRONG_OFFSETS, batch_of, record

INT_BYTES, LONG_BYTES = 5, 10


def walked(data: bytes, count: int) -> tuple[int, int] | None:
    """The lowest and the highest time delta; None where the walk refuses."""
    try:
        return walk_records(data, count)
    except KafkaError as error:
        if error.code is not ErrorCode.invalid_record:
            raise
        return None


def decoded(data: bytes, count: int) -> tuple[int, int] | None:
    """As `walked`, by the decoder of records, the widths of the numbers and the rule of offsets."""
    times: list[int] = []
    try:
        offsets = [row.offset for row in decode_records(batch_of(data, count))]
        at = 0
        for _ in range(count):
            time, at = _time_and_end(data, at)
            times.append(time)
    except (KafkaError, IndexError):
        return None
    if at != len(data) or offsets != list(range(count)) or not times:
        return None
    return min(times), max(times)


def _time_and_end(data: bytes, at: int) -> tuple[int, int]:
    _, at = _number(data, at, INT_BYTES)
    time, at = _number(data, at + 1, LONG_BYTES)
    _, at = _number(data, at, INT_BYTES)
    for _ in range(2):
        size, at = _number(data, at, INT_BYTES)
        at += max(size, 0)
    strings, at = _number(data, at, INT_BYTES)
    for _ in range(2 * strings):
        size, at = _number(data, at, INT_BYTES)
        at += max(size, 0)
    return time, at


def _number(data: bytes, at: int, bytes_most: int) -> tuple[int, int]:
    end = at
    while data[end] > 0x7F:
        end += 1
    if end - at >= bytes_most:
        raise IndexError("too long")
    bits = sum((data[place] & 0x7F) << 7 * (place - at) for place in range(at, end + 1)) % 2**64
    return (bits >> 1) ^ -(bits & 1), end + 1


@pytest.mark.parametrize("kind", [*MALFORMED, *WRONG_OFFSETS])
def test_records_that_do_not_parse_are_refused(kind: str) -> None:
    data, count = (MALFORMED | WRONG_OFFSETS)[kind]
    assert walked(data, count) is None
    assert decoded(data, count) is None, "the test's own reference"


@pytest.mark.parametrize(
    "data",
    [
        record(key=None),
        record(key=-2, value=-7),
        record(value=None, headers=()),
        record(headers=((b"", None), (b"\xff\xfe", -3))),
        record(attributes=255, time=2**63 - 1),
        record(time=-(2**63)),
        b"\x18\0\0\0\x82\x80\x80\x80\x00k\x02v\0",
    ],
)
def test_records_that_are_unusual_and_valid_are_accepted(data: bytes) -> None:
    assert walked(data, 1) == decoded(data, 1) != None  # noqa: E711 - a chain: equal, and accepted


@functools.cache
def alike() -> tuple[bytes, ...]:
    return tuple(record(number) for number in range(10_000))


@pytest.mark.parametrize("place", [0, 3, 5, 63, 64, 66, 900, 8191, 8192, 9999])
@pytest.mark.parametrize("kind", ["length", "offset", "header key", "value", "number of headers"])
def test_a_malformed_record_among_alike_records_is_refused(place: int, kind: str) -> None:
    rows = list(alike())
    assert walked(b"".join(rows), len(rows)) == (0, 0)
    good = rows[place]
    rows[place] = {
        "length": record(place, length=9),
        "offset": record(place + 1 if place not in (63, 8191) else place - 1),
        "header key": record(place, headers=((None, b"11"),)),
        "value": record(place, value=2, headers=((b"h", b"1"),)),
        "number of headers": record(place, count=2),
    }[kind]
    assert len(rows[place]) - len(good) in (-1, 0, 1), "a record of nearly the same size"
    assert walked(b"".join(rows), len(rows)) is None


def similar(number: int, **fields: Any) -> bytes:
    """One of many records whose values alone differ in size."""
    given: dict[str, Any] = {"value": bytes(70 + number * 7 % 50), "headers": ()}
    given |= {"time": number // 9, **fields}
    return record(number, **given)


@functools.cache
def similars() -> tuple[bytes, ...]:
    return tuple(map(similar, range(10_000)))


@pytest.mark.parametrize("place", [0, 1, 2, 40, 63, 64, 65, 900, 8191, 8192, 9999])
@pytest.mark.parametrize("kind", ["length", "offset", "value", "number of headers", "key"])
def test_a_malformed_record_among_similar_records_is_refused(place: int, kind: str) -> None:
    rows = list(similars())
    assert walked(b"".join(rows), len(rows)) == (0, 9_999 // 9)
    size = len(rows[place]) - len(similar(place, value=b"")) - 1
    rows[place] = {
        "length": similar(place, length=len(rows[place]) - 3),
        "offset": similar(place)[:3] + similar(place + 1)[3:6] + similar(place)[6:],
        "value": similar(place, value=size + 1)[:-1] + bytes(size + 1),
        "number of headers": rows[place][:-1] + b"\x02",
        "key": similar(place, key=1),
    }[kind]
    assert rows[place] != similars()[place]
    assert walked(b"".join(rows), len(rows)) is None


@pytest.mark.parametrize("step", [0.0, 0.01, 0.9, 1.3, 3.0])
@pytest.mark.parametrize("kind", ["rising", "falling", "around", "random"])
def test_the_lowest_and_the_highest_time_are_those_of_the_records(step: float, kind: str) -> None:
    count = 3_000
    drawn = random.Random(kind)
    times = {
        "rising": [int(number * step) for number in range(count)],
        "falling": [int((count - number) * step) - 50 for number in range(count)],
        "around": [int((number % 130 - 65) * step) for number in range(count)],
        "random": [drawn.randrange(-int(99 * step) - 1, int(99 * step) + 1) for _ in range(count)],
    }[kind]
    data = b"".join(record(number, time=time) for number, time in enumerate(times))
    assert walked(data, count) == (min(times), max(times))


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """The records of a valid batch, of one shape or of several; small ones, so that many bytes are structure."""
    count = draw(st.integers(1, 150))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 63, 64, 100]), min_size=1, max_size=3))
    key = draw(st.none() | st.binary(max_size=3))
    names = draw(st.lists(st.sampled_from(["", "a", "trace"]), max_size=2))
    step = draw(st.sampled_from([0, 1, 7, 100]))
    changes_every = draw(st.sampled_from([1, 2, 20, 1000]))
    rows: list[NewRecord] = [
        (key, bytes(sizes[number // changes_every % len(sizes)]), [(name, b"1") for name in names])
        for number in range(count)
    ]
    times = [number * step for number in range(count)]
    return build_batch(rows, timestamp_ms=0, timestamps_ms=times)[HEADER_SIZE:], count


mutations = st.lists(
    st.tuples(
        st.sampled_from(["set", "add", "insert", "delete", "cut", "extend"]),
        st.integers(0, 2**16),
        st.sampled_from([0, 1, 2, 3, 4, 5, 126, 127, 128, 129, 130, 254, 255]) | st.integers(0, 255),
    ),
    max_size=2,
)


def mutated(data: bytes, changes: Sequence[tuple[str, int, int]]) -> bytes:
    out = bytearray(data)
    for kind, place, byte in changes:
        at = place % (len(out) or 1)
        if kind == "insert":
            out.insert(at, byte)
        elif kind == "extend":
            out.append(byte)
        elif kind == "cut":
            del out[-byte:]
        elif out and kind == "delete":
            del out[at]
        elif out:
            out[at] = byte if kind == "set" else (out[at] + byte) % 256
    return bytes(out)


@examples(suite=150, long=20_000)
@given(bodies(), mutations, st.sampled_from([0, 0, 0, 0, 1, -1]))
def test_the_walk_accepts_exactly_what_decodes(
    body: tuple[bytes, int], changes: list[tuple[str, int, int]], more: int
) -> None:
    data, count = mutated(body[0], changes), max(1, body[1] + more)
    assert walked(data, count) == decoded(data, count)
