"""The mapper of a pipeline's checks: from a chunk of inputs or outputs to rows that can be joined (L5).

A row stands for an expected output (`Unit`) or an actual output. It has fixed width: the hashes of the record id and of
the canonical text (`shapes.py`), where the record is (chunk and row), and times. For outputs the text is computed for
each shape of the expectations; which shapes there are is found by calling the relation for a few inputs first. A chunk
whose inputs have further shapes yields these instead of rows, and the join is run again with them.

An exception of a function of the user yields a dict with the exception and the first record.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..checks.record import Record
from ..histories.commits import NEVER, CommitTimes
from ..histories.contents import ContentsChunk
from .chunk_records import ChunkRows, OutputChunk, rows_of
from .join import HASH, NumberedChunk
from .pairing import Pairing
from .pipeline_findings import OtherIds, Raised, TaskResult
from .record_ids import IdReader, IdSource, canonical
from .retry_columns import RetryColumns, reads_of
from .shapes import Shape, actual_texts
from .usual_chunks import UnitColumns, usual_ids, usual_units

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    from .join import Columns

EXPECTED, ACTUAL, RETRIED, DEAD, INPUT = 0, 1, 2, 3, 4
"""Sides: expected and actual outputs, records of retry topics, dead letters, inputs that require no output."""
ID_SEED, TEXT_SEED, KEY_SEED = 1, 2, 3


@contextlib.contextmanager
def collection_paused() -> Generator[None]:
    """Pause the garbage collector: a chunk's records make no cycles, and looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineMapper:
    """Makes rows of the records of a chunk; yields dicts for new shapes and for exceptions of the user's functions."""

    pairing: Pairing
    shapes: tuple[Shape, ...]
    commits: tuple[Mapping[int, CommitTimes], ...] = ()
    """For each group: the times of its commits by partition of the source."""
    times: str = ""
    """The file with the times of the outputs (`output_times.py`); empty when they are not known."""
    topic_times: Mapping[str, str] = field(default_factory=dict[str, str])
    """The same for each retry topic, the dead letters, and with these the source."""
    retry: RetryColumns | None = None
    """What else is needed of each record where there are retry topics or dead letters."""
    reads: str = ""
    """The file with the deliveries of the inputs (`retry_columns.py`); empty when they are not known."""
    order_key: IdSource | None = None
    """By what inputs have an order; None: by Kafka's record key."""

    def __call__(self, chunk: NumberedChunk[OutputChunk]) -> Generator[pl.DataFrame | TaskResult]:
        """Yield the rows of one chunk."""
        problems = Problems(chunk.side)
        with collection_paused():
            found = [*self._side(chunk, problems), *problems.result()]
        yield from found

    def _side(self, chunk: NumberedChunk[OutputChunk], problems: Problems) -> Generator[pl.DataFrame | TaskResult]:
        rows = rows_of(chunk.chunk)
        topic = chunk.chunk.topic if isinstance(chunk.chunk, ContentsChunk) else ""
        if chunk.side in (RETRIED, DEAD):
            yield from self._retried(chunk, rows, topic, problems)
        elif chunk.side == EXPECTED:
            yield from self._expected(chunk.number, rows, topic, problems)
        else:
            yield from self._actual(chunk.number, rows, problems)

    def _expected(
        self, number: int, source: ChunkRows, topic: str, problems: Problems
    ) -> Generator[pl.DataFrame | TaskResult]:
        known = {shape: at for at, shape in enumerate(self.shapes)}
        columns = usual_units(self.pairing, source)
        if columns is None:
            columns = self._units(source, problems)
        rows, parts, ids, shapes_of_units, texts = columns
        shapes = [known.get(shape, -1) for shape in shapes_of_units]
        if -1 in shapes:
            new = {shape for shape, at in zip(shapes_of_units, shapes, strict=True) if at < 0}
            yield {"new_shapes": sorted([list(shape) for shape in new])}
            return
        if self.pairing.by_value:
            ids = texts
        taken = source if rows == [*range(len(source))] else source.take(rows)
        order, keyed = self._orders(source, problems)
        yield self._frame(
            EXPECTED, number, rows, taken, ids, parts, shapes, [texts], topic=topic, order=_taken(order, rows)
        )
        if self.retry is not None:
            yield from self._whole_inputs(number, source, columns, topic)
        yield {"counts": {"inputs": len(source), "keyed_inputs": keyed, "expected_outputs": len(rows)}}

    def _orders(self, source: ChunkRows, problems: Problems) -> tuple[pl.Series, int]:
        """Return a hash of the order key of each record, 0 where it has none, and how many have one."""
        import polars as pl

        if self.order_key is None:
            return _order_keys(source.keys), sum(key is not None for key in source.keys)
        reader = IdReader("order_key", self.order_key)
        texts: list[str | None] = []
        for record in source.records():
            try:
                found = reader.of(record)
                texts.append(None if found is None else canonical(found))
            except Exception as error:
                problems.add("order_key", record, error)
                texts.append(None)
        keys = pl.Series(texts, dtype=pl.String)
        return _hashes_of_keys(keys), len(texts) - keys.null_count()

    def _whole_inputs(
        self, number: int, source: ChunkRows, units: UnitColumns, topic: str
    ) -> Generator[pl.DataFrame | TaskResult]:
        """Yield the inputs that require no output, and the first input whose record id is not that of its outputs.

        A retry or a dead letter is found by the id of its input, so both must be the same.
        """
        ids: dict[int, str | None] = dict(zip(*self._actual_ids(source, Problems(EXPECTED)), strict=True))
        others = [row for row, name in zip(units.rows, units.ids, strict=True) if row in ids and name != ids[row]]
        if others:
            yield {"other_ids": OtherIds(len(others), str(source.record(others[0])))}
        rows = sorted(set(ids) - set(units.rows))
        nothing = [-1] * len(rows)
        yield self._frame(
            INPUT, number, rows, source.take(rows), [ids[row] for row in rows], nothing, nothing, [], topic=topic
        )

    def _units(self, source: ChunkRows, problems: Problems) -> UnitColumns:
        """Return what must come out for each record that raises no exception, record by record."""
        columns = UnitColumns([], [], [], [], [])
        ids: list[str | None] = []
        for row, record in enumerate(source.records()):
            try:
                units = self.pairing.expected(record)
            except Exception as error:
                problems.add("the relation" if self.pairing.relation else "record_id", record, error)
                continue
            for part, unit in enumerate(units):
                columns.rows.append(row)
                columns.parts.append(part)
                ids.append(unit.id)
                columns.shapes.append(unit.shape)
                columns.texts.append(unit.text)
        return columns._replace(ids=ids)

    def _actual(self, number: int, sink: ChunkRows, problems: Problems) -> Generator[pl.DataFrame | TaskResult]:
        pairing = self.pairing
        rows, ids = self._actual_ids(sink, problems)
        judged = sink if len(rows) == len(sink) else sink.take(rows)
        texts = [actual_texts(judged.decoded, judged.record, shape, pairing.rows) for shape in self.shapes]
        if pairing.by_value:
            ids = list(texts[0]) if texts else [""] * len(rows)
        nothing = [-1] * len(rows)
        yield self._frame(ACTUAL, number, rows, judged, ids, nothing, nothing, texts, self.times)
        yield {"counts": {"outputs": len(sink), "outputs_not_judged": len(sink) - len(rows)}}

    def _retried(
        self, chunk: NumberedChunk[OutputChunk], source: ChunkRows, topic: str, problems: Problems
    ) -> Generator[pl.DataFrame | TaskResult]:
        """Yield the record ids of a chunk of a retry topic or of dead letters, and what its records say."""
        rows, ids = self._actual_ids(source, problems)
        judged = source if len(rows) == len(source) else source.take(rows)
        nothing = [-1] * len(rows)
        order, _ = self._orders(judged, problems)
        yield self._frame(chunk.side, chunk.number, rows, judged, ids, nothing, nothing, [], topic=topic, order=order)
        yield {"counts": {"retries" if chunk.side == RETRIED else "dead_letters": len(source)}}
        if chunk.side == RETRIED and self.retry is not None:
            yield {"counts": self.retry.counts_of(source)}

    def _actual_ids(self, sink: ChunkRows, problems: Problems) -> tuple[Sequence[int], Sequence[str | None]]:
        """Return the rows to be judged, and their ids; no ids where outputs are paired by their whole value."""
        if self.pairing.by_value:
            return range(len(sink)), []
        usual = usual_ids(sink.decoded, self.pairing.record_id)
        if usual is not None:
            return range(len(sink)), usual
        rows: list[int] = []
        ids: list[str | None] = []
        for row, record in enumerate(sink.records()):
            try:
                found = self.pairing.output_id(record)
            except Exception as error:
                problems.add("record_id", record, error)
                continue
            if found is not None:
                rows.append(row)
                ids.append(found)
        return rows, ids

    def _frame(
        self,
        side: int,
        number: int,
        rows: Sequence[int],
        records: ChunkRows,
        ids: Sequence[str | None],
        parts: list[int],
        shapes: list[int],
        texts: list[list[str]],
        times: str = "",
        topic: str = "",
        order: pl.Series | None = None,
    ) -> pl.DataFrame:
        """Return the rows of one side; `texts` has a list for each shape, or one list for the units.

        `times`: the file with the times of the records; empty: that of the `topic`, else 0 for each. `order`: the
        hashes of their order keys, 0 for each by default.
        """
        import numpy as np
        import polars as pl

        partition, offset = records.partition, records.offset
        acknowledged = self._times(times or self.topic_times.get(topic, ""), partition, offset)
        columns: Columns = {
            HASH: pl.Series(ids, dtype=pl.String).hash(ID_SEED).reinterpret(signed=True),
            "side": np.full(len(rows), side, np.int8),
            "chunk": np.full(len(rows), number, np.int32),
            "row": np.array(rows, np.int32),
            "part": np.array(parts, np.int32),
            "shape": np.array(shapes, np.int32),
            "partition": partition,
            "offset": offset,
            "time": acknowledged,
            "order": np.zeros(len(rows), np.int64) if order is None else order,
        }
        for at in range(len(self.shapes)):
            given = texts[at] if at < len(texts) else None
            columns[f"text_{at}"] = (
                np.zeros(len(rows), np.uint64) if given is None else pl.Series(given, dtype=pl.String).hash(TEXT_SEED)
            )
        for at, commits in enumerate(self.commits):
            columns[f"commit_{at}"] = (
                commit_times_of(commits, partition, offset) if side == EXPECTED else np.zeros(len(rows), np.int64)
            )
        return pl.DataFrame(columns | self._of_retries(side, topic, records, acknowledged))

    def _of_retries(self, side: int, topic: str, records: ChunkRows, times: npt.NDArray[np.int64]) -> Columns:
        """Return the columns of `retry_columns.py`, where the pipeline has retry topics or dead letters."""
        if self.retry is None:
            return {}
        if side in (RETRIED, DEAD):
            return self.retry.of_retries(topic, records, times, self.topic_times.get(topic, ""))
        if side == ACTUAL:
            return self.retry.of_outputs(len(records))
        known = None
        if self.reads:
            known = reads_of(self.reads, records.partition, records.offset)
        return self.retry.of_inputs(records, known)

    def _times(
        self, times: str, partition: npt.NDArray[np.int32], offset: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        import numpy as np

        if not times:
            return np.zeros(len(offset), np.int64)
        from .output_times import times_of

        return times_of(times, partition, offset)


def _order_keys(given: Sequence[bytes | None]) -> pl.Series:
    """Return a hash of each record's key; 0 where there is none."""
    import polars as pl

    return _hashes_of_keys(pl.Series(given, dtype=pl.Binary))


def _taken(column: pl.Series, rows: Sequence[int]) -> pl.Series:
    import polars as pl

    return column.gather(pl.Series(rows, dtype=pl.Int64))


def _hashes_of_keys(keys: pl.Series) -> pl.Series:
    import polars as pl

    hashes = keys.hash(KEY_SEED).reinterpret(signed=True)
    return pl.select(pl.when(keys.is_null()).then(0).otherwise(hashes)).to_series()


def commit_times_of(
    commits: Mapping[int, CommitTimes], partition: npt.NDArray[np.int32], offset: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return for each input when the group had first committed beyond it, or `NEVER`."""
    import numpy as np

    found = np.full(len(offset), NEVER, np.int64)
    for number in np.unique(partition).tolist():
        times = commits.get(number)
        if times is None:
            continue
        chosen = np.flatnonzero(partition == number)
        at = np.searchsorted(np.array(times.offsets, np.int64), offset[chosen], side="right")
        found[chosen] = np.array([*times.times_ns, NEVER], np.int64)[at]
    return found


class Problems:
    """Exceptions of the user's functions in one chunk: how many, and the first ones with their records."""

    def __init__(self, side: int) -> None:
        self._side = side
        self._count: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, what: str, record: Record, error: Exception) -> None:
        """Note an exception."""
        name = f"{what} raised {type(error).__name__}"
        self._count[name] += 1
        self._first.setdefault(name, f"{error}; the record is {record}")

    def result(self) -> Generator[TaskResult]:
        """Yield a row for each kind of exception."""
        for name, count in self._count.items():
            yield {"raised": Raised(name, self._side, count, self._first[name])}
