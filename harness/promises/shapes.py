"""How an expected output is compared with an actual one: its shape, and canonical texts that are equal or not.

A `Shape` says which part of an output an expectation names. Both sides are reduced to a canonical text of that part,
so that a Spark task compares hashes of texts, wherever the two records lie:

    expectation                      shape                          compared
    the record itself (`identity`)   record                         key, and value as JSON or bytes
    a mapping                        object with its field names    these fields of the output's JSON object or row
    text, bytes                      raw                            the output's value
    number, True, False, None, list  value                          the output's JSON value; a null value is None
    a pair (key, value)              the shape of value, with key   the key too

Canonical: 10 and 10.0 and Decimal("10.0") are equal; fractions are compared to 12 significant digits; times are ISO
texts; the order of fields does not matter. Rows of tables and files have types of their own (SQLite has no booleans,
CSV only text), so for rows (`loose`) True is 1, NaN is null and a text that looks like a number is the number. A row
with a single field besides the record id can also be compared with a plain text or number.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple, cast
from uuid import UUID

from ..checks.record import NotJsonError, Record, text_of

DIGITS = 12
_NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_PLAIN = frozenset({int, str, bool, type(None)})
_MISSING = ("missing",)
"""Stands for a field that an output lacks; no value of JSON has this canonical text."""


class Shape(NamedTuple):
    """Which part of an output an expectation names."""

    kind: str
    """record, object, raw or value."""
    fields: tuple[str, ...] = ()
    """The names of an object's fields, sorted."""
    with_key: bool = False


class Expected(NamedTuple):
    """An expected output."""

    shape: Shape
    text: str
    """The canonical text of what the output must be."""


class Rows(NamedTuple):
    """How outputs are read: as records of a topic, or loosely, as rows of a table, a file or a frame."""

    loose: bool = False
    id_field: str | None = None
    """The field that holds the record id of a row; it is not part of a row's single value."""


def is_a(value: object, *kinds: type) -> bool:
    """Return whether `value` is of one of these types; unlike isinstance, type checkers do not narrow the value."""
    return isinstance(value, kinds)


def expected_output(given: Any, rows: Rows) -> Expected:
    """Return shape and text of what a relation's function returned. Raises TypeError for what cannot be compared."""
    if type(given) is dict:
        return _object(cast("Mapping[str, Any]", given), rows)
    if isinstance(given, Record):
        return _whole_record(given, rows)
    if is_a(given, tuple) and not hasattr(given, "_fields"):
        if len(given) != 2:
            raise TypeError(f"the relation's function returned a tuple of {len(given)}, expected a pair (key, value)")
        if rows.loose:
            raise TypeError(
                "the relation's function returned a pair (key, value), but rows have no record key: return the value"
            )
        shape, text = expected_output(given[1], rows)
        if shape.kind == "record":
            raise TypeError("the relation's function returned a record as the value of a pair, return its value")
        return Expected(shape._replace(with_key=True), f"{_key_text(given[0])}\n{text}")
    if is_a(given, Mapping):
        return _object(given, rows)
    whole: object = given  # which is_dataclass narrows instead
    if is_dataclass(whole) and not isinstance(whole, type):
        return _object(asdict(whole), rows)
    if hasattr(given, "_asdict"):  # a named tuple
        return _object(given._asdict(), rows)
    if is_a(given, str, bytes, bytearray) and not rows.loose:
        return Expected(Shape("raw"), text_or_hex(given))
    if is_a(given, list, str, bytes) or given is None or _is_scalar(given):
        return Expected(Shape("value"), canonical(given, loose=rows.loose))
    raise TypeError(
        f"the relation's function returned {type(given).__name__} {given!r:.100}, expected a mapping, text, bytes, "
        "a number, None, a list or a pair (key, value)"
    )


@lru_cache(maxsize=256)
def object_shape(names: tuple[str, ...]) -> Shape:
    """Return the shape of an expected object with these fields."""
    return Shape("object", tuple(sorted(names)))


def texts_of_objects(objects: Sequence[Any], names: Sequence[str], *, loose: bool) -> list[str] | None:
    """Return the canonical text of these fields of each object; None where one is no dictionary or lacks a field.

    Many at once: a call for each object would take longer than its text.
    """
    if not objects:
        return []
    if set(map(type, objects)) != {dict}:
        return None
    fields = map(itemgetter(*names), objects) if names else repeat((), len(objects))
    try:
        values: Any = list(fields if len(names) != 1 else zip(fields, strict=True))
    except KeyError:
        return None
    if loose or not _PLAIN.issuperset(map(type, chain.from_iterable(values))):
        values = [[_plain(value, loose) for value in row] for row in values]
    return list(map(repr, map(list, values)))


def actual_output(output: Record, shape: Shape, rows: Rows) -> str:
    """Return the canonical text of the part of `output` that `shape` names; another kind of value equals no text."""
    if shape.kind == "any":
        return ""
    text = _part(output, shape, rows)
    return f"{_key_text(output.key)}\n{text}" if shape.with_key else text


