"""What recorded sends contained: the first bytes of key, value and headers, beside the history of its process.

A history has only hashes of keys and values, so that a row has a fixed width. A verdict must show a lost order itself,
which no log has any more; therefore a recording producer also appends the first bytes of key, value and headers here.

Owns `<process>-<n>.sent`: for each send an `ENTRY` and its bytes, in a shared memory map, so that `kill -9` loses none;
zeros follow the last entry. A send with headers has `HEADERS_SIZE` and a JSON list of names and Base64 behind it. The
file is bounded: `KEY_MOST` and `VALUE_MOST` bytes of a send, `FILE_MOST` bytes of a process; later sends are not kept.
Only the examples of a verdict read it, never a check. What may fail: nothing reaches the producer; when the disk is
full, no more contents are kept.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

SUFFIX = ".sent"
ENTRY = struct.Struct("<qIbHH")
"""Number of the operation plus 1 (0: no more entries), number of the client, flags, lengths of key and value."""
KEY_NULL, VALUE_NULL, KEY_CUT, VALUE_CUT, HEADERS = 1, 2, 4, 8, 16
HEADERS_SIZE = struct.Struct("<H")
KEY_MOST = 64
VALUE_MOST = 256
HEADERS_MOST = 1024
"""Bytes of the headers as JSON; more are not kept."""
FIRST_BYTES = 1 << 16
CHUNK_BYTES_MOST = 1 << 24
FILE_MOST = 1 << 26
Content = bytes | str | None
Header = tuple[str, bytes | None]


class SentRecord(NamedTuple):
    """The first bytes of a send's key and value, and whether there were more."""

    key: bytes | None
    value: bytes | None
    key_cut: bool = False
    value_cut: bool = False
    headers: tuple[Header, ...] | None = None
    """None: the send had none, or they were not kept."""


class SentContents:
    """Appends keys and values of one process's sends; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        """The first send creates the file `path`, so that a history without sends has none."""
        self._path = path
        self._lock = threading.Lock()
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._at = 0
        self._size = 0
        self._full = False

    def append(self, client: int, op: int, key: Content, value: Content, headers: object = None) -> None:
        """Keep the first bytes of a send's key, value and headers."""
        tail = _encoded(headers) if headers else b""
        flags = HEADERS if tail else 0
        if key is None:
            key, flags = b"", flags | KEY_NULL
        elif len(key) > KEY_MOST:
            key, flags = key[:KEY_MOST], flags | KEY_CUT
        if value is None:
            value, flags = b"", flags | VALUE_NULL
        elif len(value) > VALUE_MOST:
            value, flags = value[:VALUE_MOST], flags | VALUE_CUT
        if isinstance(key, str):
            key = key.encode()
        if isinstance(value, str):
            value = value.encode()
        entry = ENTRY.pack(op + 1, client, flags, len(key), len(value)) + key + value + tail
        with self._lock:
            at = self._at
            end = at + len(entry)
            if end > self._size and not self._grow():
                return
            assert self._map is not None
            self._map[at:end] = entry
            self._at = end

    def _grow(self) -> bool:
        """Make room for at least one more entry; return False when nothing more is kept."""
        if self._full or self._size >= FILE_MOST:
            return False
        try:
            if self._fd < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o644)
            chunk = min(max(self._size, FIRST_BYTES), CHUNK_BYTES_MOST)
            os.posix_fallocate(self._fd, self._size, chunk)
            self._size += chunk
            self._map = mmap.mmap(self._fd, self._size)
        except OSError:
            self._full = True
            return False
        return True

    def close(self) -> None:
        """Cut the file to its entries; appending afterwards does nothing, closing again neither."""
        with self._lock:
            self._full, self._size = True, 0
            if self._map is not None:
                self._map.close()
                self._map = None
                os.ftruncate(self._fd, self._at)
            self.close_file()

    def close_file(self) -> None:
        """Close the descriptor only: a forked child must not cut its parent's file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sent_records(path: Path, names: list[str], wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], SentRecord]:
    """Return the contents of the sends `wanted` (client name, operation) that the file has; `names`: of its history."""
    left = set(wanted)
    found: dict[tuple[str, int], SentRecord] = {}
    if not path.exists() or not left:
        return found
    for client, op, record in _entries(path.read_bytes()):
        place = (names[client] if client < len(names) else "", op)
        if place in left:
            found[place] = record
            left.discard(place)
            if not left:
                break
    return found


def _encoded(headers: object) -> bytes:
    """Return headers as the bytes of an entry; nothing for those that are too long, or that the library will refuse."""
    if not isinstance(headers, Mapping | list | tuple):
        return b""  # an iterator can be read once only
    pairs = cast("Any", headers)
    if isinstance(headers, Mapping):
        pairs = pairs.items()
    try:
        listed = [(name, None if content is None else _base64(content)) for name, content in pairs]
        text = json.dumps(listed).encode()
    except (TypeError, ValueError):
        return b""
    return HEADERS_SIZE.pack(len(text)) + text if len(text) <= HEADERS_MOST else b""


def _base64(content: bytes | str) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def _decoded(text: bytes) -> tuple[Header, ...] | None:
    try:
        return tuple(
            (name, None if content is None else base64.b64decode(content)) for name, content in json.loads(text)
        )
    except (ValueError, TypeError):
        return None


def _entries(data: bytes) -> Iterator[tuple[int, int, SentRecord]]:
    at, last = 0, len(data) - ENTRY.size
    while at <= last:
        number, client, flags, key_size, value_size = ENTRY.unpack_from(data, at)
        start = at + ENTRY.size
        middle, end = start + key_size, start + key_size + value_size
        if number <= 0 or end > len(data):
            return
        headers = None
        if flags & HEADERS:
            if end + HEADERS_SIZE.size > len(data):
                return
            first = end + HEADERS_SIZE.size
            end = first + HEADERS_SIZE.unpack_from(data, end)[0]
            headers = _decoded(data[first:end])
        record = SentRecord(
            key=None if flags & KEY_NULL else data[start:middle],
            value=None if flags & VALUE_NULL else data[middle : middle + value_size],
            key_cut=bool(flags & KEY_CUT),
            value_cut=bool(flags & VALUE_CUT),
            headers=headers,
        )
        yield client, number - 1, record
        at = end
