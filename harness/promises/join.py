"""The join of records by hash on Spark: stages that a shuffle connects.

    chunks   --mapper-->  rows  --shuffle by `hash`-->  reducer  [ --shuffle by `hash`--> reducer … ]  -->  results

* A **chunk** is a bounded part of the data, as a picklable description (a path, a range). `rows` and `size` are
  estimates, by which chunks are packed into tasks.
* The **mapper** is called with one chunk. A **reducer** is called with one polars frame: all rows of a bucket. Rows
  with the same `hash` are in the same bucket, so a reducer sees all rows of an id.
* A stage yields polars frames with an Int64 column `hash`, which go to the next reducer, and dicts (plain JSON), which
  go directly to the result. The last reducer yields dicts only.

Stages are picklable callables. They travel to the workers by value (`by_value.py`), so they may hold functions of the
user. A stage that raises ends the join: a stage catches the exceptions of the user's functions itself.

What bounds memory: a mapper holds one chunk; a reducer holds the rows of a bucket (on average `BUCKET_ROWS`). So a
mapper should yield fixed-width columns and not contents; the code that shows a record reads it again from its chunk.

Spark moves whole frames (Arrow IPC, a frame for each chunk and bucket), because its own conversion of rows costs more
than the checks. They are compressed (LZ4): most columns have few values, and the JVM copies each byte several times.

A join of at most `TASK_ROWS` rows is a single task without shuffle: a task costs 40 ms, a shuffle 100.

`engine="inline"` runs the same stages in this process, in at least `INLINE_BUCKETS` buckets.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..engines import INLINE, SPARK, Engine

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    from ..checks.spark_client import SparkHandle

    Columns = dict[str, npt.NDArray[np.generic] | pl.Series]
    """Columns of a frame, by name."""
    Result = Mapping[str, object]
    """Plain JSON."""
    Rows = Iterable["pl.DataFrame | Result"]

HASH = "hash"
"""The column by which rows are brought together; an integer of 64 bits."""
TASK_ROWS = 1 << 19
TASK_BYTES = 32 << 20
BUCKET_ROWS = 1 << 20
INLINE_BUCKETS = 3
FILE_FIELDS = ("path", "times", "reads")
"""The fields of chunks and mappers that name a file; on a cluster of the user's, the file is a copy."""
FILES_FIELD = "topic_times"
"""The field of a mapper that names a file for each topic."""
Reducer = Callable[["pl.DataFrame"], "Rows"]


class Chunk(Protocol):
    """A bounded part of the data, described so that a task can read it. A field `path` names its file."""

    @property
    def rows(self) -> int:
        """About how many rows the mapper makes of it."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes the mapper reads."""
        ...


