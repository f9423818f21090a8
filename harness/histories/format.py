"""The history file of one process: fixed-width rows, appended as operations happen (J6).

Owns `<process>-<n>.ops` and `<process>-<n>.names`.

* `.ops`: a header of one row's width (magic, schema version, row width, process id, wall and monotonic
  time at opening), then rows of `ROW`. The file is a shared memory map grown in chunks (space is
  reserved, so that a full disk raises instead of killing): bytes are the kernel's the moment they are
  stored, and `kill -9` loses none. The commit byte is the row's last and is stored after all the others.
* `.names`: `id<TAB>name` a line for clients and topics; a name is on disk before the first row that uses it.
* `.sent`: the first bytes of each send's key and value, for the examples of a verdict (`sent_contents.py`).

Invariants: rows are claimed under a lock, so only the last row can be torn; the reader stops at the first
row without its commit byte (a pre-sized file ends in zeros). A completion repeats what its invocation said,
so it can be judged without it; an invocation without completion is an operation of unknown outcome.
All times are `time.monotonic_ns`, one clock for the machine. A forked child writes a file of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import struct
import threading
import time
import weakref
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harrow.cluster.errors import HarrowError
from harrow.cluster.row_layout import row_struct

from .sent_contents import SUFFIX, SentContents
from .task_files import is_url, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt
    import polars as pl

FINAL_READ_CLIENT = "harrow-drain"
"""The name of the client of the final read (`clients/final_read.py`), which is no traffic of the application's."""

SCHEMA_VERSION = 1
HEADER = struct.Struct("<8sIIIxxxxqq40x")
MAGIC = b"HARROWOP"
OPS_SUFFIX, NAMES_SUFFIX = ".ops", ".names"
COMMITTED = 1
CHUNK_BYTES = 1 << 18
CHUNK_BYTES_MOST = 1 << 26

ROW_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("outcome", "u1"),
    ("flags", "<u2"),
    ("error", "<i4"),
    ("client", "<u4"),
    ("partition", "<i4"),
    ("topic", "<u4"),
    ("offset", "<i8"),
    ("op", "<i8"),
    ("key_hash", "<u8"),
    ("value_hash", "<u8"),
    ("timestamp_ms", "<i8"),
    ("invoked_ns", "<i8"),
    ("time_ns", "<i8"),
    ("pad", "V3"),
    ("commit", "u1"),
]
ROW = row_struct(ROW_DTYPE)
COMMIT_AT = ROW.size - 1
assert HEADER.size == ROW.size


class HistoryError(HarrowError):
    """A history file cannot be written or is not one."""


class OperationFunction(IntEnum):
    """What a row is about."""

    SEND = 1
    """One record produced."""
    POLL = 2
    """One record read. Its outcome is that of the transaction in which it was read (then `invoked_ns` is when that
    began), and ok without one: a recording client writes only ok."""
    COMMIT = 3
    """One partition's offset committed."""
    BREAK = 4
    """The application set a reader's position in a partition (assign, seek): reading may jump."""
    BOUNDS = 5
    """The final read of a partition is complete: `op` is its low watermark, `offset` its high one. With the outcome
    info it ends there, and the log may go on (a history from elsewhere)."""
    CLIENT = 6
    """A producer was made: `offset` is its acks (-1 all), `op` 1 when it is idempotent."""
    REBALANCE = 7
    """A group assigned or revoked the partition of a reader: reading may jump."""


BREAKS = (OperationFunction.BREAK, OperationFunction.REBALANCE)
"""Rows between which the reads of a client follow each other."""


class OperationType(IntEnum):
    """Jepsen's words: `fail` certainly did not happen, `info` may have."""

    INVOKE = 0
    OK = 1
    FAIL = 2
    INFO = 3


