"""`Record`: a Kafka record as the user's functions receive it (`record_id=`, `order_key=`, relations).

A `Record` is also a read-only mapping of the fields of its JSON value, so that a function which was written for the
decoded value works unchanged: `record["order"]`, `record.get("amount", 0)`, `{**record, "paid": True}`.

What may fail: `NotJsonError` where a field is asked of a value that is not a JSON object, and where `json` is read of a
value that is not JSON. Its message shows the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harrow.cluster.errors import HarrowError

SHOWN_CHARACTERS = 200


class NotJsonError(HarrowError):
    """A value is not JSON, or no JSON object."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Record(Mapping[str, Any]):
    """A record of a topic, or a row of a sink. As a mapping it has the fields of its JSON value."""

    topic: str = ""
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1
    """Kafka's timestamp of the record, in milliseconds since 1970; -1 when there is none."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())

    @cached_property
    def json(self) -> Any:
        """The value, decoded from JSON. Raises NotJsonError."""
        if self.value is None:
            raise NotJsonError(f"{self.place} has no value (a tombstone), expected JSON")
        try:
            return json.loads(self.value)
        except ValueError as error:
            raise NotJsonError(f"{self.place} is not JSON ({error}): {text_of(self.value)}") from None

    @property
    def text(self) -> str:
        """The value as UTF-8 text. Raises UnicodeDecodeError; an absent value is an empty text."""
        return (self.value or b"").decode()

    @property
    def place(self) -> str:
        """Where the record is, for messages: `orders-2@17`."""
        return f"{self.topic}-{self.partition}@{self.offset}" if self.topic else "a row of the sink"

    def _fields(self) -> Mapping[str, Any]:
        fields = self.json
        if not isinstance(fields, dict):
            raise NotJsonError(
                f"{self.place} is not a JSON object: {text_of(self.value)}; use a function of the record instead"
            )
        return fields  # pyright: ignore[reportUnknownVariableType] - JSON objects have text keys

    def __getitem__(self, name: str) -> Any:
        fields: Any = self.__dict__.get("json")  # decoded already, as in the checks
        if type(fields) is dict:
            return fields[name]  # pyright: ignore[reportUnknownVariableType] - JSON objects have text keys
        return self._fields()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def __len__(self) -> int:
        return len(self._fields())

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        key = "" if self.key is None else f" key={text_of(self.key)}"
        return f"{self.place}{key} value={text_of(self.value)}"


def text_of(data: bytes | None, limit: int = SHOWN_CHARACTERS) -> str:
    """Return bytes as text for messages and reports: UTF-8 where possible, else as hex; at most `limit` characters."""
    if data is None:
        return "null"
    try:
        text = data[: 4 * limit + 4].decode() if len(data) <= 4 * limit else data[: 4 * limit].decode(errors="ignore")
    except UnicodeDecodeError:
        text = f"0x{data[:limit].hex()}"
    if not text.isprintable():
        text = repr(text)[1:-1]
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
