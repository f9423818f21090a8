"""Checkpoint files (B2): small text files with offsets or epochs.

Format, version 0: a line `0`, a line with the number of entries, then one entry a line. `Disk.replace`
writes them: temporary file, fsync, rename, fsync of the folder, so a reader gets the old or the new content.
Malformed content is a CorruptLogError with file and line. An absent file has no entries; nor has an empty file, which
Kafka creates before it has entries.

Source: Kafka's `CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import CorruptLogError
from ..host.seam import Disk
from ..ids import Offset, TopicPartition

VERSION = "0"


def read_rows(disk: Disk, path: str, columns: int) -> list[list[str]]:
    """The entries of `path`, each split at blanks into exactly `columns` words."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return []
    if not data:
        return []
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptLogError(f"{path}: not a text file ({error}); remove it") from None
    if not lines or lines[0].strip() != VERSION:
        found = lines[0] if lines else ""
        raise malformed(path, 1, f"version {found!r}, expected {VERSION}")
    if len(lines) < 2 or not lines[1].strip().isdecimal():
        raise malformed(path, 2, "expected the number of entries")
    expected = int(lines[1])
    body = lines[2:]
    for number, line in enumerate(body, 3):
        if number - 2 > expected:
            raise malformed(path, number, f"more than the {expected} entries of line 2")
        if len(line.split()) != columns:
            raise malformed(path, number, f"{line!r}, expected {columns} words")
    if not data.endswith(b"\n"):  # a torn file: the last number may have lost digits
        raise malformed(path, len(lines), f"{lines[-1]!r} has no end of line")
    if len(body) < expected:
        raise malformed(path, len(lines), f"{len(body)} entries, line 2 says {expected}")
    return [line.split() for line in body]


def encode_rows(rows: Iterable[Iterable[object]]) -> bytes:
    """A checkpoint file with these entries."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def read_number(path: str, line: int, word: str) -> int:
    """`word` as a number; CorruptLogError names the line."""
    try:
        return int(word)
    except ValueError:
        raise malformed(path, line, f"{word!r} is not a number") from None


def malformed(path: str, line: int, what: str) -> CorruptLogError:
    """The error for a line of a checkpoint."""
    return CorruptLogError(f"{path}:{line}: {what}; remove the file to start without it")


class OffsetCheckpoint:
    """One file of `topic partition offset` lines."""

    __slots__ = ("_disk", "_last", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._last = b""

    def read(self) -> dict[TopicPartition, Offset]:
        """Every entry; CorruptLogError when the file is malformed."""
        offsets: dict[TopicPartition, Offset] = {}
        for number, row in enumerate(read_rows(self._disk, self.path, 3), 3):
            partition = read_number(self.path, number, row[1])
            offset = read_number(self.path, number, row[2])
            if partition < 0 or offset < 0:
                raise malformed(self.path, number, f"{' '.join(row)!r} has a negative number")
            offsets[TopicPartition(row[0], partition)] = Offset(offset)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace the file; nothing is written when nothing changed since the last time."""
        data = encode_rows((tp.topic, tp.partition, offsets[tp]) for tp in sorted(offsets))
        if data != self._last:
            self._disk.replace(self.path, data)
            self._last = data
