"""What the worker does with an input: the handler of your team, and how its result is read. No Kafka here."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from .errors import PoisonError

Handler = Callable[[Mapping[str, Any], int], Mapping[str, Any]]
"""Takes an input and the number of the attempt, from 1; returns the output. An error is a failed attempt."""


def bill_of(order: Mapping[str, Any], attempt: int = 1) -> Mapping[str, Any]:
    """Return the bill of an order, in cents: its amount and 20 % tax, the same in each attempt."""
    del attempt
    return {"order": order["order"], "total": order["amount"] * 120 // 100}


def find_handler(name: str) -> Handler:
    """Return the handler `module:function`."""
    module, _, function = name.partition(":")
    found: Handler = getattr(importlib.import_module(module), function)
    return found


def output_of(handler: Handler, value: bytes | None, attempt: int) -> bytes:
    """Return the output for the value of an input. PoisonError: the value is no JSON object."""
    try:
        given: Any = json.loads(value or b"")
    except ValueError as error:
        raise PoisonError(f"the value is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise PoisonError(f"the value is no JSON object, but {type(given).__name__}")
    return json.dumps(handler(cast("dict[str, Any]", given), attempt)).encode()
