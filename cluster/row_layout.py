"""Rows of a fixed width in files: the layout of a row, written once for the process that packs and for numpy."""

from __future__ import annotations

import struct
from collections.abc import Sequence

RowLayout = Sequence[tuple[str, str]]
"""The fields of a row in their order: name, and numpy's type (`<i8`; `V3`: three bytes of padding). Plain data, so that
brokers do not import numpy."""
_CODES = {"u1": "B", "<i2": "h", "<u2": "H", "<i4": "i", "<u4": "I", "<i8": "q", "<u8": "Q"}


def row_struct(layout: RowLayout) -> struct.Struct:
    """Return the struct that packs a row: it and numpy's dtype are one layout, written once."""
    codes = (f"{kind[1:]}x" if kind.startswith("V") else _CODES[kind] for _, kind in layout)
    return struct.Struct("<" + "".join(codes))
