"""Row indexes: which rows of a raw file belong to which topic-partition.

The rows of a run stay in the files that recorders and taps wrote (`format.py`, `tap.py`). `layout.py` writes an index
file for each chunk of such a file: a line of JSON (`ChunkHeader`), then the numbers of the rows that are judged
(uint32, little-endian, from the first row of the file), the rows of a topic-partition one after the other. A
`RowRange` names a part of an index file; `row_ranges.py` returns its rows as columns.

An index has 4 bytes for each row. Rewriting the rows as Parquet files of each topic-partition, as an earlier layout
did, took five times as long as indexing them, and reading those files took as long as gathering the raw rows, which
the page cache still holds when a run is judged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .coordinator_rows import coordinator_dtype, map_coordinator_rows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Rows = npt.NDArray[np.void]
    RowNumbers = npt.NDArray[np.uint32]
    Columns = dict[str, npt.NDArray[Any]]

OPS, BATCHES = "ops", "batches"
NAMED = frozenset({"client", "group", "member", "transactional_id"})
"""Columns with the number of a name in the file; `row_ranges.py` returns the number in the run."""
BLOCK_ROWS = 1 << 14
"""Rows that are copied at a time: they fit the second-level cache, and each row is read once for each column."""
ROWS_MOST = 1 << 32


class RowRange(NamedTuple):
    """`rows` rows of an index file, or of a file of placed rows, from entry `start` on; also of several partitions."""

    path: str
    start: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkHeader:
    """What an index file says about its rows."""

    file: str
    """The absolute path of the raw file."""
    what: str
    """`OPS`, `BATCHES`, or a kind of `coordinator_rows.py`."""
    clients: list[int]
    """The number of each client in the run, by its number in the file."""
    constants: dict[str, int]
    """Columns that have the same value in each row: `source` or `node`, and `outcome` of sends without completion."""


def write_index(path: Path, header: ChunkHeader, numbers: RowNumbers) -> None:
    """Write an index file."""
    with path.open("wb") as file:
        file.write(json.dumps(asdict(header)).encode() + b"\n")
        file.write(numbers.astype("<u4", copy=False).data)


class IndexedRows:
    """An index file with its raw file, both mapped."""

    def __init__(self, path: str) -> None:
        import numpy as np

        with open(path, "rb") as file:
            line = file.readline()
        self.header = ChunkHeader(**json.loads(line))
        # the slices of a plain array cost a fifth of those of a memmap
        self.numbers: RowNumbers = np.memmap(path, "<u4", "r", offset=len(line)).view(np.ndarray)
        self.clients = np.array(self.header.clients, np.uint32)
        self.rows = _shared_rows(Path(path), self.header)

    def blocks(self, start: int, rows: int) -> Iterator[Rows]:
        """Yield copies or views of the rows, at most `BLOCK_ROWS` at a time."""
        import numpy as np

        numbers = self.numbers[start : start + rows]
        if len(numbers) != rows:
            raise ValueError(f"{self.header.file}: its index has {len(numbers)} of {rows} rows")
        plain = self.rows.view(np.dtype((np.void, self.rows.dtype.itemsize)))
        for at in range(0, rows, BLOCK_ROWS):
            block = numbers[at : at + BLOCK_ROWS]
            first = int(block[0])
            # ascending in each topic-partition, but a range may go over several
            if int(block[-1]) - first + 1 == len(block) and (block[1:] > block[:-1]).all():
                yield self.rows[first : first + len(block)]
            else:
                yield plain.take(block).view(self.rows.dtype)


def row_dtype(header: ChunkHeader) -> np.dtype[np.void]:
    """Return the type of the rows of an index."""
    import numpy as np

    if header.what == OPS:
        from .format import ROW_DTYPE

        return np.dtype(ROW_DTYPE)
    if header.what != BATCHES:
        return coordinator_dtype(header.what)
    from harrow.cluster.tap.layouts import TAP_DTYPE

    return np.dtype(TAP_DTYPE)


def raw_rows(header: ChunkHeader) -> Rows:
    """Map the rows of the raw file of an index."""
    if header.what == OPS:
        from .format import map_rows

        return map_rows(header.file)
    if header.what != BATCHES:
        return map_coordinator_rows(header.file, header.what)
    from .tap import map_tap

    return map_tap(header.file)


_mapped: dict[tuple[str, int, int, int], Rows] = {}
_mapped_for = Path()


def _shared_rows(index: Path, header: ChunkHeader) -> Rows:
    """Map a raw file once for all tasks of a layout that a process runs: the page faults of a map cost much time.

    The maps of the layout before are dropped, so that no removed file stays on the disk for longer.
    """
    global _mapped_for
    if index.parent != _mapped_for:
        _mapped.clear()
        _mapped_for = index.parent
    found = os.stat(header.file)
    key = (header.file, found.st_ino, found.st_size, found.st_mtime_ns)
    if key not in _mapped:
        _mapped[key] = raw_rows(header)
    return _mapped[key]
