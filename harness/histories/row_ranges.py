"""`RangeReader`: the rows of ranges of index files, and of files of placed rows, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .placed_rows import SUFFIX, PlacedRows
from .row_index import NAMED, IndexedRows, RowRange

if TYPE_CHECKING:
    import numpy.typing as npt

    Columns = dict[str, npt.NDArray[Any]]


class RangeReader:
    """Reads ranges for the jobs of one task; a file that several jobs need is mapped once."""

    def __init__(self) -> None:
        self._chunks: dict[str, IndexedRows | PlacedRows] = {}

    def read(self, parts: Sequence[RowRange], dtypes: dict[str, Any]) -> Columns:
        """Return the columns of `dtypes` (numpy types by name) for the rows of all parts, in the order of the parts."""
        import numpy as np

        total = sum(part.rows for part in parts)
        columns: Columns = {name: np.empty(total, dtype) for name, dtype in dtypes.items()}
        at = 0
        for part in parts:
            chunk = self._chunk(part.path)
            constants = chunk.header.constants
            for name, value in constants.items():
                if name in columns:
                    columns[name][at : at + part.rows] = value
            varying = {name: column for name, column in columns.items() if name not in constants}
            for block in chunk.blocks(part.start, part.rows):
                end = at + len(block)
                for name, column in varying.items():
                    values = block[name]
                    column[at:end] = chunk.clients[values] if name in NAMED else values
                at = end
        assert at == total, f"{at} of {total} rows were read: {[part.path for part in parts]}"
        return columns

    def _chunk(self, path: str) -> IndexedRows | PlacedRows:
        if path not in self._chunks:
            self._chunks[path] = PlacedRows(path) if path.endswith(SUFFIX) else IndexedRows(path)
        return self._chunks[path]
