"""A large frame that several reads of a link bring: its pieces, joined once it is complete.

Owns: the pieces read so far and the number of bytes that are missing. Reassembly is linear in the size of the frame,
and nothing is allocated before its bytes have arrived.
"""

from __future__ import annotations

PIECE_BYTES = 1024 * 1024
"""Most bytes of a large frame that one read takes."""
OWN_PIECES_BYTES = 4096
"""An incomplete frame larger than this is collected in pieces; a smaller one stays in front of the next read."""
PIECES_MOST = 256
"""Pieces that are held apart: a peer that sends single bytes must not cost an object for each byte."""


class LargeFrame:
    """At most one incomplete frame of a link."""

    __slots__ = ("_merged", "_pieces", "missing_bytes")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._merged = 0  # how many of the first pieces are merged ones
        self.missing_bytes = 0
        """Bytes that the frame still lacks; 0: no frame is incomplete."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the incomplete frame that were read."""
        return sum(map(len, self._pieces))

    def begin(self, start: bytes, size: int) -> None:
        """Collect a frame of `size` bytes that begins with `start`."""
        assert len(start) < size, f"{len(start)} bytes of a frame of {size}: it is complete"
        self._pieces, self._merged = [start], 0
        self.missing_bytes = size - len(start)

    def add(self, piece: bytes) -> bytes | None:
        """Add the bytes of one read; returns the frame when it is complete, else None."""
        pieces = self._pieces
        pieces.append(piece)
        self.missing_bytes -= len(piece)
        assert self.missing_bytes >= 0, "a read took bytes of the next frame"
        if not self.missing_bytes:
            self.clear()
            return b"".join(pieces)
        if len(pieces) - self._merged >= PIECES_MOST:
            pieces[self._merged :] = [b"".join(pieces[self._merged :])]
            self._merged += 1
        return None

    def clear(self) -> None:
        """Forget the incomplete frame."""
        self._pieces, self._merged, self.missing_bytes = [], 0, 0
