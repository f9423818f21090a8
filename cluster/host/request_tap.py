"""The requests' part of the tap: what each client asked, which error it got, and when (J6).

Owns: `tap.requests` and `tap.request_counts`, both of rows of `ROW_BYTES`; the first row of each file is its head
(`HEAD`: magic, schema version, size of a row). Names are numbers of `tap.names`, times are on the monotonic clock.

`tap.requests` has one row for each request of a client, written before the response leaves, except for the requests
of `COUNTED_ONLY` that succeed. `api` is Kafka's key. `error` is the first error in the response, 0 without one.
`subject` is the group, transactional id or coordinator key that the request names, `NO_SUBJECT` without one. `flags`
and the two kinds of rows about connections are those of the seam (`seam/observation.py`). A Produce with acks=0 has no
response, and no row. After `REQUEST_BYTES_MOST` the file gets no more rows, so a file of that size may not have
everything.

`tap.request_counts` counts every request, also behind that bound: a table of `COUNTERS_MOST` rows, mapped into memory,
one for each client, API and error, with the first and the last time. What is new when the table is full is counted in
its last row, `OTHERS` of no client. The kernel keeps both files when the process is killed.
"""

from __future__ import annotations

import mmap
import os
import struct

from ..broker_folder import TAP_REQUEST_COUNTS, TAP_REQUESTS
from ..row_layout import row_struct
from .seam import TappedRequest
from .tap_files import TapFiles

REQUEST_SCHEMA_VERSION = 1
MAGIC = b"HRWR"
HEAD = struct.Struct("<4sII20x")
ROW_BYTES = HEAD.size
REQUEST_DTYPE: list[tuple[str, str]] = [
    ("api", "<i2"),
    ("error", "<i2"),
    ("flags", "u1"),
    ("pad", "V3"),
    ("client", "<u4"),
    ("subject", "<u4"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
]
REQUEST_ROW = row_struct(REQUEST_DTYPE)
COUNT_DTYPE: list[tuple[str, str]] = [
    ("api", "<i2"),
    ("error", "<i2"),
    ("client", "<u4"),
    ("count", "<u8"),
    ("first_ns", "<i8"),
    ("last_ns", "<i8"),
]
COUNT_ROW = row_struct(COUNT_DTYPE)
assert REQUEST_ROW.size == COUNT_ROW.size == ROW_BYTES, "one size, so that the head is a row"

OTHERS = -3
NO_SUBJECT = 0xFFFF_FFFF
NO_CLIENT = 0xFFFF_FFFF
COUNTED_ONLY = frozenset((0, 1, 12, 68, 76, 78, 79))
"""Produce, Fetch, Heartbeat, and the same of KIP-848 and of share groups: their successes have no row."""
REQUEST_BYTES_MOST = 64 << 20
"""Of `tap.requests` of one broker: two million rows."""
COUNTERS_MOST = 4096

_TAIL = struct.Struct("<Qqq")
_AT_TAIL = COUNT_ROW.size - _TAIL.size
"""Where the count and the two times begin in a row."""


class RequestRows:
    """The two files of one host; `files` numbers the names."""

    def __init__(self, files: TapFiles, folder: str) -> None:
        self._files = files
        self._rows = files.open_rows(TAP_REQUESTS, ROW_BYTES)
        self._left = REQUEST_BYTES_MOST - os.fstat(self._rows).st_size
        if self._left == REQUEST_BYTES_MOST:
            self._write(head())
        self._counts = _open_counts(os.path.join(folder, TAP_REQUEST_COUNTS))
        self._places: dict[tuple[int, int, str], list[int]] = {}
        """Where the row of an API, an error and a client begins, its count and its first time."""
        self._others = [COUNTERS_MOST * ROW_BYTES, 0, 0]
        """The same of what has no row of its own."""
        self._free = _first_free(self._counts)
        self._resume()

    def requested(self, row: TappedRequest) -> None:
        """Count a request, and write its row unless its success is only counted; OSError for a full disk."""
        self._count(row)
        if row.api in COUNTED_ONLY and not row.error and not row.flags:
            return
        if self._left <= 0:
            return
        number = self._files.number_of
        subject = NO_SUBJECT if row.subject is None else number(row.subject)
        self._write(
            REQUEST_ROW.pack(
                row.api, row.error, row.flags, number(row.client), subject, row.invoked_ns, row.completed_ns
            )
        )

    def close(self) -> None:
        """Unmap the counters."""
        self._counts.close()

    def _write(self, row: bytes) -> None:
        os.write(self._rows, row)
        self._left -= ROW_BYTES

    def _count(self, row: TappedRequest) -> None:
        key = (row.api, row.error, row.client)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._new_place(row)
        place[1] += 1
        at, count, first_ns = place
        _TAIL.pack_into(self._counts, at + _AT_TAIL, count, first_ns, row.completed_ns)

    def _new_place(self, row: TappedRequest) -> list[int]:
        at = self._free
        if at > self._others[0]:
            return self._others
        self._free += ROW_BYTES
        own = at < self._others[0]
        key = (row.api, row.error, self._files.number_of(row.client)) if own else _OF_OTHERS
        COUNT_ROW.pack_into(self._counts, at, *key, 0, row.invoked_ns, row.completed_ns)
        place = [at, 0, 0] if own else self._others
        place[2] = row.invoked_ns
        return place

    def _resume(self) -> None:
        """Go on with the rows of an earlier process of this broker."""
        names = self._files.names()
        for at in range(ROW_BYTES, self._free, ROW_BYTES):
            api, error, client, count, first_ns, _ = COUNT_ROW.unpack_from(self._counts, at)
            if at == self._others[0]:
                self._others[1:] = count, first_ns
            elif client in names:
                self._places[api, error, names[client]] = [at, count, first_ns]


_OF_OTHERS = (OTHERS, 0, NO_CLIENT)


def head() -> bytes:
    """Return the first row of a file."""
    return HEAD.pack(MAGIC, REQUEST_SCHEMA_VERSION, ROW_BYTES)


def _open_counts(path: str) -> mmap.mmap:
    size = (1 + COUNTERS_MOST) * ROW_BYTES
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)  # a store into a page that a full disk lacks would be SIGBUS
        counts = mmap.mmap(fd, size)
    finally:
        os.close(fd)
    counts[:ROW_BYTES] = head()
    return counts


def _first_free(counts: mmap.mmap) -> int:
    at = ROW_BYTES
    while at < len(counts) and COUNT_ROW.unpack_from(counts, at)[3]:
        at += ROW_BYTES
    return at