def actual_texts(decoded: Sequence[Any], record: Callable[[int], Record], shape: Shape, rows: Rows) -> list[str]:
    """Return `actual_output` of outputs, given their decoded values (None where a value is null or not JSON).

    `record` makes the `Record` of one of them; objects with all fields need none.
    """
    if shape.kind == "any":
        return [""] * len(decoded)
    if shape.kind != "object" or shape.with_key:
        return [actual_output(record(row), shape, rows) for row in range(len(decoded))]
    texts = texts_of_objects(decoded, shape.fields, loose=rows.loose)
    if texts is not None:
        return texts
    names = frozenset(shape.fields)
    usual: dict[int, Any] = {
        row: value
        for row, value in enumerate(decoded)
        if type(value) is dict and names <= cast("dict[str, Any]", value).keys()
    }
    found = texts_of_objects([*usual.values()], shape.fields, loose=rows.loose)
    assert found is not None, "each is a dictionary with all fields"
    by_row = dict(zip(usual, found, strict=True))
    return [by_row[row] if row in by_row else actual_output(record(row), shape, rows) for row in range(len(decoded))]


def _part(output: Record, shape: Shape, rows: Rows) -> str:
    if shape.kind == "raw":
        return text_or_hex(output.value)
    if shape.kind == "record":
        return f"{_key_text(output.key)}\n{_json_or_bytes(output, loose=False)}"
    if output.value is None and "json" not in output.__dict__:
        return canonical(None) if shape.kind == "value" else "tombstone"
    try:
        value = output.json
    except NotJsonError:
        return f"not JSON {text_or_hex(output.value)}"
    if shape.kind == "object":
        if not is_a(value, dict):
            return f"no object {canonical(value, loose=rows.loose)}"
        return _fields_text(value, shape.fields, loose=rows.loose)
    if rows.loose and is_a(value, dict):
        fields: dict[str, Any] = value
        others = [field for name, field in fields.items() if name != rows.id_field]
        if len(others) == 1:
            return canonical(others[0], loose=True)
    return canonical(value, loose=rows.loose)


def _whole_record(record: Record, rows: Rows) -> Expected:
    if rows.loose:
        return _object(record, rows)
    return Expected(Shape("record"), f"{_key_text(record.key)}\n{_json_or_bytes(record, loose=False)}")


def _json_or_bytes(record: Record, *, loose: bool) -> str:
    if record.value is None:
        return "tombstone"
    try:
        return canonical(record.json, loose=loose)
    except NotJsonError:
        return text_or_hex(record.value)


def _object(fields: Mapping[str, Any], rows: Rows) -> Expected:
    shape = object_shape(tuple(fields))
    return Expected(shape, _fields_text(fields, shape.fields, loose=rows.loose))


def _fields_text(fields: Mapping[str, Any], names: Sequence[str], *, loose: bool) -> str:
    values = [fields.get(name, _MISSING) for name in names]
    if loose or not _PLAIN.issuperset(map(type, values)):
        values = [value if value is _MISSING else _plain(value, loose) for value in values]
    return repr(values)


def canonical(value: Any, *, loose: bool = False) -> str:
    """Return a text that is the same for equal values."""
    return repr(_plain(value, loose))


def _plain(value: Any, loose: bool) -> Any:
    """Return a value of lists, tuples, texts, integers, floats, Booleans and None that stands for `value`."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return _loose_text(value) if loose else value
    if kind is bool:
        return int(value) if loose else value
    if kind in _PLAIN:
        return value
    if is_a(value, Mapping):
        fields: Mapping[Any, Any] = value
        return ("object", *sorted((str(name), _plain(fields[name], loose)) for name in fields))
    if is_a(value, list, tuple, set, frozenset):
        return [_plain(item, loose) for item in value]
    if is_a(value, bytes, bytearray, memoryview):
        return _plain(_text_of_bytes(bytes(value)), loose)
    if isinstance(value, Enum):
        return _plain(value.value, loose)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return _number(value, loose)


def _number(value: Any, loose: bool) -> Any:
    if hasattr(value, "item"):  # a scalar of numpy
        return _plain(value.item(), loose)
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    if isinstance(value, (float, Decimal)):
        number = float(value)
        if not math.isfinite(number):
            return None if loose and math.isnan(number) else repr(number)
        rounded = float(f"{number:.{DIGITS}g}")
        return int(rounded) if rounded.is_integer() else rounded
    if isinstance(value, int):
        return int(value)
    return str(value)


def _loose_text(text: str) -> Any:
    if _NUMBER.fullmatch(text):
        return _number(Decimal(text), loose=True)
    if text in ("true", "True", "false", "False"):
        return int(text in ("true", "True"))
    if _TIME.match(text):
        return text.replace(" ", "T", 1)
    return text or None


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, Decimal, dt.date, dt.time, UUID, Enum)) or hasattr(value, "item")


def _key_text(key: Any) -> str:
    if key is None:
        return "null"
    return f"key {text_or_hex(key) if isinstance(key, (str, bytes)) else key}"


def text_or_hex(data: str | bytes | bytearray | None) -> str:
    """Return bytes as text where they are UTF-8, else as hex; the two never give the same text."""
    if data is None:
        return "tombstone"
    if isinstance(data, str):
        return f"text {data}"
    try:
        return f"text {bytes(data).decode()}"
    except UnicodeDecodeError:
        return f"hex {data.hex()}"


def _text_of_bytes(data: bytes) -> str:
    """Return bytes inside a row as `sink_rows.py` writes them into JSON."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"hex {data.hex()}"


def shown(value: Any, limit: int = 200) -> str:
    """Return an expected value as a verdict shows it."""
    if isinstance(value, Record):
        return text_of(value.value, limit)
    if is_a(value, tuple) and len(value) == 2:
        return f"key {shown(value[0], limit)}, value {shown(value[1], limit)}"
    if isinstance(value, (bytes, str)):
        return text_of(value if isinstance(value, bytes) else value.encode(), limit)
    try:
        text = json.dumps(dict(value) if is_a(value, Mapping) else value, default=str, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text_of(text.encode(), limit)
