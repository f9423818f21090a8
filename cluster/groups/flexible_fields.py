"""Fields of Kafka's flexible message format, for the values of `__consumer_offsets` records (KIP-482).

Owns: a writer and a reader of fields in order. Lengths are unsigned varints, one more than the length (0: null).
May fail: RecordFormatError when the bytes end too early or a text is no UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ..coordinators import RecordFormatError
from ..host.seam import Buffer

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class FlexibleWriter:
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

    def varint(self, value: int) -> None:
        """An unsigned varint."""
        while value > 0x7F:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)

    def size(self, count: int) -> None:
        """The length of a text, of bytes or of an array."""
        self.varint(count + 1)

    def string(self, value: str | None) -> None:
        """A text or null."""
        if value is None:
            self.varint(0)
        else:
            self.octets(value.encode())

    def octets(self, value: Buffer) -> None:
        """Bytes with their length."""
        self.size(len(value))
        self._data += value

    def strings(self, values: Iterable[str]) -> None:
        """An array of texts."""
        texts = list(values)
        self.size(len(texts))
        for text in texts:
            self.string(text)

    def classic_string(self, value: str) -> None:
        """A text with an int16 length, as in keys."""
        encoded = value.encode()
        self._data += _I16.pack(len(encoded)) + encoded

    def tags(self, fields: Iterable[tuple[int, Buffer]] = ()) -> None:
        """The tagged fields at the end of a structure."""
        rows = list(fields)
        self.varint(len(rows))
        for tag, value in rows:
            self.varint(tag)
            self.varint(len(value))
            self._data += value


class FlexibleReader:
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

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise RecordFormatError(f"a varint longer than 5 bytes before {self._at}")

    def size(self) -> int:
        """The length of an array; null counts as empty."""
        count = max(self.varint() - 1, 0)
        if count > len(self._data):
            raise RecordFormatError(f"an array of {count} elements in {len(self._data)} bytes")
        return count

    def string(self) -> str | None:
        """A text or null."""
        size = self.varint() - 1
        if size < 0:
            return None
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise RecordFormatError(f"a string that is not UTF-8: {error}") from None

    def octets(self) -> bytes:
        """Bytes with their length."""
        return self.raw(max(self.varint() - 1, 0))

    def strings(self) -> list[str]:
        """An array of texts."""
        return [self.string() or "" for _ in range(self.size())]

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a structure, unknown ones too."""
        return {self.varint(): self.raw(self.varint()) for _ in range(self.varint())}
