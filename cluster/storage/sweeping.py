"""Leftovers in a log folder: what a crash left half-done goes, what was complete is finished.

Cleaning writes `.cleaned` files, renames them to `.swap`, removes what they replace, renames to the final
name. So a `.swap` is complete unless some `.cleaned` is left that lies at or below it: then the same
cleaning never got through and the old segments are still there.

Source: Kafka's `LogLoader.removeTempFilesAndCollectSwapFiles`, `LogLoader.load`.
"""

from __future__ import annotations

from ..host.seam import Disk
from ..wire.batches import HEADER_SIZE, LOG_OVERHEAD, SPAN
from .files import CLEANED, DELETED, INDEXES, LOG, SNAPSHOT, SWAP, file_name, offset_of

TEMPORARY = ".tmp"


def sweep(disk: Disk, folder: str) -> None:
    """BLOCKS. Remove temporary files, invalid swaps, deleted files; finish the valid swaps."""
    names = disk.list(folder)
    cleaned = (_base_of(name, CLEANED) for name in names if name.endswith(CLEANED))
    smallest = min((base for base in cleaned if base is not None), default=None)
    swaps: dict[str, int] = {}
    for name in names:
        if name.endswith(SWAP):
            base = _base_of(name, SWAP)
            if base is not None and (smallest is None or base < smallest):
                swaps[name] = base
                continue
        elif not name.endswith((DELETED, CLEANED, TEMPORARY)):
            continue
        disk.remove(f"{folder}/{name}")
    _finish_swaps(disk, folder, names, swaps)


def _finish_swaps(disk: Disk, folder: str, names: list[str], swaps: dict[str, int]) -> None:
    """Remove the segments that swapped ones replace, then give those their final names."""
    old = [base for name in names if (base := offset_of(name, LOG)) is not None]
    for name, base in swaps.items():
        if name == file_name(base, LOG + SWAP):
            end = _end_offset(disk, f"{folder}/{name}", base)
            for replaced in old:
                if base <= replaced < end:
                    for suffix in (LOG, *INDEXES):
                        disk.remove(f"{folder}/{file_name(replaced, suffix)}")
    for name in swaps:
        disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")


def _end_offset(disk: Disk, path: str, base: int) -> int:
    """Offset after the last whole batch of a log file."""
    file = disk.open(path, create=False)
    try:
        end = base
        position = 0
        while len(head := file.read_at(position, HEADER_SIZE)) == HEADER_SIZE:
            first, length, delta = SPAN.unpack_from(head)
            position += length + LOG_OVERHEAD
            if length <= 0 or position > file.size():
                break
            end = first + delta + 1
        return end
    finally:
        file.close()


def _base_of(name: str, suffix: str) -> int | None:
    """Base offset of `<digits>.log<suffix>`, and of the other files of a segment."""
    stem = name.removesuffix(suffix)
    found = (offset_of(stem, kind) for kind in (LOG, *INDEXES, SNAPSHOT))
    return next((base for base in found if base is not None), None)
