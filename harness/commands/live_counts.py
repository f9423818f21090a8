"""Counts of a run while it goes on, from the files that brokers, clients and the nemesis append to.

Every counter remembers how far it has read, so that each call reads only what is new. The counts are for people who
wait; the verdict counts for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harrow.cluster.tap.layouts import FETCHED, PRODUCED, TAP_DTYPE, TAP_ROW

from .. import run_folder

HEAD_BYTES = 64
EFFECT = b'"event": "effect"'
FIELDS = [name for name, _ in TAP_DTYPE]
KIND, ERROR, COUNT = FIELDS.index("kind"), FIELDS.index("error"), FIELDS.index("count")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCounts:
    """What happened so far."""

    acknowledged: int = 0
    """Records that brokers acknowledged, a resent record perhaps twice."""
    delivered: int = 0
    """Records that brokers sent to consumers."""
    faults: int = 0
    """Faults that took effect."""

    def __add__(self, other: LiveCounts) -> LiveCounts:
        return LiveCounts(
            acknowledged=self.acknowledged + other.acknowledged,
            delivered=self.delivered + other.delivered,
            faults=self.faults + other.faults,
        )

    def __str__(self) -> str:
        return (
            f"{self.acknowledged:,} records acknowledged, {self.delivered:,} delivered, "
            f"{self.faults} fault{'s' if self.faults != 1 else ''}"
        )


class RunCounter:
    """Counts the operations and faults of one run folder from now on: an earlier run's files count nothing."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._read: dict[Path, tuple[bytes, int]] = {}
        """By file: its first bytes, which tell it from the file of another run, and how far it was read."""
        self._counts = LiveCounts()
        self.counts()
        self._counts = LiveCounts()

    def counts(self) -> LiveCounts:
        """Return the counts so far; what cannot be read counts nothing."""
        counts = self._counts
        for path in run_folder.tap_files(self._run / run_folder.CLUSTER):
            counts += self._tap_rows(path)
        new = self._new_bytes(self._run / run_folder.FAULTS, whole=b"\n")
        self._counts = counts + LiveCounts(faults=new.count(EFFECT))
        return self._counts

    def _tap_rows(self, path: Path) -> LiveCounts:
        acknowledged = delivered = 0
        for row in TAP_ROW.iter_unpack(self._new_bytes(path, size=TAP_ROW.size)):
            if row[KIND] == PRODUCED and not row[ERROR]:
                acknowledged += row[COUNT]
            elif row[KIND] == FETCHED:
                delivered += row[COUNT]
        return LiveCounts(acknowledged=acknowledged, delivered=delivered)

    def _new_bytes(self, path: Path, *, size: int = 1, whole: bytes = b"") -> bytes:
        """Return the whole rows of `size` bytes, or the whole lines, that were appended since the last call."""
        head, at = self._read.get(path, (b"", 0))
        try:
            with path.open("rb") as file:
                first = file.read(HEAD_BYTES)
                if not head or not first.startswith(head):
                    head, at = b"", 0
                file.seek(at)
                new = file.read()
        except OSError:
            return b""
        end = new.rfind(whole) + 1 if whole else len(new) // size * size
        # an inode does not tell files apart: the next file may get the number of the one that was removed
        self._read[path] = (head or first[: at + end], at + end)
        return new[:end]


class SeedsCounter:
    """Counts over the run folders of many seeds; a seed whose data was removed keeps its last counts."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._counters = [RunCounter(folder) for folder in folders]

    def counts(self) -> LiveCounts:
        """Return the sum of all seeds so far."""
        return sum((counter.counts() for counter in self._counters), LiveCounts())
