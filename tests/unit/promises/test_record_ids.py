"""Record ids: their canonical text, their hash, and what a record without an id says (L5)."""

from __future__ import annotations

import datetime as dt
import enum
import json
import subprocess
import sys
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from harrow import Record
from harrow.cluster.errors import ConfigError, HarrowError
from harrow.harness.promises.record_ids import (
    IdReader,
    RecordIdError,
    canonical,
    check_source,
    decode_all,
    decode_json,
    hashes,
)
from hypothesis import example, given
from hypothesis import strategies as st


class Colour(enum.Enum):
    RED = "red"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        ("7", "7"),
        (7.0, "7"),
        (b"7", "7"),
        (Decimal("7.00"), "7"),
        (np.int64(7), "7"),
        (-0.0, "0"),
        (2.50, "2.5"),
        (Decimal("2.50"), "2.5"),
        (1e300, str(int(1e300))),
        (10**30, "1" + "0" * 30),
        (True, "true"),
        (False, "false"),
        ("", ""),
        ("ümläut €", "ümläut €"),
        ("ü".encode(), "ü"),
        (b"\xff\x00", "0xff00"),
        (["a", 1, ["b"]], '["a", "1", "[\\"b\\"]"]'),
        (("a", 1), '["a", "1"]'),
        ({"b": 1, "a": 2}, '{"a": "2", "b": "1"}'),
        (Colour.RED, "red"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "2026-01-02T03:00:00+00:00"),
    ],
)
def test_ids_are_compared_by_their_text(value: object, text: str) -> None:
    assert canonical(value) == text


@pytest.mark.parametrize("value", [None, object(), float("nan"), float("inf"), Decimal("nan"), {1}])
def test_values_without_a_text_are_refused(value: object) -> None:
    with pytest.raises(RecordIdError):
        canonical(value)


def test_hashes_are_the_same_in_every_process() -> None:
    texts = ["", "7", "ü€", "\ud800"]
    program = "from harrow.harness.promises.record_ids import hashes;print(hashes(['', '7', 'ü€', '\\ud800']).tolist())"
    command = [sys.executable, "-c", program]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(other) == hashes(texts).tolist()
    assert len({tuple(row) for row in hashes(texts).tolist()}) == len(texts)


@given(JSON)
def test_the_quick_way_agrees_with_the_record_on_every_json_value(value: Any) -> None:
    for path in ("a", "a.b"):
        reader = IdReader("record_id", path)
        content = json.dumps(value).encode()
        (quick,) = reader.quick_texts([content])
        try:
            slow: str | None = canonical(reader.of(Record(value=content)))
        except Exception:
            slow = None
        assert quick == slow


@pytest.mark.parametrize("content", [None, b"", b"no json", b'{"a": 1} {"a": 2}', b"\xff", b'[{"a": 1}]', b"null"])
def test_values_that_are_no_json_object_have_no_quick_text_and_a_clear_problem(content: bytes | None) -> None:
    reader = IdReader("record_id", "a")
    record = Record(topic="orders", partition=2, offset=17, value=content)
    assert reader.quick_texts([content]) == [None]
    with pytest.raises(HarrowError, match="orders-2@17"):
        reader.of(record)


def test_json_with_space_around_it_is_read() -> None:
    reader = IdReader("record_id", "a")
    content = b' {"a": 7}\n'
    assert reader.quick_texts([content]) == ["7"]
    assert reader.of(Record(value=content)) == 7


PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b",", b'"', b"1", b" ", b"\n", b"null", b'"a":', b"\xff", b"\\", b"\xef\xbb\xbf", b"NaN"]
)
VALUES = st.none() | st.lists(PIECES, max_size=5).map(b"".join) | JSON.map(lambda value: json.dumps(value).encode())


def decoded_by_itself(value: bytes | None) -> str:
    try:
        return repr(None if value is None else json.loads(value.decode().strip(" \n")))
    except ValueError:
        return repr(None)


@given(values=st.lists(VALUES, max_size=6))
@example(values=[b"1,2", b'{"a":[{}', b"{}]}"])  # as many items as values, but not one for each
@example(values=[b"[1", b"2]", b"3", b"4,5"])
@example(values=[b"", b"1,2", b"3"])
@example(values=[b'"a', b'b"'])
def test_values_decoded_together_are_those_decoded_one_by_one(values: list[bytes | None]) -> None:
    together = [repr(value) for value in decode_all(values)]
    assert len(together) == len(values)
    for value, found in zip(values, together, strict=True):
        alone = [repr(None) if value is None else repr(decode_json(value)), decoded_by_itself(value)]
        assert found in alone


def test_a_field_path_leads_through_objects() -> None:
    record = Record(value=b'{"customer": {"id": "c-1", "none": null, "list": [1]}, "a.b": 1}')
    assert IdReader("record_id", "customer.id").of(record) == "c-1"
    for path in ("customer.name", "order", "customer.id.x", "customer.none", "customer.list.0", "a.b"):
        with pytest.raises(RecordIdError, match=rf"record_id='{path}'"):
            IdReader("record_id", path).of(record)


@pytest.mark.parametrize("source", ["", "a.", ".a", 7, ["order"]])
def test_sources_that_are_no_path_and_no_function_are_refused(source: object) -> None:
    with pytest.raises(ConfigError, match="order_key="):
        check_source("order_key", source)


def test_a_function_receives_expected_records_as_records() -> None:
    reader = IdReader("record_id", lambda record: (record["order"], record.get("line", 0)))
    assert reader.of_mapping({"order": 3, "line": 2}) == (3, 2)
    given_record = Record(key=b"k", value=b'{"order": 4}')
    assert reader.of_mapping(given_record) == (4, 0)
    with pytest.raises(RecordIdError, match="give its id"):
        reader.of_mapping({"order": object()})
