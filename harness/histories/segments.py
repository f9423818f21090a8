"""Reads Kafka's segment files for a verdict: the headers of record batches v2, with their CRC-32C verified (L3).

`read_log` returns the log of one replica as columns, with a row for each batch. Files are memory-mapped and records are
not decoded, so a gigabyte takes about a second; only the markers of aborted transactions are, and get the attribute
`ABORT_MARKER`. A log that was copied for other machines is named by a URL (`histories/task_files.py`), and its files
are read whole. A batch that ends beyond its file is a torn tail in the log's last segment (the broker may be writing
it), and corruption in any other segment. A length of zero is the end of a preallocated file. Batches with another magic
than 2 cannot be judged: SegmentError, and the verdict is unknown.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c
from harrow.cluster.errors import HarrowError
from harrow.cluster.wire.batch_header import ATTRIBUTES_AT, HEADER, HEADER_SIZE, LOG_OVERHEAD

from .task_files import base_name, is_url, names_in, read_bytes

if TYPE_CHECKING:
    import polars as pl

SEGMENT_SUFFIX = ".log"
EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
EPOCH_HEAD_LINES = 2
"""Its format's version, and how many entries follow."""
MARKER_KEY = struct.Struct(">hh")
ABORT = 0
CONTROL, TRANSACTIONAL = 0x20, 0x10
ABORT_MARKER = 0x10000
"""Added to the 16 attributes of a control batch that aborts a transaction."""
LOG_COLUMNS = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "crc",
    "crc_good",
    "attributes",
    "max_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
    "position",
    "segment",
)
Row = tuple[int, int, int, int, bool, int, int, int, int, int, int, int, int]


class SegmentError(HarrowError):
    """A segment file or a log folder cannot be read."""


def segment_files(folder: str | Path) -> list[Path]:
    """Return the segment files of a log, by base offset. Raises SegmentError when the folder does not exist."""
    place = Path(folder)
    if not place.is_dir():
        raise SegmentError(
            f"the log folder {place} does not exist: check that the broker has a replica of the partition"
        )
    return sorted(p for p in place.iterdir() if p.suffix == SEGMENT_SUFFIX)


def _segments(folder: str) -> list[str]:
    """Return the names of the segment files of a log, by base offset."""
    if is_url(folder):
        return list(names_in(folder, SEGMENT_SUFFIX))
    return [str(path) for path in segment_files(folder)]


def _base_offset(name: str) -> int:
    return int(base_name(name).removesuffix(SEGMENT_SUFFIX))


def last_segment(folder: str | Path) -> int:
    """Return the base offset of a log's last segment, 0 without segments: retention leaves an empty segment there."""
    files = _segments(str(folder))
    return _base_offset(files[-1]) if files else 0


def read_epochs(folder: str | Path) -> list[tuple[int, int]] | None:
    """Return the leader epoch cache of a log: epochs and their start offsets, in order; None where it is not known.

    A log that was copied for other machines, or that holds what a leader returned, has no such file. SegmentError for a
    file that is not in Kafka's format.
    """
    path = Path(folder, EPOCH_CHECKPOINT)
    if is_url(str(folder)) or not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()[EPOCH_HEAD_LINES:]
    try:
        return [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]
    except ValueError as error:
        raise SegmentError(f"{path} is not in the format of Kafka's checkpoints: {error}") from None


def read_log(folder: str | Path) -> pl.DataFrame:
    """Return every batch of the log in `folder`, in the order of the files."""
    import polars as pl

    rows = list(scan_log(folder))
    schema: dict[str, type[pl.DataType]] = dict.fromkeys(LOG_COLUMNS, pl.Int64)
    schema["crc_good"] = pl.Boolean
    return pl.DataFrame(rows, schema=schema, orient="row")


