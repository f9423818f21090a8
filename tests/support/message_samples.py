"""A message of the protocol with one item in each list, and a value in each field; the errors in a response."""

from __future__ import annotations

import dataclasses
import typing
from datetime import timedelta
from typing import Any
from uuid import UUID

from harrow.cluster.errors import ErrorCode

TOPIC_ID = UUID(int=7)


def filled(cls: Any) -> Any:
    """An instance with one item in each list, and a value in each field."""
    hints = typing.get_type_hints(cls)
    values = {
        row.name: _value(hints[row.name], row.name)
        for row in dataclasses.fields(cls)
        if row.init and not row.name.startswith("_")
    }
    return cls(**values)


def _value(hint: Any, name: str) -> Any:
    args = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return (_value(args[0], name),)
    if args:  # a union
        return _value(next(arg for arg in args if arg is not type(None)), name)
    if dataclasses.is_dataclass(hint):
        return filled(hint)
    if hint is UUID:
        return TOPIC_ID
    named = {"replica_id": -1, "key_type": 0, "resource_type": 2, "acks": 1}
    base = getattr(hint, "__supertype__", hint)
    for kind, made in ((bool, True), (str, "a-name"), (bytes, b""), (float, 1.5)):
        if isinstance(base, type) and issubclass(base, kind):
            return hint(made) if kind is str else made
    if isinstance(base, type) and issubclass(base, int):
        return hint(named.get(name, 3))
    return timedelta(milliseconds=5)


def errors_in(entity: Any, path: str = "") -> dict[str, ErrorCode]:
    """Every error field of a response, by its path."""
    found: dict[str, ErrorCode] = {}
    for row in dataclasses.fields(entity):
        value: Any = getattr(entity, row.name)
        if row.name in ("error_code", "partition_error_code"):
            found[path] = value
        for item in _items(value):
            found |= errors_in(item, f"{path}/{row.name}")
    return found


def _items(value: Any) -> list[Any]:
    """The items of a list of a response that are structures themselves."""
    return [row for row in value if dataclasses.is_dataclass(row)] if issubclass(type(value), tuple) else []
