"""Replacing segments by a compacted segment so that a crash at any step loses nothing (B8).

Owns: the order of the file operations, Kafka's:

    step                                        a crash after it leaves            the next load
    1  write .cleaned, fsync (cleaned_segment)  old complete, some .cleaned        drops .cleaned
    2  .cleaned → .swap, the log file first     old complete, .swap and .cleaned   removes both
    3  old → .deleted                           .swap complete, some old gone      drops old, finishes .swap
    4  .swap → none, the log file first         new .log, some index .swap         finishes .swap
    5  fsync of the folder (the driver)

So at every moment either all old files or all new files have names that the loader uses.
Steps 2 to 4 are one turn of the loop: no read happens between them.

What may fail: OSError; the log is then offline, and its folder is in one of the states above.
Source: Kafka's `LocalLog.replaceSegments`, `LogSegment.changeFileSuffixes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...host.seam import Host
from ...host.seam.failpoints import (
    CLEANER_AFTER_SWAP,
    CLEANER_BEFORE_SWAP,
    CLEANER_TO_DELETED,
    CLEANER_TO_FINAL,
    CLEANER_TO_SWAP,
)
from ..files import CLEANED, SWAP
from ..log import Log
from ..segment import LogSegment


def can_swap(log: Log, old: Sequence[LogSegment]) -> bool:
    """False when a segment of `old` was removed by retention, or is the active segment now."""
    sealed = log.segments[:-1]
    return all(segment in sealed for segment in old)


def swap(host: Host, log: Log, new: LogSegment, old: Sequence[LogSegment]) -> None:
    """Replace `old`, neighbours from the same base offset on, by `new`, a finished `.cleaned` segment."""
    assert new.suffix == CLEANED, f"{new.file.path}: {new.suffix!r} is swapped in already"
    assert new.base_offset == old[0].base_offset, f"{new.file.path} replaces {old[0].file.path}"
    hit = host.failpoints.hit
    hit(CLEANER_BEFORE_SWAP)
    new.change_suffix(SWAP, before_each=partial(hit, CLEANER_TO_SWAP))
    log.replace_segments(new, old)
    # the producer snapshot at the first base offset belongs to the new segment, too
    log.discard(old, keep_snapshots=[new.base_offset], before_each=partial(hit, CLEANER_TO_DELETED))
    new.change_suffix("", before_each=partial(hit, CLEANER_TO_FINAL))
    hit(CLEANER_AFTER_SWAP)