def _batches(name: str, *, last: bool, verify: bool) -> Iterator[Row]:
    segment = _base_offset(name)
    if is_url(name):
        view = read_bytes(name)
        yield from scan_batches(view, len(view), name, segment, last=last, verify=verify)
        return
    size = os.path.getsize(name)
    if not size:
        return
    with open(name, "rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            yield from scan_batches(view, size, name, segment, last=last, verify=verify)
        finally:
            view.release()


def _aborts(batch: memoryview) -> bool:
    """Return whether a control batch is the marker of an aborted transaction.

    Its record: length, attributes, timestamp delta, offset delta, length of the key, key; the key is version and type.
    Executors import this module, so it does not use the decoder of records, which needs the packages of brokers.
    """
    try:
        at = _after_varint(batch, HEADER_SIZE) + 1
        for _ in range(3):
            at = _after_varint(batch, at)
        return bool(MARKER_KEY.unpack_from(batch, at)[1] == ABORT)
    except (IndexError, struct.error):
        return False


def _after_varint(data: memoryview, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


class TransactionRanges(NamedTuple):
    """What transactions made of the offsets of one log: ranges (first, last), each kind in the order of the log."""

    markers: list[tuple[int, int]]
    aborted: list[tuple[int, int]]
    """Batches of transactions that were aborted."""
    unfinished: list[tuple[int, int]]
    """Batches of transactions without a marker."""

    def markers_between(self, low: int, high: int) -> int:
        """Return how many offsets from `low` up to `high` markers have."""
        return sum(max(0, min(last + 1, high) - max(first, low)) for first, last in self.markers)


def transaction_ranges(batches: Iterable[tuple[int, int, int, int]]) -> TransactionRanges:
    """Pair the transactional batches of a log with their markers.

    `batches`: base offset, last offset, attributes (with `ABORT_MARKER`) and producer id of each batch.
    """
    markers: list[tuple[int, int]] = []
    aborted: list[tuple[int, int]] = []
    opened: dict[int, list[tuple[int, int]]] = {}
    for base, last, attributes, producer in batches:
        if attributes & CONTROL:
            markers.append((base, last))
            ended = opened.pop(producer, [])
            aborted += ended if attributes & ABORT_MARKER else []
        elif attributes & TRANSACTIONAL:
            opened.setdefault(producer, []).append((base, last))
    return TransactionRanges(markers, aborted, [row for rows in opened.values() for row in rows])


def scan_log(folder: str | Path, *, verify: bool = True) -> Iterator[Row]:
    """Every batch of the log in `folder`, as `read_log`, without a frame; `verify`: whether to check the CRCs."""
    files = _segments(str(folder))
    for number, name in enumerate(files):
        yield from _batches(name, last=number == len(files) - 1, verify=verify)


def batches_in(data: bytes, path: str, *, verify: bool = True) -> list[Row]:
    """Every batch of a log that is in memory; `path` names it in errors."""
    with memoryview(data) as view:
        return list(scan_batches(view, len(data), path, 0, last=True, verify=verify))


def scan_batches(
    view: memoryview, size: int, path: str, segment: int, *, last: bool, verify: bool = True
) -> Iterator[Row]:
    """Every batch of a segment's bytes; `path` names it in errors, `last` allows a torn tail."""
    at = 0
    unpack = HEADER.unpack_from
    while at + HEADER_SIZE <= size:
        (base, length, epoch, magic, crc, attributes, delta, _, newest, pid, pepoch, sequence, count) = unpack(view, at)
        if length == 0 and base == 0:
            return
        end = at + length + LOG_OVERHEAD
        if length < HEADER_SIZE - LOG_OVERHEAD or (end > size and not last):
            raise SegmentError(
                f"{path} at byte {at}: a batch with a length of {length} bytes does not fit into the file"
            )
        if end > size:
            return
        if magic != 2:
            raise SegmentError(f"{path} at byte {at}: the batch has magic {magic}, only magic 2 can be judged")
        body = view[at + ATTRIBUTES_AT : end]
        good = not verify or crc32c(body) == crc
        body.release()
        if attributes & CONTROL and good and _aborts(view[at:end]):
            attributes |= ABORT_MARKER
        yield (base, base + delta, epoch, crc, good, attributes, newest, pid, pepoch, sequence, count, at, segment)
        at = end
