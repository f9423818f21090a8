"""Kafka's segment files read for judging: headers of record batches v2, each CRC-32C verified (L3).

`read_log` gives one replica's log of one partition as columns, one row a batch. Files are mapped, records are
not decoded, so a gigabyte takes about a second. A batch that ends beyond its file is a torn tail when it is the
log's last (a broker may be writing it) and corruption anywhere else. A zero length is the end of a pre-sized
file. What is not magic 2 cannot be judged: SegmentError, and the verdict is unknown.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from crc32c import crc32c
from harrow.cluster.errors import HarrowError
from harrow.cluster.wire.batch_header import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
)

if TYPE_CHECKING:
    import polars as pl

SEGMENT_SUFFIX = ".log"
LOG_COLUMNS = (
    "base_offset", "last_offset", "leader_epoch", "crc", "crc_good", "attributes", "max_timestamp_ms",
    "producer_id", "producer_epoch", "base_sequence", "count", "position", "segment",
)  # fmt: skip
Row = tuple[int, int, int, int, bool, int, int, int, int, int, int, int, int]


class SegmentError(HarrowError):
    """A segment file is not one that this reader knows."""


def segment_files(folder: str | Path) -> list[Path]:
    """Segments of a log in the order of their base offsets; SegmentError when there is no such log."""
    place = Path(folder)
    if not place.is_dir():
        raise SegmentError(
            f"no log folder {place}: is the replica there, and has its broker been told of it?"
        )
    return sorted(p for p in place.iterdir() if p.suffix == SEGMENT_SUFFIX)


def read_log(folder: str | Path) -> pl.DataFrame:
    """Every batch of the log in `folder`, in the order of the files."""
    import polars as pl

    files = segment_files(folder)
    rows: list[Row] = []
    for number, path in enumerate(files):
        rows.extend(_batches(path, last=number == len(files) - 1))
    schema: dict[str, type[pl.DataType]] = dict.fromkeys(LOG_COLUMNS, pl.Int64)
    schema["crc_good"] = pl.Boolean
    return pl.DataFrame(rows, schema=schema, orient="row")


def _batches(path: Path, *, last: bool) -> Iterator[Row]:
    size = os.path.getsize(path)
    segment = int(path.stem)
    if not size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            yield from scan_batches(view, size, str(path), segment, last=last)
        finally:
            view.release()


def scan_batches(
    view: memoryview, size: int, path: str, segment: int, *, last: bool
) -> Iterator[Row]:
    """Every batch of a segment's bytes; `path` names it in errors, `last` allows a torn tail."""
    at = 0
    unpack = HEADER.unpack_from
    while at + HEADER_SIZE <= size:
        (
            base,
            length,
            epoch,
            magic,
            crc,
            attributes,
            delta,
            _,
            newest,
            pid,
            pepoch,
            sequence,
            count,
        ) = unpack(view, at)
        if length == 0 and base == 0:
            return
        end = at + length + LOG_OVERHEAD
        if length < HEADER_SIZE - LOG_OVERHEAD or (end > size and not last):
            raise SegmentError(f"{path} at byte {at}: a batch cannot be {length} bytes long here")
        if end > size:
            return
        if magic != 2:
            raise SegmentError(f"{path} at byte {at}: batch of magic {magic}, only 2 can be judged")
        body = view[at + ATTRIBUTES_AT : end]
        good = crc32c(body) == crc
        body.release()
        yield (
            base, base + delta, epoch, crc, good, attributes, newest, pid, pepoch, sequence, count, at, segment,
        )  # fmt: skip
        at = end