def stable_hash(data: bytes | str | None) -> int:
    """64 bits that are the same in every process; 0 for a null, so null and empty differ."""
    if data is None:
        return 0
    if isinstance(data, str):
        data = data.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def value_hash(value: bytes | str | None, headers: object = None) -> int:
    """Hash of what a record says besides its key: value and, where there are any, headers."""
    if not headers:
        return stable_hash(value)
    pairs: Iterable[Any] = headers.items() if isinstance(headers, dict) else headers  # type: ignore[assignment]  # untyped
    digest = hashlib.blake2b(stable_hash(value).to_bytes(8, "little"), digest_size=8)
    for name, content in pairs:
        digest.update(stable_hash(name).to_bytes(8, "little"))
        digest.update(stable_hash(content).to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


_writers: weakref.WeakSet[HistoryWriter] = weakref.WeakSet()
_numbers = itertools.count(1)


class HistoryWriter:
    """Appends rows for every recorder of one process; safe to share between threads."""

    def __init__(self, folder: str | Path, *, process: str | None = None) -> None:
        """Open a new file in `folder` (made when missing); `process` is by default this one's id."""
        self.folder = Path(folder)
        self._process = process
        self._open()
        _writers.add(self)

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        process = self._process or str(os.getpid())
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while True:
            stem = self.folder / f"{process}-{next(_numbers)}"
            try:
                self._fd = os.open(f"{stem}.ops", flags, 0o644)
                break
            except FileExistsError:
                continue
        self.path = Path(f"{stem}.ops")
        self.sent = SentContents(Path(f"{stem}{SUFFIX}"))
        self._names_fd = os.open(f"{stem}.names", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._size = 0
        self._chunk = CHUNK_BYTES
        self._at = ROW.size
        self._closed = False
        self._grow()
        HEADER.pack_into(
            self._map, 0, MAGIC, SCHEMA_VERSION, ROW.size, os.getpid(), time.time_ns(), time.monotonic_ns()
        )

    def _grow(self) -> None:
        try:
            os.posix_fallocate(self._fd, self._size, self._chunk)
        except OSError as error:
            raise HistoryError(f"cannot grow the history {self.path}: {error}; free some disk space") from error
        self._size += self._chunk
        self._chunk = min(self._chunk * 2, CHUNK_BYTES_MOST)
        self._map = mmap.mmap(self._fd, self._size)

    def name(self, text: str) -> int:
        """The number of a client or a topic; the same text has the same number."""
        found = self._ids.get(text)
        if found is not None:
            return found
        with self._lock:
            found = self._ids.get(text)
            if found is None:
                found = len(self._ids)
                os.write(self._names_fd, f"{found}\t{_escape(text)}\n".encode())
                self._ids[text] = found
        return found

    def append(
        self,
        kind: int,
        outcome: int,
        client: int,
        topic: int,
        partition: int,
        offset: int = -1,
        op: int = -1,
        key_hash: int = 0,
        value_hash: int = 0,
        timestamp_ms: int = -1,
        invoked_ns: int = 0,
        time_ns: int = 0,
        error: int = 0,
        flags: int = 0,
    ) -> None:
        """Append one row; times default to now."""
        if not time_ns:
            time_ns = time.monotonic_ns()
        with self._lock:
            at = self._at
            end = at + ROW.size
            if end > self._size:
                if self._closed:
                    raise HistoryError(f"the history {self.path} is closed")
                self._grow()
                assert end <= self._size, f"{self.path}: row {end // ROW.size - 1} lies beyond the {self._size} bytes"
            ROW.pack_into(
                self._map,
                at,
                kind,
                outcome,
                flags,
                error,
                client,
                partition,
                topic,
                offset,
                op,
                key_hash,
                value_hash,
                timestamp_ms,
                invoked_ns or time_ns,
                time_ns,
                0,
            )
            self._map[at + COMMIT_AT] = COMMITTED
            self._at = end

    @property
    def rows(self) -> int:
        """How many have been appended."""
        return self._at // ROW.size - 1

    def close(self) -> None:
        """Cut the file to its rows; appending afterwards raises HistoryError, closing again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._size = 0
            self.sent.close()
            self._map.close()
            os.ftruncate(self._fd, self._at)
            os.close(self._fd)
            os.close(self._names_fd)

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def renew_after_fork(self) -> None:
        """Give a forked child a file of its own, its names numbered as before."""
        if self._closed:
            return
        ids = list(self._ids)
        self.sent.close_file()
        os.close(self._fd)
        os.close(self._names_fd)
        self._open()
        for text in ids:
            self.name(text)
        assert list(self._ids) == ids, f"{self.path}: the child gives other numbers: {list(self._ids)}, before {ids}"


def _renew_all() -> None:
    for writer in list(_writers):
        writer.renew_after_fork()


os.register_at_fork(after_in_child=_renew_all)


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def read_names(path: str | Path) -> list[str]:
    """Names by number from a `.names` file; a torn last line is passed over."""
    source = Path(path)
    return parse_names(source.read_bytes()) if source.exists() else []


def parse_names(content: bytes) -> list[str]:
    """Names by number from the content of a `.names` file."""
    from harrow.cluster.tap.files import unescape

    names: list[str] = []
    for line in content.split(b"\n")[:-1]:
        number, _, name = line.decode(errors="replace").partition("\t")
        names.extend([""] * (int(number) + 1 - len(names)))
        names[int(number)] = unescape(name)
    return names


class HistoryFile(NamedTuple):
    """The rows of one file, mapped and not copied, and the names they refer to."""

    path: Path
    rows: npt.NDArray[np.void]
    names: list[str]


def read_history(path: str | Path) -> HistoryFile:
    """Map a `.ops` file, living or dead; a torn tail is left out. HistoryError when it is no history."""
    import numpy as np

    source = Path(path)
    with source.open("rb") as file:
        head = file.read(HEADER.size)
        size = os.fstat(file.fileno()).st_size
    if len(head) < HEADER.size:
        return HistoryFile(source, np.empty(0, np.dtype(ROW_DTYPE)), [])
    magic, version, width, *_ = HEADER.unpack(head)
    if magic != MAGIC or version != SCHEMA_VERSION or width != ROW.size:
        raise HistoryError(
            f"{source} is not a history of schema {SCHEMA_VERSION} (magic {magic!r}, schema {version}, row {width})"
        )
    count = size // ROW.size - 1
    if count <= 0:
        return HistoryFile(source, np.empty(0, np.dtype(ROW_DTYPE)), [])
    rows = map_rows(source, count)
    whole = rows[: _committed(rows)]
    return HistoryFile(source, whole, read_names(source.with_suffix(".names")))


def map_rows(path: str | Path, count: int | None = None) -> npt.NDArray[np.void]:
    """Map the first `count` rows of a `.ops` file, by default as many as fit into it."""
    import numpy as np

    rows = os.path.getsize(path) // ROW.size - 1 if count is None else count
    return np.memmap(path, np.dtype(ROW_DTYPE), "r", offset=HEADER.size, shape=(rows,))


def read_part(name: str, start: int, count: int) -> HistoryFile:
    """Read `count` rows from row `start` on, with the names, of a `.ops` file by its path or `URL#PATH`."""
    import numpy as np

    if not is_url(name):
        history = read_history(name)
        return history._replace(rows=history.rows[start : start + count])
    data = read_bytes(name, HEADER.size + start * ROW.size, count * ROW.size)
    names = parse_names(bytes(read_bytes(name.removesuffix(OPS_SUFFIX) + NAMES_SUFFIX)))
    return HistoryFile(Path(name), np.frombuffer(data, np.dtype(ROW_DTYPE)), names)


def _committed(rows: npt.NDArray[np.void]) -> int:
    """Return the number of committed rows. Rows are committed in their order, so all rows before the last are."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2 if rows["commit"][high - 1] != COMMITTED else high - 1
        if rows["commit"][middle] == COMMITTED:
            low = middle + 1
        else:
            high = middle
    return low


def history_frame(path: str | Path) -> pl.DataFrame:
    """The rows of one file as polars, clients and topics by name; for looking at, not for judging."""
    import polars as pl

    history = read_history(path)
    names = pl.Series("name", history.names, pl.String)
    frame = pl.DataFrame({name: history.rows[name] for name, _ in ROW_DTYPE if name not in {"pad", "commit"}})
    return frame.with_columns(
        pl.Series("client", names.gather(frame["client"])), pl.Series("topic", names.gather(frame["topic"]))
    )
