"""Record ids and order keys: what a user gives as `record_id=` or `order_key=`, its canonical text, and its hash.

A user gives a field path of the JSON value (`"order"`, `"customer.id"`), or a function of the `Record`. A path leads
through JSON objects only; for anything else there are functions.

**Ids are compared as text** (`canonical`). So 7, "7", 7.0 and b"7" are the same id: the same order is a number in a
JSON value, bytes in a Kafka key and text in a CSV file, and the test must not call it lost for that. The text of

* a text is the text itself; of bytes the UTF-8 text, or `0x…` where they are not UTF-8;
* an int is its digits; a float or Decimal with an integer value has the text of that int, another one its shortest
  form;
* a bool is `true` or `false`; of a UUID its `str`; of a date or a time its ISO form; of an Enum member that of its
  value;
* a list or tuple is the JSON list of its elements' texts; of a mapping the JSON object with sorted keys.

Other objects, NaN and infinities are refused.

A record without an id: a field path that leads nowhere, or to null, is a problem that makes the verdict unknown, and
so is a function that raises. A function that **returns None** says that the record is none of the application's (a
heartbeat, a tombstone): the record is not judged, and the verdict counts it.

The hash has 128 bits (BLAKE2b of the text in UTF-8, lone surrogates as their escapes), as two Int64 columns. It is
the same in every process and on every machine.
"""

from __future__ import annotations

import datetime as dt
import enum
import hashlib
import json
import math
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError, HarrowError

from ..checks.record import Record

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

IdFunction = Callable[[Record], Any]
IdSource = str | IdFunction
"""What `record_id=` and `order_key=` accept."""
HASH_BYTES = 16
_decode: Callable[[str], tuple[Any, int]] = json.JSONDecoder().raw_decode
_BETWEEN_TEXT = secrets.token_hex(8)
_BETWEEN = f'"{_BETWEEN_TEXT}"'.encode()


class RecordIdError(HarrowError):
    """A record has no id, or its id has a type that cannot be compared."""


def canonical(value: object) -> str:
    """Return the text by which an id is compared. Raises RecordIdError for a type without such a text."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[return-value]
    if kind is int:
        return str(value)
    if kind is float:
        return _float_text(value)  # type: ignore[arg-type]
    return _other_text(value)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        raise RecordIdError(f"{value} cannot be a record id")
    return str(int(value)) if value.is_integer() else repr(value)


def _other_text(value: Any) -> str:
    whole: Any = value  # which the patterns below do not narrow
    match value:
        case bool():
            return "true" if value else "false"
        case enum.Enum():
            return canonical(value.value)
        case str() | int() | uuid.UUID():
            return str(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case float():
            return _float_text(float(value))
        case Decimal():
            if not value.is_finite():
                raise RecordIdError(f"{value} cannot be a record id")
            return str(int(value)) if value == int(value) else f"{value.normalize():f}"
        case bytes() | bytearray():
            return bytes_text(bytes(value))
        case Mapping():
            return _mapping_text(whole)
        case Sequence():
            elements = [canonical(element) for element in whole]
            return json.dumps(elements, ensure_ascii=False)
        case _ if callable(getattr(value, "item", None)) and getattr(value, "shape", None) == ():
            return canonical(value.item())  # a scalar of numpy
        case _:
            raise RecordIdError(
                f"a record id of type {type(value).__name__} cannot be compared ({value!r}); return a text, a number, "
                "bytes, a UUID, a date, or a list of such values"
            )


def _mapping_text(value: Mapping[Any, Any]) -> str:
    fields = {canonical(name): canonical(content) for name, content in value.items()}
    return json.dumps(fields, sort_keys=True, ensure_ascii=False)


def bytes_text(value: bytes) -> str:
    """Return the canonical text of bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def decode_json(value: bytes) -> Any:
    """Return a JSON value, decoded; None where it is null or no plain JSON in UTF-8, which `Record.json` explains."""
    try:
        text = value.decode()
        decoded, end = _decode(text)
    except (ValueError, RecursionError):
        return None
    return decoded if end == len(text) else None


