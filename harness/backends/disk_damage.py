"""Damages the files of a dead broker (K3): `damaged` does to a disk what `faults/damage_faults.py` says.

It works on the seam's `Disk`, so that it serves real folders and simulated machines alike. Everything is drawn by the
seed. The report has the files that were changed and what was done; without files there was nothing to damage, such as
records above the recovery point.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harrow.cluster.errors import HarrowError
from harrow.cluster.host.seam import Disk
from harrow.cluster.ids import TopicPartition
from harrow.cluster.storage import files
from harrow.cluster.storage.checkpoints import OffsetCheckpoint
from harrow.cluster.wire.batch_header import HEADER_SIZE, headers
from harrow.faults.controls import FileDamage

CHECKPOINTS = (files.RECOVERY_POINTS, files.HIGH_WATERMARKS, files.LOG_START_OFFSETS, files.CLEANER_OFFSETS)
ENTRY_BYTES = {files.OFFSET_INDEX: 8, files.TIME_INDEX: 12}
"""Of the indexes whose entries have one size."""
GARBAGE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    path: str
    position: int
    size: int


@dataclass(slots=True, kw_only=True)
class _Damage:
    """One damage in progress."""

    disk: Disk
    data: str
    """The data folder."""
    partition: TopicPartition
    rng: random.Random
    report: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def folder(self) -> str:
        return f"{self.data}/{self.partition.topic}-{self.partition.partition}"

    def write(self, path: str, data: bytes, what: str) -> None:
        self.disk.replace(path, data)
        self.report[path] = what

    def remove(self, path: str) -> None:
        self.disk.remove(path)
        self.report[path] = "removed"

    def named(self, suffix: str) -> list[int]:
        """Base offsets of the files with this suffix."""
        found = (files.offset_of(name, suffix) for name in self.disk.list(self.folder))
        return sorted(base for base in found if base is not None)

    def path(self, base: int, suffix: str) -> str:
        return f"{self.folder}/{files.file_name(base, suffix)}"

    def recovery_point(self) -> int:
        try:
            points = OffsetCheckpoint(self.disk, f"{self.data}/{files.RECOVERY_POINTS}").read()
        except HarrowError:
            return 0  # a damaged checkpoint: everything is recovered
        return int(points.get(self.partition, 0))

    def unsynced_segments(self) -> list[int]:
        """Base offsets of the segments that a start reads again."""
        bases, point = self.named(files.LOG), self.recovery_point()
        ends = [*bases[1:], self._end_of(bases[-1])]
        return [base for base, end in zip(bases, ends, strict=True) if end > point]

    def _end_of(self, base: int) -> int:
        """The offset after the last whole batch of a segment."""
        end = base
        try:
            for _, _, header in headers(self.disk.read(self.path(base, files.LOG))):
                end = header.last_offset + 1
        except HarrowError:
            pass  # damaged before
        return end

    def unsynced_batches(self) -> list[_Batch]:
        """The batches at or above the recovery point."""
        point = self.recovery_point()
        found: list[_Batch] = []
        for base in self.unsynced_segments():
            path = self.path(base, files.LOG)
            try:
                found += [
                    _Batch(path=path, position=at, size=size)
                    for at, size, header in headers(self.disk.read(path))
                    if header.base_offset >= point
                ]
            except HarrowError:
                continue  # damaged before
        return found


def _bit_flip(damage: _Damage) -> None:
    batches = damage.unsynced_batches()
    if batches:
        batch = damage.rng.choice(batches)
        data = bytearray(damage.disk.read(batch.path))
        # behind base offset, length and leader epoch, which the checksum does not cover
        at = batch.position + damage.rng.randrange(HEADER_SIZE - 40, batch.size)
        bit = damage.rng.randrange(8)
        data[at] ^= 1 << bit
        damage.write(batch.path, bytes(data), f"bit {bit} of byte {at}")


def _torn_write(damage: _Damage) -> None:
    batches = damage.unsynced_batches()
    if batches:
        batch = damage.rng.choice(batches[-3:])
        data = damage.disk.read(batch.path)
        at = batch.position + damage.rng.randrange(1, batch.size)
        damage.write(batch.path, data[:at] + bytes(len(data) - at), f"zeroes from byte {at} on")


def _short_write(damage: _Damage) -> None:
    batches = damage.unsynced_batches()
    last = [batch for batch in batches if batch.path == batches[-1].path]
    if last:
        batch = damage.rng.choice(last[-3:])
        at = batch.position + damage.rng.randrange(1, batch.size)
        damage.write(batch.path, damage.disk.read(batch.path)[:at], f"ends at byte {at}")


def _misdirected_write(damage: _Damage) -> None:
    batches = damage.unsynced_batches()
    if not batches:
        return
    source, target = damage.rng.choice(batches), damage.rng.choice(batches)
    data = bytearray(damage.disk.read(target.path))
    piece = damage.disk.read(source.path)[source.position : source.position + source.size]
    at = target.position + damage.rng.randrange(1, target.size)
    piece = piece[: min(len(piece), len(data) - at)]
    if bytes(data[at : at + len(piece)]) == piece:
        return
    data[at : at + len(piece)] = piece
    what = f"{len(piece)} bytes of byte {source.position} at byte {at} too"
    damage.write(target.path, bytes(data), what)


def _missing_index(damage: _Damage) -> None:
    base = damage.rng.choice(damage.named(files.LOG))
    for suffix in (files.OFFSET_INDEX, files.TIME_INDEX):
        if damage.disk.exists(damage.path(base, suffix)):
            damage.remove(damage.path(base, suffix))


def _short_index(damage: _Damage) -> None:
    for suffix, entry in ENTRY_BYTES.items():
        path = damage.path(damage.rng.choice(damage.named(files.LOG)), suffix)
        data = damage.disk.read(path) if damage.disk.exists(path) else b""
        if len(data) > entry:
            at = damage.rng.randrange(len(data) // entry) * entry + damage.rng.randrange(1, entry)
            damage.write(path, data[:at], f"ends at byte {at}")


def _corrupt_index(damage: _Damage) -> None:
    bases = damage.unsynced_segments()
    if bases:
        path = damage.path(damage.rng.choice(bases), damage.rng.choice(tuple(ENTRY_BYTES)))
        damage.write(path, damage.rng.randbytes(GARBAGE_BYTES), f"{GARBAGE_BYTES} random bytes")


def _missing_snapshot(damage: _Damage) -> None:
    for base in damage.named(files.SNAPSHOT):
        damage.remove(damage.path(base, files.SNAPSHOT))


def _corrupt_snapshot(damage: _Damage) -> None:
    bases = damage.named(files.SNAPSHOT)
    if bases:
        path = damage.path(damage.rng.choice(bases), files.SNAPSHOT)
        data = damage.disk.read(path)
        count = damage.rng.randrange(1, len(data) + 1) if data else 0
        damage.write(path, data[: len(data) - count] + damage.rng.randbytes(count), f"{count} random bytes")


def _checkpoint(damage: _Damage) -> str | None:
    paths = [f"{damage.data}/{name}" for name in CHECKPOINTS]
    present = [path for path in paths if damage.disk.exists(path)]
    return damage.rng.choice(present) if present else None


def _missing_checkpoint(damage: _Damage) -> None:
    path = _checkpoint(damage)
    if path is not None:
        damage.remove(path)


def _corrupt_checkpoint(damage: _Damage) -> None:
    path = _checkpoint(damage)
    data = b"" if path is None else damage.disk.read(path)
    if path is not None and data:
        at = damage.rng.randrange(1, len(data))
        damage.write(path, data[:at], f"ends at byte {at}")


def _leftovers(damage: _Damage) -> None:
    bases = damage.named(files.LOG)
    first = damage.path(bases[0], files.LOG)
    data = damage.disk.read(first)
    sealed = bases[:-1]
    if sealed and damage.rng.random() < 0.5:  # the swap of a sealed segment by itself, half done
        base = damage.rng.choice(sealed)
        path = damage.path(base, files.LOG)
        damage.write(f"{path}{files.SWAP}", damage.disk.read(path), "a complete swap")
    else:
        count = damage.rng.randrange(len(data) + 1)
        damage.write(f"{first}{files.CLEANED}", data[:count], f"{count} bytes of the segment")
    damage.write(f"{first}{files.DELETED}", data, "a copy of the segment")


ACTS: Mapping[str, Callable[[_Damage], None]] = {
    "bit-flip": _bit_flip,
    "torn-write": _torn_write,
    "short-write": _short_write,
    "misdirected-write": _misdirected_write,
    "missing-index": _missing_index,
    "short-index": _short_index,
    "corrupt-index": _corrupt_index,
    "missing-snapshot": _missing_snapshot,
    "corrupt-snapshot": _corrupt_snapshot,
    "missing-checkpoint": _missing_checkpoint,
    "corrupt-checkpoint": _corrupt_checkpoint,
    "leftovers": _leftovers,
}


def damaged(disk: Disk, data_folders: Sequence[str], change: FileDamage) -> dict[str, Any]:
    """Damage a replica below one of the folders; return `damage`, `partition`, and `files`, without any if none was."""
    for damage in change.damages:
        for partition in change.partitions:
            tp = files.partition_of(partition)
            assert tp is not None, f"{partition!r} is no name of a log folder"
            for data in data_folders:
                if not disk.exists(f"{data}/{partition}"):
                    continue
                rng = random.Random(f"{change.seed}/{damage}")  # noqa: S311 - repeatable, not secret
                progress = _Damage(disk=disk, data=data, partition=tp, rng=rng)
                ACTS[damage](progress)
                if progress.report:
                    return {"damage": damage, "partition": partition, "files": progress.report}
    return {"files": {}}
