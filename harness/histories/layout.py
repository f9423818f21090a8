"""One run folder's histories rewritten for judging: Parquet (zstd) by topic-partition.

Owns `history.parquet/`, which `lay_out` rebuilds:

* `ops`: what recorders saw (`history/*.ops`) and what the final read saw (`drain/*.ops`), completions only,
  since they repeat their invocations; a send without completion becomes `info` here, in every partition of its
  topic when its partition is not known (`<topic>-pending/`);
* `batches`: the brokers' taps (`cluster/broker-*/tap.bin`), without the brokers' own fetches.

Kafka's unit of independence is the topic-partition, so this is the only shuffle a verdict ever does. The rows of a
partition lie in `<topic>-<partition>/{ops,batches}-<n>.parquet`; a history of at most `FEW_ROWS` is one file of
each kind, sorted by partition, for a file costs more than a thousand rows. Either way a `RowRange` says where they are.

Files are read in chunks, a few at a time on threads (numpy and polars let go of the lock), put together in the order
of the files; so its memory is bounded whatever the history. Clients are numbered over the whole run (`Layout.clients`).
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harrow.cluster.broker_folder import node_id_of

from .. import run_folder
from .format import OperationFunction, OperationType, read_history
from .tap import REPLICA_CLIENT, TAP_COLUMNS, read_tap

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    Rows = npt.NDArray[np.void]
    Columns = dict[str, npt.NDArray[Any]]

CHUNK_ROWS = 1 << 20
BLOCK_ROWS = 1 << 14
"""Rows that are taken apart at a time: they fit the second-level cache, and each row is touched once a column."""
FEW_ROWS = 1 << 16
OPS_COLUMNS = (
    "kind", "outcome", "error", "partition", "offset", "op", "key_hash", "value_hash", "timestamp_ms",
    "invoked_ns", "time_ns", "client",
)  # fmt: skip
RECORDED = 1
DRAINED = 2
OPS, BATCHES = "ops", "batches"


class RowRange(NamedTuple):
    """`rows` rows of a Parquet file from row `start` on."""

    path: str
    start: int
    rows: int


@dataclass(slots=True, kw_only=True)
class PartitionFiles:
    """Where the rows of one topic-partition lie."""

    topic: str
    partition: int
    ops: list[RowRange] = field(default_factory=list[RowRange])
    batches: list[RowRange] = field(default_factory=list[RowRange])
    rows: int = 0


@dataclass(slots=True, kw_only=True)
class Layout:
    """What was laid out."""

    folder: Path
    clients: list[str] = field(default_factory=list[str])
    partitions: dict[tuple[str, int], PartitionFiles] = field(
        default_factory=dict[tuple[str, int], PartitionFiles]
    )
    pending: dict[str, list[RowRange]] = field(default_factory=lambda: defaultdict(list))
    producers: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    """Acks and idempotence of every recorded producer."""
    taps: int = 0
    recorded: int = 0
    """History files of recorders that held rows."""
    problems: list[str] = field(default_factory=list[str])

    def place(self, topic: str, partition: int) -> PartitionFiles:
        """The files of one topic-partition, new when there are none yet."""
        key = (topic, partition)
        if key not in self.partitions:
            self.partitions[key] = PartitionFiles(topic=topic, partition=partition)
        return self.partitions[key]

    def note(self, topic: str, partition: int, what: str, part: RowRange) -> None:
        """Rows that were written."""
        if partition < 0:
            self.pending[topic].append(part)
            return
        place = self.place(topic, partition)
        (place.ops if what == OPS else place.batches).append(part)
        place.rows += part.rows


def lay_out(folder: Path, topics: Sequence[str]) -> Layout:
    """Rewrite what the run in `folder` recorded about `topics`; a file that cannot be read is a problem."""
    target = folder / run_folder.LAID_OUT
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    layout = Layout(folder=target)
    reader, writer = _Reader(layout, topics), _Writer(layout)
    for split in _in_order(reader.pieces(folder), layout.problems):
        writer.keep(split)
    writer.finish()
    return layout


class Split(NamedTuple):
    """Rows of one kind, each topic-partition's in one frame."""

    what: str
    frames: list[tuple[str, int, pl.DataFrame]]
    rows: int


class FileChunk(NamedTuple):
    """A chunk of a file: what makes its rows, on any thread."""

    path: Path
    rows: int
    split: Callable[[], Split]


def _in_order(pieces: Iterable[FileChunk], problems: list[str]) -> Generator[Split]:
    """What pieces give, in their order; as many as there are cores are read at a time.

    A piece that cannot be read makes the verdict unknown, and its file is named in it.
    """

    def settled(piece: FileChunk, result: Callable[[], Split]) -> Generator[Split]:
        try:
            yield result()
        except Exception as error:
            problems.append(f"{piece.path}: {type(error).__name__}: {error}")

    cores = len(os.sched_getaffinity(0))
    ahead: deque[tuple[FileChunk, Future[Split]]] = deque()
    with ThreadPoolExecutor(cores) as pool:  # which starts no thread before it is given work
        for piece in pieces:
            if not ahead and piece.rows <= FEW_ROWS:
                yield from settled(piece, piece.split)
                continue
            ahead.append((piece, pool.submit(piece.split)))
            if len(ahead) > cores:
                first, future = ahead.popleft()
                yield from settled(first, future.result)
        for piece, future in ahead:
            yield from settled(piece, future.result)


