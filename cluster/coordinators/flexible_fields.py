"""Fields of Kafka's flexible message format, for the values of coordinators' records (KIP-482).

Owns: a writer and a reader of fields in order. Lengths are unsigned varints, one more than the length (0: null).
May fail: RecordFormatError, as `record_fields.py` says, and for a varint or an array that is too long.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import WireError
from ..host.seam import Buffer
from ..wire.decoding import read_varint
from ..wire.primitives import varint
from .record_fields import FieldReader, FieldWriter
from .state_machine import RecordFormatError


class FlexibleWriter(FieldWriter):
    """Appends fields."""

    __slots__ = ()

    def varint(self, value: int) -> None:
        """An unsigned varint."""
        self._data += varint(value)

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

    def tags(self, fields: Iterable[tuple[int, Buffer]] = ()) -> None:
        """The tagged fields at the end of a structure."""
        rows = list(fields)
        self.varint(len(rows))
        for tag, value in rows:
            self.varint(tag)
            self.varint(len(value))
            self._data += value


class FlexibleReader(FieldReader):
    """Reads fields in order."""

    __slots__ = ()

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        try:
            value, self._at = read_varint(self._data, self._at)
        except IndexError:
            raise RecordFormatError(f"a varint at {self._at} that goes on after {len(self._data)} bytes") from None
        except WireError as error:
            raise RecordFormatError(str(error)) from None
        return value

    def size(self) -> int:
        """The length of an array; null counts as empty."""
        count = max(self.varint() - 1, 0)
        if count > len(self._data):
            raise RecordFormatError(f"an array of {count} elements in {len(self._data)} bytes")
        return count

    def string(self) -> str | None:
        """A text or null."""
        return self.text(self.varint() - 1)

    def octets(self) -> bytes:
        """Bytes with their length."""
        return self.raw(max(self.varint() - 1, 0))

    def strings(self) -> list[str]:
        """An array of texts."""
        return [self.string() or "" for _ in range(self.size())]

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a structure, unknown ones too."""
        return {self.varint(): self.raw(self.varint()) for _ in range(self.varint())}
