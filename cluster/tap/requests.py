"""The requests' part of the tap: what each client asked, which error it got, and when (J6).

Owns: `tap.requests` and `tap.request_counts`. `tap.requests` has one row for each request of a client, written before
the response leaves, except for the requests of `COUNTED_ONLY` that succeed. A Produce with acks=0 has no response, and
no row. After `REQUEST_BYTES_MOST` the file gets no more rows, so a file of that size may not have everything.

`tap.request_counts` counts every request, also behind that bound: a table of `COUNTERS_MOST` rows, mapped into memory,
one for each client, API and error, with the first and the last time. What is new when the table is full is counted in
its last row, `OTHERS` of no client. The kernel keeps both files when the process is killed.
"""

from __future__ import annotations

import mmap
import os
import struct

from ..broker_folder import TAP_REQUEST_COUNTS, TAP_REQUESTS
from ..host.seam import TappedRequest
from .files import TapFiles
from .layouts import (
    COUNT_ROW,
    COUNTED_ONLY,
    NO_CLIENT,
    NO_SUBJECT,
    OTHERS,
    REQUEST_BYTES_MOST,
    REQUEST_ROW,
    request_head,
)

ROW_BYTES = REQUEST_ROW.size
COUNTERS_MOST = 4096

_TAIL = struct.Struct("<Qqq")
_AT_TAIL = COUNT_ROW.size - _TAIL.size
"""Where the count and the two times begin in a row."""


class RequestRows:
    """The two files of one host; `files` numbers the names."""

    def __init__(self, files: TapFiles) -> None:
        self._files = files
        self._rows = files.open_rows(TAP_REQUESTS, ROW_BYTES)
        self._left = REQUEST_BYTES_MOST - os.fstat(self._rows).st_size
        if self._left == REQUEST_BYTES_MOST:
            self._write(request_head())
        self._counts = _open_counts(os.path.join(files.folder, TAP_REQUEST_COUNTS))
        self._places: dict[tuple[int, int, str], list[int]] = {}
        """Where the row of an API, an error and a client begins, its count and its first time."""
        self._others = [COUNTERS_MOST * ROW_BYTES, 0, 0]
        """The same of what has no row of its own."""
        self._free = _first_free(self._counts)
        self._resume()

    def requested(self, row: TappedRequest) -> None:
        """Count a request, and write its row unless its success is only counted; OSError for a full disk."""
        assert row.invoked_ns <= row.completed_ns, f"{row} completes before it was invoked"
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
        assert len(row) == ROW_BYTES, f"a row of {len(row)} bytes among rows of {ROW_BYTES}"
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


def _open_counts(path: str) -> mmap.mmap:
    size = (1 + COUNTERS_MOST) * ROW_BYTES
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)  # a store into a page that a full disk lacks would be SIGBUS
        counts = mmap.mmap(fd, size)
    finally:
        os.close(fd)
    counts[:ROW_BYTES] = request_head()
    return counts


def _first_free(counts: mmap.mmap) -> int:
    at = ROW_BYTES
    while at < len(counts) and COUNT_ROW.unpack_from(counts, at)[3]:
        at += ROW_BYTES
    return at