class _Reader:
    """Splits files into chunks; its methods that run on threads do not change its state."""

    def __init__(self, layout: Layout, topics: Sequence[str]) -> None:
        self._layout = layout
        self._topics = set(topics)
        self._clients: dict[str, int] = {}

    def pieces(self, folder: Path) -> Generator[FileChunk]:
        """Every file's, one file after the other."""
        for path in run_folder.operation_files(folder / run_folder.HISTORY):
            yield from self._guarded(path, partial(self._recorded, path, RECORDED))
        for path in run_folder.operation_files(folder / run_folder.DRAIN):
            yield from self._guarded(path, partial(self._recorded, path, DRAINED))
        for path in run_folder.tap_files(folder / run_folder.CLUSTER):
            node = node_id_of(path.parent)
            yield from self._guarded(path, partial(self._tap, path, node))

    def _guarded(self, path: Path, cut: Callable[[], Generator[FileChunk]]) -> Generator[FileChunk]:
        try:
            yield from cut()
        except Exception as error:
            self._layout.problems.append(f"{path}: {type(error).__name__}: {error}")

    def _recorded(self, path: Path, source: int) -> Generator[FileChunk]:
        """Of one `.ops` file."""
        history = read_history(path)
        rows, names = history.rows, history.names
        topics = self._numbered(names)
        clients = self._client_numbers(names)
        if source == RECORDED and len(rows):
            self._layout.recorded += 1
            made = rows[rows["kind"] == OperationFunction.CLIENT]
            self._layout.producers += [(int(row["offset"]), bool(row["op"])) for row in made]
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows[start : start + CHUNK_ROWS]
            work = partial(_split_operations, chunk, topics, clients, source)
            yield FileChunk(path, len(chunk), work)
        if source == RECORDED and len(rows):
            yield FileChunk(path, len(rows), partial(_split_pending, rows, topics, clients))

    def _tap(self, path: Path, node: int) -> Generator[FileChunk]:
        """Of one broker's tap."""
        tap = read_tap(path)
        rows, names = tap.rows, tap.names
        self._layout.taps += 1
        topics = self._numbered(names)
        peers = [number for number, name in enumerate(names) if REPLICA_CLIENT.fullmatch(name)]
        clients = self._client_numbers(names)
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows[start : start + CHUNK_ROWS]
            batches = partial(_split_batches, chunk, topics, clients, peers, node)
            yield FileChunk(path, len(chunk), batches)

    def _numbered(self, names: Sequence[str]) -> dict[int, str]:
        return {number: name for number, name in enumerate(names) if name in self._topics}

    def _client_numbers(self, names: Sequence[str]) -> npt.NDArray[np.uint32]:
        import numpy as np

        for name in names:
            if name not in self._clients:
                self._clients[name] = len(self._clients)
                self._layout.clients.append(name)
        return np.array([self._clients[name] for name in names], np.uint32)