C_co = TypeVar("C_co", bound=Chunk, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedChunk(Generic[C_co]):
    """A chunk with its number, by which rows and findings name their records; a `Chunk` itself."""

    chunk: C_co
    number: int = -1
    """-1: no row refers to it."""
    side: int = 0
    """Which side of a join it belongs to, where there are two."""

    @property
    def rows(self) -> int:
        """The rows of the chunk."""
        return self.chunk.rows

    @property
    def size(self) -> int:
        """The bytes of the chunk."""
        return self.chunk.size


def run_join(
    chunks: Sequence[Chunk],
    mapper: Callable[[Any], Rows],
    *reducers: Reducer,
    folder: Path,
    spark: SparkHandle | None = None,
    engine: Engine = SPARK,
) -> list[dict[str, Any]]:
    """Return all dicts that the stages yield.

    `folder`: where the stages of a join are handed to Spark's workers as a file, a folder that the workers can read.
    Raises NotPicklableError for a stage that cannot be sent to the workers.
    """
    assert reducers, "a join has at least one reducer"
    if engine == INLINE:
        buckets = max(INLINE_BUCKETS, sum(chunk.rows for chunk in chunks) // BUCKET_ROWS)
        return [dict(result) for result in _Stages(list(chunks), mapper, reducers, buckets)()]
    assert spark is not None, "the engine spark needs a SparkHandle"
    cluster = spark.cluster_queries()
    if cluster is None:
        return _distributed(spark, list(chunks), mapper, reducers, folder)
    with cluster.copies(folder) as copied:
        moved: list[Chunk] = [with_copies(chunk, copied) for chunk in chunks]
        return _distributed(spark, moved, with_copies(mapper, copied), reducers, folder)


def with_copies(value: Any, copied: Callable[[str], str]) -> Any:
    """Return a chunk or a mapper that names the copies of its files."""
    chunk = getattr(value, "chunk", None)
    if chunk is not None:  # a numbered chunk
        return replace(value, chunk=with_copies(chunk, copied))
    paths = {name: getattr(value, name, "") for name in FILE_FIELDS}
    names: dict[str, Any] = {name: copied(path) for name, path in paths.items() if path}
    if files := getattr(value, FILES_FIELD, None):
        names[FILES_FIELD] = {topic: copied(path) if path else "" for topic, path in files.items()}
    return replace(value, **names) if names else value


def _distributed(
    spark: SparkHandle, chunks: list[Chunk], mapper: Callable[[Any], Rows], reducers: tuple[Reducer, ...], folder: Path
) -> list[dict[str, Any]]:
    """Run a join on Spark: in one task, or in several with shuffles."""
    from .by_value import dumps

    tasks = packed(chunks)
    if len(tasks) <= 1:
        stages = dumps(_Stages(chunks, mapper, reducers, 1))
        cluster = spark.cluster_queries()
        if cluster is not None:
            return cluster.call(stages)
        plan = folder / "join.pickle"
        plan.write_bytes(stages)
        return spark.call(plan)
    buckets = max(2, -(-sum(chunk.rows for chunk in chunks) // BUCKET_ROWS))
    return _on_spark(spark, tasks, mapper, reducers, buckets)


def packed(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Divide the chunks into tasks, in their order, each filled up to `TASK_ROWS` and `TASK_BYTES`."""
    tasks: list[list[Chunk]] = []
    rows = size = 0
    for chunk in chunks:
        if not tasks or rows + chunk.rows > TASK_ROWS or size + chunk.size > TASK_BYTES:
            tasks.append([])
            rows = size = 0
        tasks[-1].append(chunk)
        rows, size = rows + chunk.rows, size + chunk.size
    assert sum(map(len, tasks)) == len(chunks), f"{len(chunks)} chunks, {[len(task) for task in tasks]} in tasks"
    return tasks


@dataclass(frozen=True, slots=True)
class _Stages:
    """All stages of a join in one process."""

    chunks: list[Chunk]
    mapper: Callable[[Any], Rows]
    reducers: tuple[Reducer, ...]
    buckets: int

    def __call__(self) -> Generator[Result]:
        frames: dict[int, list[pl.DataFrame]] = {}
        for chunk in self.chunks:
            yield from self._shuffled(self.mapper(chunk), frames)
        for reducer in self.reducers:
            reduced: dict[int, list[pl.DataFrame]] = {}
            for bucket in sorted(frames):
                yield from self._shuffled(reducer(_joined(frames.pop(bucket))), reduced)
            frames = reduced
        assert not frames, "the last reducer of a join yields dicts only"

    def _shuffled(self, rows: Rows, frames: dict[int, list[pl.DataFrame]]) -> Generator[Result]:
        """Put frames into their buckets; yield the results."""
        for row in rows:
            if isinstance(row, Mapping):
                yield row
                continue
            for bucket, part in _by_bucket(row, self.buckets):
                frames.setdefault(bucket, []).append(part)


def _by_bucket(frame: pl.DataFrame, buckets: int) -> Generator[tuple[int, pl.DataFrame]]:
    """Divide a frame by the hashes of its rows; the order of the rows stays."""
    import polars as pl

    if not len(frame):
        return
    if buckets == 1:
        yield 0, frame
        return
    # the upper half of the hash: a reducer groups by the whole hash, and a hash table uses its lower half
    number = (pl.col(HASH).reinterpret(signed=False) // 2**32 % buckets).cast(pl.Int32)
    parts = frame.with_columns(number.alias("_bucket")).partition_by("_bucket", as_dict=True, include_key=False)
    assert sum(map(len, parts.values())) == len(frame), f"{len(frame)} rows became {list(map(len, parts.values()))}"
    for key in sorted(parts):
        yield int(key[0]), parts[key]


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return pl.concat(frames, rechunk=True)


# ------------------------------------------------------------------------------------------ Spark


def _on_spark(
    spark: SparkHandle,
    tasks: list[list[Chunk]],
    mapper: Callable[[Any], Rows],
    reducers: Sequence[Reducer],
    buckets: int,
) -> list[dict[str, Any]]:
    """Run a join of several tasks: one Spark stage for the mapper, and one for each reducer."""
    from ..checks.spark_client import quiet
    from .by_value import dumps

    with quiet():
        from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

    schema = StructType(
        [StructField("bucket", IntegerType()), StructField("frame", BinaryType()), StructField("result", StringType())]
    )
    session, cluster = spark.session(), spark.cluster_queries()
    expected_hash = None if cluster is None else cluster.hash
    map_task = partial(_map_task, dumps((tasks, mapper)), buckets, expected_hash)
    with quiet():
        frame = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(map_task, schema)
        for reducer in reducers:
            frame = _by_bucket_number(frame, buckets)
            frame = frame.mapInArrow(partial(_reduce_task, dumps(reducer), buckets), schema)
        return [json.loads(row[2]) for row in spark.collect_frame(frame)]


def _by_bucket_number(frame: Any, buckets: int) -> Any:
    """Shuffle: all rows of a bucket are in one partition, and where Spark (4.1) can, each partition has one bucket."""
    from pyspark.sql.connect.functions import col  # pyright: ignore[reportUnknownVariableType]

    kind: Any = type(frame)  # pyright: ignore[reportUnknownVariableType] - a frame is untyped
    if hasattr(kind, "repartitionById"):  # an unknown name of a frame itself is a column
        return frame.repartitionById(buckets, col("bucket"))
    return frame.repartition(buckets, col("bucket"))


def _map_task(pickled: bytes, buckets: int, expected_hash: int | None, batches: Iterator[Any]) -> Iterator[Any]:
    """Run the mapper on the chunks of the tasks whose numbers are in `batches`; `mapInArrow` calls this."""
    if expected_hash is not None:
        from ..checks.cluster_tasks import check_hash, check_machine

        check_machine()
        check_hash(expected_hash)
    tasks, mapper = pickle.loads(pickled)  # noqa: S301  (our client's)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for chunk in tasks[number]:
                yield from _encoded(mapper(chunk), buckets)


def _reduce_task(pickled: bytes, buckets: int, batches: Iterator[Any]) -> Iterator[Any]:
    """Run a reducer on every bucket of a Spark partition; results of earlier stages pass unchanged."""
    import polars as pl

    reducer = pickle.loads(pickled)  # noqa: S301  (our client's)
    frames: dict[int, list[pl.DataFrame]] = {}
    for batch in batches:
        for bucket, content, result in zip(*(column.to_pylist() for column in batch), strict=True):
            assert 0 <= bucket < buckets, f"a row is in bucket {bucket} of {buckets}"
            if content is None:
                yield _batch(bucket, result=result)
            else:
                frames.setdefault(bucket, []).append(pl.read_ipc(io.BytesIO(content)))
    for bucket in sorted(frames):
        yield from _encoded(reducer(_joined(frames.pop(bucket))), buckets)


def _encoded(rows: Rows, buckets: int) -> Iterator[Any]:
    """Return what a stage yields as rows of Spark: a bucket number, and a frame (Arrow IPC) or a result (JSON)."""
    for row in rows:
        if isinstance(row, Mapping):
            yield _batch(0, result=json.dumps(row))
            continue
        for bucket, part in _by_bucket(row, buckets):
            target = io.BytesIO()
            part.write_ipc(target, compression="lz4")
            yield _batch(bucket, frame=target.getvalue())


def _batch(bucket: int, *, frame: bytes | None = None, result: str | None = None) -> Any:
    import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)

    pa: Any = pyarrow
    return pa.record_batch(
        {
            "bucket": pa.array([bucket], pa.int32()),
            "frame": pa.array([frame], pa.binary()),
            "result": pa.array([result], pa.string()),
        }
    )