def decode_all(values: Sequence[bytes | None]) -> list[Any]:
    """Return `decode_json` of each value, or what `Record.json` returns for it; None for a null value.

    All values are decoded as the items of one JSON list, which takes half the time. A random text stands between each
    two of them: where it is not at every second place of the list, a value is not exactly one item. Then, and where a
    value is not JSON, each is decoded by itself.
    """
    parts: list[bytes] = [_BETWEEN] * max(0, 2 * len(values) - 1)
    parts[::2] = [b"null" if value is None else value for value in values]
    try:
        items: list[Any] = json.loads(f"[{b','.join(parts).decode()}]")
    except (ValueError, RecursionError):
        items = []
    if len(items) == len(parts) and items[1::2] == [_BETWEEN_TEXT] * (len(parts) // 2):
        return items[::2]
    return [None if value is None else decode_json(value) for value in values]


def hashes(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the hashes of canonical texts: an array of two int64 for each text."""
    import numpy as np

    blake = hashlib.blake2b
    digests = [blake(text.encode("utf-8", "backslashreplace"), digest_size=HASH_BYTES).digest() for text in texts]
    return np.frombuffer(b"".join(digests), "<i8").reshape(-1, 2)


def check_source(name: str, source: object) -> None:
    """Check what the caller gave as `record_id=` or `order_key=` (`name`). Raises ConfigError."""
    if isinstance(source, str) and all(source.split(".")):
        return
    if isinstance(source, str) or not callable(source):
        raise ConfigError(
            f'{name}={source!r}: expected a field path of the JSON value, such as "order" or "customer.id", or a '
            "function of the record"
        )


@dataclass(frozen=True, slots=True)
class IdReader:
    """Takes the value that a source names from records: the id itself, not its canonical text."""

    name: str
    """The parameter, for messages: `record_id` or `order_key`."""
    source: IdSource

    def of(self, record: Record) -> object:
        """Return the id of a record; None where the user's function returned None.

        Raises RecordIdError for a field path that leads nowhere, and what the user's function raises.
        """
        if callable(self.source):
            return self.source(record)
        return self._field(record.json, record)

    def of_mapping(self, fields: Mapping[str, Any]) -> object:
        """Return the id of an expected record; a function receives it as a `Record` with these fields."""
        if callable(self.source):
            return self.source(record_of(fields))
        return self._field(fields, fields)

    def quick_texts(self, values: Sequence[bytes | None]) -> list[str | None]:
        """Return the canonical text of the field of each JSON value; None where a value is not as usual.

        This is the fast way for most records, without a `Record`: `of` then says what is wrong with the others.
        """
        assert isinstance(self.source, str)
        names = self.source.split(".")
        found: list[str | None] = []
        keep = found.append
        for value in decode_all(values):
            field = value
            try:
                for name in names:
                    field = field[name]
                kind = field.__class__
                if field is None:
                    keep(None)
                else:
                    keep(field if kind is str else str(field) if kind is int else canonical(field))
            except Exception:
                keep(None)
        return found

    def _field(self, fields: Any, shown: object) -> object:
        path = str(self.source)
        found = fields
        for name in path.split("."):
            if not isinstance(found, Mapping) or name not in found:
                raise RecordIdError(f"{self.name}={path!r}: no such field in {shown}")
            found = found[name]  # pyright: ignore[reportUnknownVariableType]
        if found is None:
            raise RecordIdError(f"{self.name}={path!r}: the field is null in {shown}")
        return found  # pyright: ignore[reportUnknownVariableType]


def record_of(fields: Mapping[str, Any]) -> Record:
    """Return an expected record as a `Record`; a `Record` stays as it is."""
    if isinstance(fields, Record):
        return fields
    try:
        value = json.dumps(dict(fields)).encode()
    except (TypeError, ValueError) as error:
        raise RecordIdError(
            f"the expected record {fields!r} cannot be written as JSON ({error}): give its id instead of the record"
        ) from error
    return Record(value=value)
