"""The tap: records that responses acknowledged or delivered (J6), `Tap` of the seam, and the format of its rows.

Owns: `tap.bin` (one row of `TAP_ROW` a batch, appended), `tap.commits` (one row of `COMMIT_ROW` a partition of an
OffsetCommit) and `tap.names` (`id<TAB>name` a line, clients, topics and groups in one numbering; a name is on disk
before the first row that uses it). Rows are written with one `write` a call, before the response's bytes are sent:
everything that a client received is in the tap.

Rows, `produced` (kind 1): one for each batch of a partition as the producer sent it (base offsets 0),
numbered from the `base_offset` of the response. Refused: `error` set, offsets -1. Where the
bytes hold no whole batch header (a refused request of garbage) one row with count 0 stands for them.
Rows, `fetched` (kind 2): one for each whole data batch at or above the asked offset; `base_offset` is the
first offset **delivered** (a client drops those below what it asked for), `count` the batch's own. A
partial batch at the end and control batches are not delivered to applications and have no row.

Rows of `tap.commits`: one for each partition of an OffsetCommit when the coordinator knows its result. `error` 0: all
in-sync replicas have the commit, so that the group's next member begins there, whether or not the response reaches the
client. Another error: the commit may be in the log or not. A commit that the coordinator refuses before it writes has
no row.

Times are on the monotonic clock. `invoked_ns` is when the broker read the request, which for bytes that
waited before a stopped process is long after they were sent. `created_ns` of a produced batch is when its oldest
record was made: the batch header's base timestamp, converted by the present wall clock. A producer may set any
timestamp, so a check that uses `created_ns` must test whether it is possible (0: before the machine started).
`base_timestamp_ms` and `max_timestamp_ms` are the header's own fields, unchanged.

The struct and the dtype are one layout; `TAP_DTYPE` is plain data, so numpy is not imported here.
Batch header: Kafka's DefaultRecordBatch (magic 2).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..broker_folder import TAP, TAP_COMMITS, TAP_NAMES
from .seam import Buffer, Clock

if TYPE_CHECKING:
    from ..ids import TopicPartition

PRODUCED = 1
FETCHED = 2
FLAG_LOST = 1

TAP_ROW = struct.Struct("<BBhIIiqqIIqhhiqqqqq")
TAP_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"), ("flags", "u1"), ("error", "<i2"), ("client", "<u4"), ("topic", "<u4"),
    ("partition", "<i4"), ("base_offset", "<i8"), ("last_offset", "<i8"), ("crc", "<u4"), ("count", "<u4"),
    ("producer_id", "<i8"), ("producer_epoch", "<i2"), ("acks", "<i2"), ("base_sequence", "<i4"),
    ("invoked_ns", "<i8"), ("completed_ns", "<i8"), ("created_ns", "<i8"),
    ("base_timestamp_ms", "<i8"), ("max_timestamp_ms", "<i8"),
]  # fmt: skip

COMMIT_ROW = struct.Struct("<IIihxxqqq")
COMMIT_DTYPE: list[tuple[str, str]] = [
    ("group", "<u4"), ("topic", "<u4"), ("partition", "<i4"), ("error", "<i2"), ("pad", "V2"),
    ("offset", "<i8"), ("invoked_ns", "<i8"), ("completed_ns", "<i8"),
]  # fmt: skip

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
BEFORE_LENGTH = 12
CONTROL = 0x20
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class BatchHeader(NamedTuple):
    """The fields of a record batch's header that a row takes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


def headers(buffers: Sequence[Buffer]) -> Iterator[BatchHeader]:
    """Headers of the whole batches in the bytes of `buffers`; a batch may span several buffers."""
    carry = b""  # the beginning of a header
    held: BatchHeader | None = None  # of a batch that is not whole yet
    at = 0  # where the next header begins, counted from the buffer's beginning
    for buffer in buffers:
        view = memoryview(carry + bytes(buffer)) if carry else memoryview(buffer)
        end, carry = len(view), b""
        if held is not None and at <= end:
            yield held
            held = None
        while at + BATCH_HEADER.size <= end:
            header = BatchHeader._make(BATCH_HEADER.unpack_from(view, at))
            size = BEFORE_LENGTH + header.length
            if size < BATCH_HEADER.size:
                return
            at += size
            if at > end:
                held = header
            else:
                yield header
        if at < end:
            carry = bytes(view[at:])
        at = max(at - end, 0)


