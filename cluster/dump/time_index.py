"""Dumps `.timeindex` files: 12-byte entries, each with a timestamp and a relative offset (B4).

Owns: reading the entries, the sanity check that a broker makes at start, and the check of each entry against the log
and the offset index: the offset is the last offset of a batch, the timestamp is the greatest one in this batch, and
the timestamps increase.
Source: Kafka's `TimeIndex`, `DumpLogSegments.dumpTimeIndex`, `TimeIndexDumpErrors`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ..errors import KafkaError
from ..wire.records import decode_records
from .batches import FileBatch, batches
from .offset_index import IndexOptions, OffsetIndexFile, read_index, read_whole
from .source import DumpError, LogFiles, OpenFile, Streams, base_offset_of, sibling

ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1


@dataclass(slots=True)
class TimeIndexErrors:
    """The entries that do not match the log, by the sort of error; pairs of (value in the index, value found)."""

    mismatched: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    out_of_order: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    not_found: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


class TimeIndexFile:
    """The entries of a `.timeindex` file."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self.base_offset = base_offset_of(path)
        self.entries = len(data) // ENTRY.size

    def entry(self, slot: int) -> tuple[int, int]:
        """Returns (timestamp, offset) of the entry at `slot`."""
        timestamp, relative = ENTRY.unpack_from(self._data, slot * ENTRY.size)
        return timestamp, self.base_offset + relative

    def check(self, absolute: str) -> None:
        """Makes the sanity check of a starting broker; DumpError with Kafka's message."""
        if self.entries:
            timestamp, offset = self.entry(self.entries - 1)
            first, _ = self.entry(0)
            if timestamp < first:
                raise DumpError(
                    f"Corrupt time index found, time index file ({absolute}) has non-zero size but the "
                    f"last timestamp is {timestamp} which is less than the first timestamp {first}"
                )
            if offset < self.base_offset:
                raise DumpError(
                    f"Corrupt time index found, time index file ({absolute}) has non-zero size but the "
                    f"last offset is {offset} which is less than the first offset {self.base_offset}"
                )
        if len(self._data) % ENTRY.size:
            raise DumpError(
                f"Time index file {absolute} is corrupt, found {len(self._data)} bytes which is neither "
                f"positive nor a multiple of {ENTRY.size}"
            )


def dump_time_index(files: LogFiles, streams: Streams, path: str, options: IndexOptions) -> TimeIndexErrors:
    """Prints the file; returns the entries that do not match the log."""
    log_path = sibling(path, ".log")
    errors = TimeIndexErrors()
    log = files.open(log_path)
    try:
        index = read_index(files, sibling(path, ".index"))
        times = TimeIndexFile(read_whole(files, path), path)
        if options.sanity_only:
            times.check(files.absolute(path))
            streams.out(f"{path} passed sanity check.\n")
            return errors
        previous = NO_TIMESTAMP
        for slot in range(times.entries):
            timestamp, offset = times.entry(slot)
            if offset == times.base_offset and slot > 0:
                break  # zeroes after the last entry: the file was not trimmed
            _verify(log, log_path, index, (timestamp, offset, previous), errors)
            if not options.verify_only:
                streams.out(f"timestamp: {timestamp} offset: {offset}\n")
            previous = timestamp
    finally:
        log.close()
    return errors


def _verify(
    log: OpenFile, log_path: str, index: OffsetIndexFile, entry: tuple[int, int, int], errors: TimeIndexErrors
) -> None:
    timestamp, offset, previous = entry
    for batch in batches(log, log_path, start=index.lookup(offset)):
        if batch.header.last_offset >= offset:
            break
    else:
        errors.not_found.append((offset, -1))
        return
    if batch.header.last_offset != offset:
        errors.not_found.append((offset, batch.header.last_offset))
        return
    newest = _newest(batch, log_path)
    if newest != timestamp:
        errors.mismatched.append((timestamp, newest))
    if previous >= timestamp:
        errors.out_of_order.append((timestamp, previous))


def _newest(batch: FileBatch, log_path: str) -> int:
    try:
        records = decode_records(batch.read())
    except KafkaError as error:
        raise DumpError(f"{log_path}: the batch at position {batch.position}: {error}") from None
    return max((record.timestamp for record in records), default=NO_TIMESTAMP)
