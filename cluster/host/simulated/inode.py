"""The bytes of one file, and which of them are durable.

Owns: `Inode`. It stores how to undo each write since the last fsync. A mapped file has no single writes, so that its
inode stores the content of the last fsync instead. `after_power_loss` returns the content that the disk has after a
power loss; the head of `disk.py` says what may survive.

After an fsync that failed, Linux counts the blocks that it did not write as clean: readers find them in the page cache,
and no later fsync writes them, unless they are written to again. `sync_failed` keeps what the disk has in their place;
the next incarnation finds that, as when the kernel has evicted the pages. A mapped file stays as it was: its pages are
written with the next msync.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from ..seam import Buffer

PAGE = 4096
BLOCK = 512
"""The unit in which a file system writes back a file's dirty bytes."""
TORN_RATHER_THAN_ZERO = 0.7
"""Probability that the rest of a torn append is missing; otherwise it is zeroes (XFS, delayed allocation)."""


class UndoneWrite(NamedTuple):
    """How to undo one write: the bytes at `position` and the size before it."""

    position: int
    before: bytes
    size: int


class Inode:
    """The bytes of a file, which may have several names over time."""

    __slots__ = ("baseline", "data", "lost_blocks", "modified_ms", "undo")

    def __init__(self, data: bytes = b"", modified_ms: int = 0) -> None:
        self.data = bytearray(data)
        self.undo: list[UndoneWrite] = []
        self.baseline: bytes | None = None
        """Content at the last sync of a file that is or was mapped."""
        self.lost_blocks: dict[int, bytes] = {}
        """Blocks that a failed fsync left unwritten, by number: what the disk has there."""
        self.modified_ms = modified_ms

    def write(self, position: int, data: Buffer) -> None:
        """Overwrite and extend; the replaced bytes are stored until the next fsync."""
        content, size = self.data, len(self.data)
        if self.baseline is None:
            self.undo.append(UndoneWrite(position, bytes(content[position : position + len(data)]), size))
        if self.lost_blocks:
            for number in range(position // BLOCK, (position + len(data) - 1) // BLOCK + 1):
                self.lost_blocks.pop(number, None)  # dirty again: the next fsync writes it
        if position > size:
            content.extend(bytes(position - size))
        content[position : position + len(data)] = data

    def resize(self, size: int) -> None:
        """Truncate, or extend by zeroes, in a new buffer: views of the old buffer do not change."""
        content = self.data
        if self.baseline is None:
            self.undo.append(UndoneWrite(size, bytes(content[size:]), len(content)))
        self.data = bytearray(content[:size]) + bytearray(max(0, size - len(content)))

    def copy(self) -> Inode:
        """The same file for another incarnation."""
        twin = Inode(self._with_lost_blocks(self.data), self.modified_ms)
        twin.undo, twin.baseline = list(self.undo), self.baseline
        return twin

    def sync(self) -> None:
        """Make the whole content durable."""
        self.undo.clear()
        if self.baseline is not None:
            self.baseline = bytes(self.data)

    def sync_failed(self) -> None:
        """An fsync failed: its blocks count as clean, and the disk does not have them."""
        if self.baseline is not None:
            return
        durable, content = self.stable(), bytes(self.data)
        for number in range((len(content) + BLOCK - 1) // BLOCK):
            block = slice(number * BLOCK, (number + 1) * BLOCK)
            if content[block] != durable[block]:
                self.lost_blocks.setdefault(number, durable[block])
        self.undo.clear()

    def _with_lost_blocks(self, content: bytes | bytearray) -> bytes:
        """`content` as the disk has it: zeroes, or older bytes, in the place of lost blocks."""
        if not self.lost_blocks:
            return bytes(content)
        found = bytearray(content)
        for number, old in self.lost_blocks.items():
            begin = number * BLOCK
            size = min(BLOCK, len(found) - begin)
            if size > 0:
                found[begin : begin + size] = old[:size].ljust(size, b"\0")
        return bytes(found)

    def stable(self) -> bytes:
        """The content at the last sync."""
        if self.baseline is not None:
            return self.baseline
        content = bytearray(self.data)
        self._undo_after(content, 0)
        return bytes(content)

    def after_power_loss(self, rng: random.Random) -> bytes:
        """The content after a power loss."""
        if self.baseline is not None:
            return _some_pages(self.baseline, bytes(self.data), rng)
        content = bytearray(self.data)
        survives = rng.randrange(len(self.undo) + 1)
        torn = self._undo_after(content, survives)
        if torn and self.undo[survives].position == len(content):
            kept = rng.randrange(len(torn) + 1)  # the first lost write was an append: torn
            content += torn[:kept] if rng.random() < TORN_RATHER_THAN_ZERO else bytes(kept)
        return self._with_lost_blocks(content)

    def _undo_after(self, content: bytearray, survives: int) -> bytes:
        """Undo all writes after the first `survives`; return the bytes that the first undone write had written."""
        torn = b""
        for undo in reversed(self.undo[survives:]):
            torn = bytes(content[undo.position :])
            content[undo.position : undo.position + len(undo.before)] = undo.before
            del content[undo.size :]
        return torn


def _some_pages(old: bytes, new: bytes, rng: random.Random) -> bytes:
    size = len(rng.choice((old, new)))
    content = bytearray(size)
    for at in range(0, size, PAGE):
        page = rng.choice((old, new))[at : min(at + PAGE, size)]
        content[at : at + len(page)] = page
    return bytes(content)
