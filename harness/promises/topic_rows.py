"""The mapper of the checks of topics: chunks become rows of fixed width, with the hashes of record ids and order keys.

Rows (`ROWS`), by `kind`; `hash` and `low` are the two halves of the hash by which the first reducer joins:

* RECORD: a record of the final read, by its record id;
* EXPECTED: an expected record, by its id; `sent` is its position, where the expectation is ordered;
* REFUSED: a record that a broker refused, by its id, once for each topic; `row` is its place in the chunk;
* PLACED: a record of the final read, by its offset; SENT: an acknowledged send that a recording client wrote, by the
  offset of its acknowledgement; `sent` is the time of the call in nanoseconds of the monotonic clock. Both exist only
  where the order of sending is taken from recorded sends, or where no source knows it.

`key_hash` and `key_low` are the hash of the order key; null where a record has no order key. `chunk` and `row` say
where the contents are: a chunk of the final read, or of the expectation.

A record whose id or order key cannot be read is reported (`problems`), with the first `PROBLEMS_SHOWN` of each chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import polars as pl

from ..checks.record import Record
from ..histories.contents import ContentsChunk
from ..histories.format import OperationFunction, OperationType, read_history, read_part
from .chunk_records import rows_of_table
from .expectations import ExpectedChunk
from .join import NumberedChunk
from .record_ids import IdReader, RecordIdError, bytes_text, canonical, hashes
from .refused_ids import RefusedChunk

if TYPE_CHECKING:
    import numpy.typing as npt

    from .join import Columns

RECORD, EXPECTED, PLACED, SENT, REFUSED = range(5)
ROWS = {
    "hash": pl.Int64,
    "low": pl.Int64,
    "kind": pl.Int8,
    "topic": pl.Int16,
    "partition": pl.Int32,
    "offset": pl.Int64,
    "chunk": pl.Int32,
    "row": pl.Int32,
    "sent": pl.Int64,
    "key_hash": pl.Int64,
    "key_low": pl.Int64,
}
PROBLEMS_SHOWN = 3
SENDS_CHUNK_ROWS = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class SendsChunk:
    """Consecutive rows of a recorder's history file; a `Chunk` of the join."""

    path: str
    start: int
    rows: int
    size: int


class TopicProblem(TypedDict):
    """A record of which the id or the order key (`name`) could not be read."""

    name: str
    chunk: int
    row: int
    text: str


class ChunkReport(TypedDict):
    """The counts and the first problems of a chunk, as plain JSON."""

    counts: dict[str, int]
    problems: list[TopicProblem]


TopicChunk = ContentsChunk | ExpectedChunk | SendsChunk | RefusedChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMapper:
    """Makes the rows of a chunk; picklable when the user's functions are."""

    topics: tuple[str, ...]
    record_id: IdReader | None = None
    order_key: IdReader | None = None
    """None: Kafka's record key."""
    judges_order: bool = False
    by_position: bool = False
    """Whether the order of sending is that of the expectation; otherwise recorded sends say it, where there are any."""

    def __call__(self, numbered: NumberedChunk[TopicChunk]) -> Iterator[pl.DataFrame | ChunkReport]:
        """Return the rows of a chunk and a report of its problems."""
        match numbered.chunk:
            case ContentsChunk() as chunk:
                yield from self._records(chunk, numbered.number)
            case ExpectedChunk() as chunk:
                yield self._expected(chunk, numbered.number)
            case SendsChunk() as chunk:
                yield self._sends(chunk)
            case RefusedChunk() as chunk:
                ids = chunk.ids()
                rows = np.arange(len(ids), dtype=np.int32)
                columns = {**_hashed(ids, "hash", "low"), "topic": chunk.topics(), "row": rows}
                yield _frame(REFUSED, columns)

    def _records(self, chunk: ContentsChunk, number: int) -> Iterator[pl.DataFrame | ChunkReport]:
        read = _ChunkReading(chunk, number)
        places = read.places(self.topics.index(chunk.topic))
        keys = self._order_keys(read)
        if self.record_id is not None:
            ids = read.texts(self.record_id)
            yield _frame(RECORD, {**places, **_hashed(ids, "hash", "low"), **keys}, ids)
        if self.judges_order and not self.by_position:
            place_hash = _place_hash(places["topic"], places["partition"], places["offset"])
            yield _frame(PLACED, {**places, "hash": place_hash, "low": places["offset"], **keys})
        yield read.report()

    def _order_keys(self, read: _ChunkReading) -> Columns:
        if not self.judges_order:
            return {}
        if self.order_key is not None:
            return _hashed(read.texts(self.order_key), "key_hash", "key_low")
        return read.hashed_keys()

    def _expected(self, chunk: ExpectedChunk, number: int) -> pl.DataFrame:
        ids = chunk.ids()
        rows = np.arange(len(ids), dtype=np.int32)
        columns = {**_hashed(ids, "hash", "low"), "row": rows, "chunk": np.full(len(ids), number, np.int32)}
        if self.by_position:
            columns["sent"] = np.arange(chunk.start, chunk.start + len(ids), dtype=np.int64)
        return _frame(EXPECTED, columns)

    def _sends(self, chunk: SendsChunk) -> pl.DataFrame:
        history = read_part(chunk.path, chunk.start, chunk.rows)
        rows = history.rows
        numbers = {name: number for number, name in enumerate(self.topics)}
        topic_of = np.array([numbers.get(name, -1) for name in history.names], np.int64)
        acked = rows[
            (rows["kind"] == OperationFunction.SEND) & (rows["outcome"] == OperationType.OK) & (rows["offset"] >= 0)
        ]
        topics = topic_of[acked["topic"]] if len(acked) else np.empty(0, np.int64)
        acked, topics = acked[topics >= 0], topics[topics >= 0]
        place = {"topic": topics, "partition": acked["partition"], "offset": acked["offset"]}
        place_hash = _place_hash(place["topic"], place["partition"], place["offset"])
        return _frame(SENT, {**place, "hash": place_hash, "low": place["offset"], "sent": acked["invoked_ns"]})


