"""Fields of fixed width in the records of coordinators: big-endian numbers, bytes, and texts as UTF-8.

Owns: the base of the writers and readers of both message formats, classic (`groups/records.py`) and flexible
(`flexible_fields.py`), which differ in how they write a length.
May fail: RecordFormatError when the bytes end too early. A text that is no UTF-8 is substituted, as in Kafka.
"""

from __future__ import annotations

import struct

from ..host.seam import Buffer
from ..wire.texts import text_of_bytes
from .state_machine import RecordFormatError

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class FieldWriter:
    """Appends fields."""

    __slots__ = ("_data",)

    def __init__(self, version: int | None = None) -> None:
        self._data = bytearray() if version is None else bytearray(_I16.pack(version))

    def bytes(self) -> bytes:
        """Everything that was written."""
        return bytes(self._data)

    def i8(self, value: int) -> None:
        """One byte, signed."""
        self._data += value.to_bytes(1, signed=True)

    def i32(self, value: int) -> None:
        """Four bytes."""
        self._data += _I32.pack(value)

    def i64(self, value: int) -> None:
        """Eight bytes."""
        self._data += _I64.pack(value)

    def raw(self, value: Buffer) -> None:
        """Bytes without a length."""
        self._data += value

    def classic_string(self, value: str | None) -> None:
        """A text with an int16 length, as in every key; -1: null."""
        if value is None:
            self._data += _I16.pack(-1)
            return
        encoded = value.encode()
        self._data += _I16.pack(len(encoded)) + encoded


class FieldReader:
    """Reads fields in order."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._at = 0

    def raw(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise RecordFormatError(f"a field of {size} bytes at {self._at} of {len(self._data)}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def i8(self) -> int:
        """One byte, signed."""
        return int.from_bytes(self.raw(1), signed=True)

    def i16(self) -> int:
        """Two bytes."""
        return int(_I16.unpack(self.raw(2))[0])

    def i32(self) -> int:
        """Four bytes."""
        return int(_I32.unpack(self.raw(4))[0])

    def i64(self) -> int:
        """Eight bytes."""
        return int(_I64.unpack(self.raw(8))[0])

    def text(self, size: int) -> str | None:
        """A text of `size` bytes; null for a negative size."""
        return None if size < 0 else text_of_bytes(self.raw(size))
