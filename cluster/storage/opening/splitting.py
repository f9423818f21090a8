"""Splitting a segment with more offsets than its indexes can express (KAFKA-6264).

Old cleaners could write such a segment; Kafka splits it when it opens the log, and so does Harrow: two `.cleaned` files
are written, fsynced, renamed to `.swap` (the last file first), and `sweep` finishes the swap. A crash between any two
steps leaves the old segment, or two complete `.swap` files.

Source: Kafka's `LocalLog.splitOverflowedSegment`.
"""

from __future__ import annotations

from ...host.seam import Disk
from ...wire.batches import HEADER_SIZE, header_at
from ..files import CLEANED, LOG, SWAP, file_name

COPY_BYTES = 1024 * 1024


def split_segment(disk: Disk, folder: str, base_offset: int, position: int) -> None:
    """BLOCKS. Prepare the swap of the closed segment at `base_offset` for two, cut at byte `position`."""
    path = f"{folder}/{file_name(base_offset, LOG)}"
    file = disk.open(path, create=False)
    try:
        second = header_at(file.read_at(position, HEADER_SIZE)).base_offset
        stems = [f"{folder}/{file_name(base, LOG)}" for base in (base_offset, second)]
        for stem, start, end in zip(stems, (0, position), (position, file.size()), strict=True):
            disk.remove(stem + CLEANED)
            part = disk.open(stem + CLEANED)
            try:
                for at in range(start, end, COPY_BYTES):
                    part.append((file.read_at(at, min(COPY_BYTES, end - at)),))
                part.sync()
            finally:
                part.close()
        for stem in reversed(stems):
            disk.rename(stem + CLEANED, stem + SWAP)
        disk.sync_file(stems[0] + SWAP)
    finally:
        file.close()
