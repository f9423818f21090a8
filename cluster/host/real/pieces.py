"""A frame as the pieces that a real link queues: buffers, and regions of files that leave by `sendfile`.

Pure. A small frame is joined, which copies it; the parts of a larger frame are not copied. A small region of a file
is read into a buffer, because a read costs less than a separate system call (OSError where it cannot be read).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..seam import Buffer, Part, bytes_of
from .disk import RealRegion

SIZE = struct.Struct(">i")
JOIN_BYTES = 4096
"""A smaller frame is joined with its size at once; the parts of a larger frame stay apart."""
REGION_BYTES_LEAST = 16 * 1024
"""For a smaller range a read and a join cost less than a separate system call."""

Piece = Buffer | RealRegion


def pieces_of(parts: Sequence[Part], size: int) -> list[Piece]:
    """Return the frame of these parts, `size` bytes together, with its size before it."""
    if size < JOIN_BYTES:
        return [joined(parts, size)]
    return [SIZE.pack(size), *[_queueable(part) for part in parts if len(part)]]


def joined(parts: Sequence[Part], size: int) -> bytes:
    """Return the frame in one piece."""
    return b"".join((SIZE.pack(size), *map(bytes_of, parts)))


def _queueable(part: Part) -> Piece:
    """The part itself, or the bytes of a small region."""
    if isinstance(part, RealRegion) and part.size >= REGION_BYTES_LEAST:
        return part
    return bytes_of(part)
