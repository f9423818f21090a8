"""A frame as the pieces that a real link queues: buffers, and regions of files that leave by `sendfile`.

Pure. A small frame is joined, which copies it; of a larger one the parts are kept as they are. The region of a
file becomes a buffer where a system call of its own would not pay (OSError where it cannot be read).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..seam import Buffer, Part, bytes_of
from .disk import RealRegion

SIZE = struct.Struct(">i")
JOIN_BYTES = 4096
"""A smaller frame is joined with its size at once; of a larger one the parts are kept apart."""
REGION_BYTES_LEAST = 16 * 1024
"""Of a smaller range a read and a join are cheaper than a system call of its own."""

Piece = Buffer | RealRegion


def pieces_of(parts: Sequence[Part], size: int) -> list[Piece]:
    """Return the frame of these parts, `size` bytes together, with its size before it."""
    if size < JOIN_BYTES:
        return [joined(parts, size)]
    return [SIZE.pack(size), *[_queueable(part) for part in parts if len(part)]]


def joined(parts: Sequence[Part], size: int) -> bytes:
    """Return the same in one piece."""
    return b"".join((SIZE.pack(size), *map(bytes_of, parts)))


def _queueable(part: Part) -> Piece:
    """A region only where sending it as one pays."""
    if isinstance(part, RealRegion) and part.size >= REGION_BYTES_LEAST:
        return part
    return bytes_of(part)
