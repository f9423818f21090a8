"""The rows that Spark tasks yield on a cluster of the user's: Arrow batches with a column `result`, a JSON text each.

Spark's planner imports this module too, so the module does not import polars.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def result_schema() -> StructType:
    """Return the schema of a result as an object; for a text the client would ask the server to parse it."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("result", StringType())])


def text_batch(texts: Sequence[bytes]) -> Any:
    """Return an Arrow batch with the column `result`, made of buffers: `pyarrow.array` would import pandas (1 s)."""
    import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)

    pa: Any = pyarrow
    ends = list(itertools.accumulate(map(len, texts), initial=0))
    offsets = pa.py_buffer(struct.pack(f"={len(ends)}i", *ends))
    column = pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(b"".join(texts)))
    return pa.RecordBatch.from_arrays([column], names=["result"])