@dataclass(slots=True)
class _ChunkReading:
    """What is read of one chunk of records: decoded columns, and the records that functions of the user need."""

    chunk: ContentsChunk
    number: int
    _table: Any = None
    _records: list[Record] | None = None
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _problems: list[TopicProblem] = field(default_factory=list[TopicProblem])

    def _column(self, name: str) -> Any:
        if self._table is None:
            self._table = self.chunk.table()
        return self._table.column(name)

    def places(self, topic: int) -> Columns:
        """Return topic, partition, offset, chunk and row of every record."""
        rows = self.chunk.rows
        return {
            "topic": np.full(rows, topic, np.int64),
            "partition": self._column("partition").to_numpy(),
            "offset": self._column("offset").to_numpy(),
            "chunk": np.full(rows, self.number, np.int32),
            "row": np.arange(rows, dtype=np.int32),
        }

    def hashed_keys(self) -> Columns:
        """Return the hashes of Kafka's record keys; each different key is hashed once."""
        encoded: Any = self._column("key").combine_chunks().dictionary_encode()
        texts = [bytes_text(key) for key in encoded.dictionary.to_pylist()]
        at = encoded.indices.to_numpy(zero_copy_only=False)
        halves = np.append(hashes(texts), np.zeros((1, 2), np.int64), axis=0)
        missing = np.isnan(at) if at.dtype.kind == "f" else np.zeros(len(at), np.bool_)
        index = np.where(missing, len(texts), at).astype(np.int64)
        return _with_nulls(halves[index], missing, "key_hash", "key_low")

    def texts(self, reader: IdReader) -> list[str | None]:
        """Return the canonical text of each record's id; None where it has none, which `report` says."""
        if callable(reader.source):
            return [self._text(reader, row) for row in range(self.chunk.rows)]
        texts = reader.quick_texts(self._column("value").to_pylist())
        return [self._text(reader, row) if text is None else text for row, text in enumerate(texts)]

    def _text(self, reader: IdReader, row: int) -> str | None:
        record = self._record(row)
        try:
            value = reader.of(record)
            if value is not None:
                return canonical(value)
            self._count(f"records_without_{reader.name}")
        except Exception as error:
            self._count(f"problems_of_{reader.name}")
            shown = str(error) if isinstance(error, RecordIdError) else f"{reader.name}= raised {error!r} on {record}"
            if len(self._problems) < PROBLEMS_SHOWN:
                self._problems.append({"name": reader.name, "chunk": self.number, "row": row, "text": shown})
        return None

    def _count(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1

    def _record(self, row: int) -> Record:
        if self._records is None:
            if self._table is None:
                self._table = self.chunk.table()
            self._records = list(rows_of_table(self.chunk.topic, self._table).records())
        return self._records[row]

    def report(self) -> ChunkReport:
        """Return the counts and the first problems of the chunk."""
        return {"counts": {"records": self.chunk.rows, **self._counts}, "problems": self._problems}


def _hashed(texts: Sequence[str | None], *names: str) -> Columns:
    """Return the two halves of the texts' hashes as columns."""
    missing = np.array([text is None for text in texts], np.bool_)
    return _with_nulls(hashes([text or "" for text in texts]), missing, *names)


def _with_nulls(halves: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_], *names: str) -> Columns:
    columns: Columns = {name: halves[:, at] for at, name in enumerate(names)}
    if not missing.any():
        return columns
    return {
        name: pl.select(pl.when(~pl.Series(missing)).then(pl.Series(values))).to_series()
        for name, values in columns.items()
    }


def _place_hash(topics: npt.ArrayLike, partitions: npt.ArrayLike, offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return a hash of topic, partition and offset; the products overflow, which unsigned numbers may."""
    mixed = np.asarray(offsets).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.asarray(partitions).astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed += np.asarray(topics).astype(np.uint64) * np.uint64(0x165667B19E3779F9)
    return mixed.view(np.int64)


def _frame(kind: int, columns: Columns, ids: Sequence[str | None] | None = None) -> pl.DataFrame:
    """Return rows with all columns of `ROWS`; records without an id (null in `ids`) have no row."""
    given = [
        pl.Series(name, columns[name]).cast(dtype) if name in columns else pl.lit(None, dtype).alias(name)
        for name, dtype in ROWS.items()
        if name != "kind"
    ]
    frame = pl.select(*given, pl.lit(kind, pl.Int8).alias("kind")).select(*ROWS)
    return frame if ids is None else frame.drop_nulls("hash")


def sends_chunks(paths: Sequence[Path]) -> list[SendsChunk]:
    """Return the chunks of the recorders' history files."""
    chunks: list[SendsChunk] = []
    for path in paths:
        rows = len(read_history(path).rows)
        for start in range(0, rows, SENDS_CHUNK_ROWS):
            count = min(SENDS_CHUNK_ROWS, rows - start)
            chunks.append(SendsChunk(path=str(path), start=start, rows=count, size=count * 80))
    return chunks
