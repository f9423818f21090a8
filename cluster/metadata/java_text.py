"""Values of settings as the texts that Apache Kafka writes.

Owns: `text_of`. Source: `ConfigDef.convertToString`, `Double.toString`: the shortest digits that give the number, with
an exponent below 0.001 and from 10,000,000 on.
"""

from __future__ import annotations

from decimal import Decimal

from ..config import Value


def text_of(value: Value) -> str:
    """The text of a value: `true`, `5`, `0.5`, `1.0E-4`."""
    if isinstance(value, bool):
        return str(value).lower()
    return _double(value) if isinstance(value, float) else str(value)


def _double(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), f"{value} is no number"
    first, *others = digits
    fraction = "".join(map(str, others)) or "0"
    return f"{'-' * sign}{first}.{fraction}E{exponent + len(others)}"