class NoTap:
    """The tap of a host without `harrow.tap`."""

    __slots__ = ()
    enabled = False

    def produced(
        self, client: str, topic: str, partition: int, *, base_offset: int, error: int, acks: int,
        invoked_ns: int, batches: Buffer, lost: bool,
    ) -> None:  # fmt: skip
        """Nothing."""

    def fetched(
        self, client: str, topic: str, partition: int, *, offset: int, invoked_ns: int, batches: Sequence[Buffer]
    ) -> None:  # fmt: skip
        """Nothing."""

    def committed(
        self,
        group: str,
        offsets: Iterable[tuple[TopicPartition, int]],
        *,
        error: int,
        invoked_ns: int,
    ) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class RealTap:
    """The tap of one host, appending to the files in `folder`."""

    enabled = True

    def __init__(self, folder: str, clock: Clock) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._clock = clock
        self._rows_fd = os.open(os.path.join(folder, TAP), flags, 0o644)
        self._commits_fd = os.open(os.path.join(folder, TAP_COMMITS), flags, 0o644)
        # a full disk may have cut the last row of an earlier process: the next row must begin at a row border
        for fd, row in ((self._rows_fd, TAP_ROW), (self._commits_fd, COMMIT_ROW)):
            os.ftruncate(fd, os.fstat(fd).st_size // row.size * row.size)
        self._ids = _read_names(os.path.join(folder, TAP_NAMES))
        self._names_fd = os.open(os.path.join(folder, TAP_NAMES), flags, 0o644)

    def produced(
        self, client: str, topic: str, partition: int, *, base_offset: int, error: int, acks: int,
        invoked_ns: int, batches: Buffer, lost: bool,
    ) -> None:  # fmt: skip
        """One partition of a produce response, just before its bytes leave."""
        front = (
            PRODUCED,
            FLAG_LOST if lost else 0,
            error,
            self._id(client),
            self._id(topic),
            partition,
        )
        completed_ns = self._clock.monotonic_ns()
        wall_ms = self._clock.wall_ms()
        refused = base_offset < 0
        rows = bytearray()
        for h in headers((batches,)):
            last = -1 if refused else base_offset + h.last_offset_delta
            rows += TAP_ROW.pack(
                *front, -1 if refused else base_offset, last, h.crc, h.records & 0xFFFF_FFFF, h.producer_id,
                h.producer_epoch, acks, h.base_sequence, invoked_ns, completed_ns,
                _ago(completed_ns, wall_ms - h.base_timestamp), h.base_timestamp, h.max_timestamp,
            )  # fmt: skip
            base_offset = last + 1
        if not rows:
            rows += TAP_ROW.pack(
                *front, base_offset, base_offset, 0, 0, -1, -1, acks, -1, invoked_ns, completed_ns,
                invoked_ns, -1, -1,
            )  # fmt: skip
        os.write(self._rows_fd, rows)

    def fetched(
        self, client: str, topic: str, partition: int, *, offset: int, invoked_ns: int, batches: Sequence[Buffer]
    ) -> None:  # fmt: skip
        """One partition of a consumer's fetch response, just before its bytes leave."""
        front = (FETCHED, 0, 0, self._id(client), self._id(topic), partition)
        now_ns = self._clock.monotonic_ns()
        rows = bytearray()
        for h in headers(batches):
            last = h.base_offset + h.last_offset_delta
            if h.attributes & CONTROL or last < offset:
                continue
            rows += TAP_ROW.pack(
                *front, max(h.base_offset, offset), last, h.crc, h.records & 0xFFFF_FFFF, h.producer_id,
                h.producer_epoch, 0, h.base_sequence, invoked_ns, now_ns, invoked_ns, h.base_timestamp, h.max_timestamp,
            )  # fmt: skip
        if rows:
            os.write(self._rows_fd, rows)

    def committed(
        self,
        group: str,
        offsets: Iterable[tuple[TopicPartition, int]],
        *,
        error: int,
        invoked_ns: int,
    ) -> None:
        """The result of writing a group's offsets; `error` is that of the response."""
        completed_ns = self._clock.monotonic_ns()
        number = self._id(group)
        rows = b"".join(
            COMMIT_ROW.pack(
                number, self._id(tp.topic), tp.partition, error, offset, invoked_ns, completed_ns
            )
            for tp, offset in offsets
        )
        os.write(self._commits_fd, rows)

    def _id(self, name: str) -> int:
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = len(self._ids)
            os.write(self._names_fd, f"{found}\t{name.translate(_ESCAPES)}\n".encode())
        return found

    def close(self) -> None:
        """Close the files."""
        for fd in (self._rows_fd, self._commits_fd, self._names_fd):
            if fd >= 0:
                os.close(fd)
        self._rows_fd = self._commits_fd = self._names_fd = -1


def _ago(now_ns: int, ms: int) -> int:
    """`ms` before now, neither in the future nor before the clock began."""
    return max(0, min(now_ns, now_ns - ms * 1_000_000))


def unescape(name: str) -> str:
    """A name of `tap.names` without its escapes."""
    if "\\" not in name:
        return name
    plain = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
    letters = iter(name)
    return "".join(plain[next(letters)] if letter == "\\" else letter for letter in letters)


def _read_names(path: str) -> dict[str, int]:
    """The names that an earlier process of this broker numbered: a restart appends to the same files."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file if line.endswith("\n")]
    return {unescape(name): int(number) for number, name in rows}
