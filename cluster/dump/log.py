"""Dumps `.log` files (and KRaft's `.checkpoint` snapshots): a line for each batch, and optionally for each record.

Owns: the format of these lines and the message about invalid bytes at the end of the file. As in Kafka, pairs of
non-consecutive offsets are collected and the tool reports them at the end; compaction leaves such gaps.
Source: Kafka 4.4's `DumpLogSegments.dumpLog`, `printBatchLevel`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import KafkaError
from ..wire.batch_header import SEQUENCE_MODULUS
from ..wire.records import Record, decode_records
from .batches import MAX_INT, FileBatch, batches
from .control import control_record_text
from .java_text import optional_long
from .messages import MessageParser
from .source import DumpError, LogFiles, OpenFile, Streams, base_offset_of, name_of

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BOOTSTRAP = "bootstrap.checkpoint"
CHECKPOINT = ".checkpoint"
RECORD_INDENT = "| "


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDumpOptions:
    """Which parts of a log are printed. `print_contents` has an effect only with `deep`, which prints records."""

    deep: bool = False
    print_contents: bool = False
    skip_record_metadata: bool = False
    max_bytes: int = MAX_INT


class LogDump:
    """Dumps a `.log` file. `gaps` has offset -> next offset, where these are not consecutive.

    The offset before the first record is -1, so a log that does not begin at offset 0 has a gap there, as in Kafka 4.4.
    """

    def __init__(self, files: LogFiles, streams: Streams, options: LogDumpOptions, parser: MessageParser) -> None:
        self._files = files
        self._out = streams.out
        self._options = options
        self._parser = parser
        self._last_offset = -1
        self.gaps: dict[int, int] = {}

    def run(self, path: str) -> None:
        """Prints the file; DumpError at the first batch or record that cannot be read."""
        self._out(_first_line(path))
        file = self._files.open(path)
        try:
            self._dump(file, path)
        finally:
            file.close()

    def _dump(self, file: OpenFile, path: str) -> None:
        most = self._options.max_bytes
        valid_bytes = 0
        for batch in batches(file, path, most=most):
            data = batch.read()
            self._out(batch_line(batch, data, path))
            if self._options.deep:
                self._records(batch, data, path)
            valid_bytes += batch.header.size
        trailing = file.size() - valid_bytes
        if trailing > 0 and most == MAX_INT:
            self._out(f"Found {trailing} invalid bytes at the end of {name_of(path)}\n")

    def _records(self, batch: FileBatch, data: bytes, path: str) -> None:
        try:
            records = decode_records(data)
        except KafkaError as error:
            raise DumpError(f"{path}: batch at position {batch.position}: {error}") from None
        for record in records:
            if record.offset != self._last_offset + 1:
                self.gaps[self._last_offset] = record.offset
            self._last_offset = record.offset
            self._out(self._record_line(batch, record))

    def _record_line(self, batch: FileBatch, record: Record) -> str:
        is_control = batch.header.is_control
        prefix, line = RECORD_INDENT, ""
        if not self._options.skip_record_metadata:
            line = prefix + record_metadata(batch, record)
            prefix = " "
            if is_control:
                line += control_record_text(record)
        if self._options.print_contents and not is_control:
            key, payload = self._parser.parse(record)
            if key is not None:
                line += f"{prefix}key: {key}"
                prefix = " "
            if payload is not None:
                line += f"{prefix}payload: {payload}"
        return line + "\n"


def _first_line(path: str) -> str:
    name = name_of(path)
    if not name.endswith(CHECKPOINT):
        return f"Log starting offset: {base_offset_of(path)}\n"
    if name == BOOTSTRAP:
        return "KRaft bootstrap snapshot\n"
    offset, _, epoch = name.removesuffix(CHECKPOINT).partition("-")
    if not offset.isdecimal() or not epoch.isdecimal():
        raise DumpError(f"{path}: the name of a snapshot must be <offset>-<epoch>{CHECKPOINT}")
    return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}\n"


def batch_line(batch: FileBatch, data: bytes, path: str) -> str:
    """Returns the line for a batch; `data` holds the bytes of the batch."""
    header = batch.header
    if header.codec >= len(CODECS):
        raise DumpError(
            f"{path}: the batch at position {batch.position} has the unknown compression type {header.codec}"
        )
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_bool(header.is_transactional)}"
        f" isControl: {_bool(header.is_control)} deleteHorizonMs: {optional_long(batch.delete_horizon_ms)}"
        f" position: {batch.position} {batch.timestamp_type}: {header.max_timestamp}"
        f" size: {header.size} magic: {header.magic} compresscodec: {CODECS[header.codec]}"
        f" crc: {header.crc} isvalid: {_bool(batch.is_valid(data))}\n"
    )


def record_metadata(batch: FileBatch, record: Record) -> str:
    """Returns the part of a record's line before its key and payload."""
    header = batch.header
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + record.offset - header.base_offset) % SEQUENCE_MODULUS
    keys = ",".join(name for name, _ in record.headers)
    return (
        f"offset: {record.offset} {batch.timestamp_type}: {record.timestamp}"
        f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        f" sequence: {sequence} headerKeys: [{keys}]"
    )


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _bool(value: bool) -> str:
    return "true" if value else "false"
