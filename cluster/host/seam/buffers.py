"""What a frame and a file are made of: bytes in memory, and regions of files."""

from __future__ import annotations

from typing import Protocol

Buffer = bytes | bytearray | memoryview


class FileRegion(Protocol):
    """A range of an open file that a link may send without bringing it into this process (B12)."""

    @property
    def size(self) -> int:
        """Bytes in the range."""
        ...

    def __len__(self) -> int:
        """The same as `size`, so that `len` works for each part of a frame."""
        ...

    def read(self) -> bytes:
        """The bytes of the range: for the tap, for tests, and for a link that copies small regions."""
        ...


Part = Buffer | FileRegion
"""What a frame consists of on its way out."""

_BUFFERS = (bytes, bytearray, memoryview)
"""For `isinstance`, which would build a tuple of `Buffer` at each call."""


def bytes_of(part: Part) -> Buffer:
    """The bytes of a part; a region is read from its file. OSError where the file was cut below the region."""
    return part if isinstance(part, _BUFFERS) else part.read()
