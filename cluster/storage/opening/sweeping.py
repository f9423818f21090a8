"""Leftovers in a log folder: unfinished work of a crashed broker is removed, complete work is finished.

Cleaning writes `.cleaned` files, renames them to `.swap`, removes the segments that they replace, and renames them to
the final name. So a `.swap` is complete unless a `.cleaned` at or below it is left: then the same cleaning did not
finish and the old segments still exist. A `.log.swap` without a valid batch at its beginning, or with an invalid
batch anywhere while the segment that it would replace exists, was not written by a cleaning and is removed, too.

Source: Kafka's `LogLoader.removeTempFilesAndCollectSwapFiles`, `LogLoader.load`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from ...host.seam import Disk
from ...host.seam.failpoints import BEFORE_LEFTOVER, BEFORE_SWAP_RENAME
from ...wire.batch_header import ATTRIBUTES_AT
from ...wire.batches import HEADER_SIZE, LOG_OVERHEAD, SPAN, header_at
from ..files import CLEANED, DELETED, INDEXES, LOG, SNAPSHOT, SWAP, file_name, offset_of

TEMPORARY = ".tmp"


def sweep(disk: Disk, folder: str, reach: Callable[[str], None]) -> None:
    """BLOCKS. Remove temporary files, invalid swaps, deleted files; finish the valid swaps.

    `reach` is called with the name of each failpoint on the way.
    """
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
        reach(BEFORE_LEFTOVER)
        disk.remove(f"{folder}/{name}")
    _finish_swaps(disk, folder, names, swaps, reach)


def _finish_swaps(
    disk: Disk, folder: str, names: list[str], swaps: dict[str, int], reach: Callable[[str], None]
) -> None:
    """Remove the segments that valid swaps replace, then give the swaps their final names."""
    for name, base in list(swaps.items()):
        if name != file_name(base, LOG + SWAP):
            continue
        found = _examine(disk, f"{folder}/{name}", base)
        if not found.whole and (found.end == base or file_name(base, LOG) in names):
            # a cleaning does not leave this: the segment that it would replace may be valid
            for kind in (LOG, *INDEXES):
                if swaps.pop(file_name(base, kind + SWAP), None) is not None:
                    reach(BEFORE_LEFTOVER)
                    disk.remove(f"{folder}/{file_name(base, kind + SWAP)}")
            continue
        for old in names:
            replaced = None if old.endswith(SNAPSHOT) else _base_of(old, "")
            if replaced is not None and base <= replaced < found.end:
                reach(BEFORE_LEFTOVER)
                disk.remove(f"{folder}/{old}")
    for name in swaps:
        reach(BEFORE_SWAP_RENAME)
        disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")


class _Swap(NamedTuple):
    """The content of a `.log.swap` file."""

    end: int
    """Offset after its last valid batch; its base offset without one."""
    whole: bool
    """True when it consists of valid batches only."""


def _examine(disk: Disk, path: str, base: int) -> _Swap:
    file = disk.open(path, create=False)
    try:
        end, position, size = base, 0, file.size()
        while position < size:
            head = file.read_at(position, HEADER_SIZE)
            batch_size = SPAN.unpack_from(head)[1] + LOG_OVERHEAD if len(head) == HEADER_SIZE else 0
            if not HEADER_SIZE <= batch_size <= size - position:
                return _Swap(end, whole=False)
            data = file.read_at(position, batch_size)
            header = header_at(data)
            if header.base_offset < end or crc32c(memoryview(data)[ATTRIBUTES_AT:]) != header.crc:
                return _Swap(end, whole=False)
            end = header.last_offset + 1
            position += batch_size
        return _Swap(end, whole=True)
    finally:
        file.close()


def _base_of(name: str, suffix: str) -> int | None:
    """Base offset of `<digits>.log<suffix>`, and of the other files of a segment."""
    stem = name.removesuffix(suffix)
    found = (offset_of(stem, kind) for kind in (LOG, *INDEXES, SNAPSHOT))
    return next((base for base in found if base is not None), None)