class _Writer:
    """Buffers rows until they fill a chunk: small files cost more than their rows."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._written = 0
        self._held: dict[tuple[str, str, int], list[pl.DataFrame]] = defaultdict(list)
        self._held_rows = 0

    def keep(self, split: Split) -> None:
        """Add rows, and write when there are many."""
        for topic, partition, rows in split.frames:
            self._held[split.what, topic, partition].append(rows)
        self._held_rows += split.rows
        if self._held_rows >= CHUNK_ROWS:
            self._flush()

    def finish(self) -> None:
        """Write what is left."""
        if self._written or self._held_rows > FEW_ROWS:
            self._flush()
            return
        for what in (OPS, BATCHES):
            self._write_few(what)

    def _flush(self) -> None:
        import polars as pl

        for (what, topic, partition), frames in self._held.items():
            folder = self._layout.folder / f"{topic}-{partition if partition >= 0 else 'pending'}"
            folder.mkdir(exist_ok=True)
            path = folder / f"{what}-{self._written}.parquet"
            self._written += 1
            rows = pl.concat(frames)
            _write(rows, path)
            self._layout.note(topic, partition, what, RowRange(str(path), 0, len(rows)))
        self._held.clear()
        self._held_rows = 0

    def _write_few(self, what: str) -> None:
        """All rows of one kind in one file, with their partitions."""
        import numpy as np
        import polars as pl

        frames: list[pl.DataFrame] = []
        partitions, counts = list[int](), list[int]()
        path, start = self._layout.folder / f"{what}.parquet", 0
        for (kind, topic, partition), held in sorted(self._held.items(), key=lambda item: item[0]):
            if kind == what:
                count = sum(map(len, held))
                self._layout.note(topic, partition, what, RowRange(str(path), start, count))
                frames += held
                partitions.append(partition)
                counts.append(count)
                start += count
        if frames:
            where = pl.Series("partition", np.repeat(np.array(partitions, np.int32), counts))
            _write(pl.concat(frames).with_columns(where), path)


def _write(rows: pl.DataFrame, path: Path) -> None:
    # statistics are for who skips row groups: all of it is read, always
    rows.write_parquet(path, compression="zstd", compression_level=1, statistics=False)


def _split_operations(
    rows: Rows, topics: dict[int, str], clients: npt.NDArray[np.uint32], source: int
) -> Split:
    """Completions, by topic-partition."""

    def wanted(block: Rows) -> npt.NDArray[np.bool_]:
        kept: npt.NDArray[np.bool_] = (
            (block["outcome"] != OperationType.INVOKE)
            & (block["kind"] != OperationFunction.CLIENT)
            & _among(block["topic"], topics)
        )
        return kept

    return _operations(_taken_apart(rows, (*OPS_COLUMNS, "topic"), wanted), topics, clients, source)


def _split_pending(rows: Rows, topics: dict[int, str], clients: npt.NDArray[np.uint32]) -> Split:
    """Sends that have no completion: their result is unknown."""
    pending = _uncompleted(rows)
    pending["outcome"] = OperationType.INFO
    columns = _taken_apart(
        pending, (*OPS_COLUMNS, "topic"), lambda block: _among(block["topic"], topics)
    )
    return _operations(columns, topics, clients, RECORDED)


def _operations(
    columns: Columns, topics: dict[int, str], clients: npt.NDArray[np.uint32], source: int
) -> Split:
    import numpy as np

    columns["client"] = clients[columns["client"]]
    columns["source"] = np.full(len(columns["client"]), source, np.uint8)
    return _split(OPS, columns, topics)


def _split_batches(
    rows: Rows, topics: dict[int, str], clients: npt.NDArray[np.uint32], peers: list[int], node: int
) -> Split:
    """A tap's rows without brokers' own fetches, by topic-partition."""
    import numpy as np

    def wanted(block: Rows) -> npt.NDArray[np.bool_]:
        return _among(block["topic"], topics) & ~_among(block["client"], peers)

    columns = _taken_apart(rows, (*TAP_COLUMNS, "topic"), wanted)
    columns["client"] = clients[columns["client"]]
    columns["node"] = np.full(len(columns["client"]), node, np.int32)
    return _split(BATCHES, columns, topics)


def _taken_apart(
    rows: Rows, names: Sequence[str], wanted: Callable[[Rows], npt.NDArray[np.bool_]]
) -> Columns:
    """The columns of the wanted rows, block by block."""
    import numpy as np

    columns: Columns = {name: np.empty(len(rows), rows.dtype[name]) for name in names}
    count = 0
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        mask = wanted(block)
        chosen = block if mask.all() else block[mask]
        for name, column in columns.items():
            column[count : count + len(chosen)] = chosen[name]
        count += len(chosen)
    return {name: column[:count] for name, column in columns.items()}


def _split(what: str, columns: Columns, topics: dict[int, str]) -> Split:
    """Rows of one topic-partition together, else in their order."""
    import numpy as np
    import polars as pl

    partition, topic = columns.pop("partition"), columns.pop("topic")
    if not len(partition):
        return Split(what, [], 0)
    index = np.zeros(max(topics) + 1, np.int64)
    index[list(topics)] = np.arange(len(topics))
    names = list(topics.values())
    width = max(int(partition.max()), -1) + 2
    place = index[topic] * width + np.maximum(partition, -1) + 1  # 0 of each topic: not known
    counts = np.bincount(place, minlength=width * len(names)).tolist()
    frame = pl.DataFrame(columns)
    if max(counts) < len(place):
        few = len(counts) <= 1 << 16
        order = np.argsort(place.astype(np.uint16) if few else place, kind="stable")  # by radix
        frame = frame[order]
    frames: list[tuple[str, int, pl.DataFrame]] = []
    start = 0
    for at, rows in enumerate(counts):
        if rows:
            frames.append((names[at // width], at % width - 1, frame.slice(start, rows)))
            start += rows
    return Split(what, frames, len(place))


def _among(values: npt.NDArray[Any], wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    import numpy as np

    found = np.zeros(len(values), np.bool_)
    for value in wanted:  # a few
        found |= values == value
    return found


def _uncompleted(rows: Rows) -> Rows:
    """Invocations of sends that have no completion, copied."""
    import numpy as np

    kind, outcome = np.ascontiguousarray(rows["kind"]), np.ascontiguousarray(rows["outcome"])
    sends = kind == OperationFunction.SEND
    invoked = sends & (outcome == OperationType.INVOKE)
    if not invoked.any():
        return rows[:0].copy()
    identity = rows["client"].astype(np.int64) << 40 | rows["op"]
    invocations, completed = identity[invoked], np.sort(identity[sends & ~invoked])
    if len(invocations) == len(completed) and np.array_equal(np.sort(invocations), completed):
        return rows[:0].copy()  # nearly always
    at = np.flatnonzero(invoked)
    return rows[at[~np.isin(invocations, completed, kind="sort")]].copy()
