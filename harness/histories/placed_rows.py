"""Placed rows: the rows of an index file, one topic-partition after the other, for tasks on other machines.

The rows of a topic-partition lie scattered in the raw files, so a task that cannot map these files would have to read
them whole. The process that copies rows reads all of them anyway, and writes them in the order of the index
(`row_index.py`). A file of placed rows is the header of the index, as a line of JSON, and then the rows. A `RowRange`
means the same in both files, and a task reads its own rows and no others.

So the index is made before the copying, on the machine of the run, and not by Spark's tasks: the raw rows are on this
machine only, and tasks that index them would need a copy of the raw rows first, and of the placed rows after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from .row_index import BLOCK_ROWS, ChunkHeader, IndexedRows, row_dtype
from .task_files import first_line, is_url, read_bytes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Rows = npt.NDArray[np.void]

SUFFIX = ".placed"


class Target(Protocol):
    """A file that is written."""

    def write(self, data: Any, /) -> Any:
        """Write bytes."""
        ...


def write_placed(index: str, target: Target) -> None:
    """Write the rows of an index file in its order."""
    rows = IndexedRows(index)
    target.write(json.dumps(asdict(rows.header)).encode() + b"\n")
    written = 0
    for block in rows.blocks(0, len(rows.numbers)):
        target.write(block.tobytes())
        written += len(block)
    assert written == len(rows.numbers), f"{index}: {written} of {len(rows.numbers)} rows were placed"


class PlacedRows:
    """A file of placed rows; has the methods of `IndexedRows`."""

    def __init__(self, name: str) -> None:
        import numpy as np

        self._name = name
        line = first_line(name)
        self._start = len(line)
        self.header = ChunkHeader(**json.loads(line))
        self.clients = np.array(self.header.clients, np.uint32)
        self._dtype = row_dtype(self.header)

    def blocks(self, start: int, rows: int) -> Iterator[Rows]:
        """Yield the rows, at most `BLOCK_ROWS` at a time."""
        found = self._rows(start, rows)
        for at in range(0, rows, BLOCK_ROWS):
            yield found[at : at + BLOCK_ROWS]

    def _rows(self, start: int, rows: int) -> Rows:
        import numpy as np

        at, width = self._start, self._dtype.itemsize
        if is_url(self._name):
            return np.frombuffer(read_bytes(self._name, at + start * width, rows * width), self._dtype)
        return np.memmap(self._name, self._dtype, "r", at + start * width, (rows,))
