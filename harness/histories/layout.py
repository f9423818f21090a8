"""Where the rows of each topic-partition are in the files of one run folder.

`lay_out` reads what recorders saw (`history/*.ops`), what the final read saw (`drain/*.ops`), and the brokers' taps
(`cluster/broker-*/tap.bin`), and writes row indexes (`row_index.py`) into `history.index/`, which it rebuilds. The
indexes hold

* of recorders and the final read: completions only, since they repeat their invocations; a send without completion
  becomes `info`, in every partition of its topic when its partition is not known (`Layout.pending`);
* of the taps: all batches without the brokers' own fetches, and all rows of the coordinators.

Kafka's unit of independence is the topic-partition, so this is the only shuffle a verdict ever does. The tasks that
judge gather the rows of their topic-partitions from the raw files by these indexes. Rows of a topic-partition keep the
order of the files, and in a file the order of the rows.

Files are read in chunks, a few at a time on threads (numpy lets go of the lock), put together in the order of the
files; so its memory is bounded whatever the history. Clients are numbered over the whole run (`Layout.clients`).
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
from typing import TYPE_CHECKING, NamedTuple

from harrow.cluster.broker_folder import TAP_NAMES, broker_files, node_id_of

from .. import run_folder
from .coordinator_rows import FILES, map_coordinator_rows
from .format import OperationFunction, OperationType, read_history, read_names
from .row_index import BATCHES, BLOCK_ROWS, OPS, ROWS_MOST, ChunkHeader, RowRange, write_index
from .tap import REPLICA_CLIENT, read_tap

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .row_index import RowNumbers, Rows

    Wanted = npt.NDArray[np.bool_]

CHUNK_ROWS = 1 << 20
FEW_ROWS = 1 << 16
"""So many rows are read at once, not on a thread."""
RECORDED = 1
DRAINED = 2


@dataclass(slots=True, kw_only=True)
class PartitionFiles:
    """Where the rows of one topic-partition are."""

    topic: str
    partition: int
    ops: list[RowRange] = field(default_factory=list[RowRange])
    batches: list[RowRange] = field(default_factory=list[RowRange])
    coordinators: dict[str, list[RowRange]] = field(default_factory=lambda: defaultdict(list))
    """Rows of the coordinators by their kind (`coordinator_rows.py`)."""
    rows: int = 0


@dataclass(slots=True, kw_only=True)
class Layout:
    """What was laid out."""

    folder: Path
    clients: list[str] = field(default_factory=list[str])
    partitions: dict[tuple[str, int], PartitionFiles] = field(default_factory=dict[tuple[str, int], PartitionFiles])
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
        """Add a range of rows of one topic-partition."""
        if partition < 0:
            self.pending[topic].append(part)
            return
        assert part.rows > 0, f"{part.path}: a range without rows for {topic}-{partition}"
        place = self.place(topic, partition)
        known = {OPS: place.ops, BATCHES: place.batches}
        (known[what] if what in known else place.coordinators[what]).append(part)
        place.rows += part.rows


def lay_out(folder: Path, topics: Sequence[str]) -> Layout:
    """Index what the run in `folder` recorded about `topics`; a file that cannot be read is a problem."""
    target = folder / run_folder.LAID_OUT
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    layout = Layout(folder=target)
    reader = _Reader(layout, topics)
    for number, chunk in enumerate(_in_order(reader.chunks(folder), layout.problems)):
        layout.producers += chunk.producers
        if not len(chunk.numbers):
            continue
        path = target / f"{number}.rows"
        write_index(path, chunk.header, chunk.numbers)
        start = 0
        for topic, partition, rows in chunk.places:
            layout.note(topic, partition, chunk.header.what, RowRange(str(path), start, rows))
            start += rows
        assert start == len(chunk.numbers), f"{path}: {start} rows have a place, {len(chunk.numbers)} are indexed"
    return layout


class IndexedChunk(NamedTuple):
    """The wanted rows of a chunk, those of a topic-partition together; `places`: topic, partition, number of rows."""

    header: ChunkHeader
    numbers: RowNumbers
    places: list[tuple[str, int, int]]
    producers: list[tuple[int, bool]]


class FileChunk(NamedTuple):
    """A chunk of a file; `work` indexes it, on any thread."""

    path: Path
    rows: int
    work: Callable[[], IndexedChunk]


def _in_order(chunks: Iterable[FileChunk], problems: list[str]) -> Generator[IndexedChunk]:
    """Yield the indexed chunks in their order; as many as there are cores are read at a time.

    A chunk that cannot be read makes the verdict unknown, and its file is named in it.
    """

    def finished(chunk: FileChunk, result: Callable[[], IndexedChunk]) -> Generator[IndexedChunk]:
        try:
            yield result()
        except Exception as error:
            problems.append(f"{chunk.path}: {type(error).__name__}: {error}")

    cores = len(os.sched_getaffinity(0))
    ahead: deque[tuple[FileChunk, Future[IndexedChunk]]] = deque()
    with ThreadPoolExecutor(cores) as pool:  # which starts no thread before it is given work
        for chunk in chunks:
            if not ahead and chunk.rows <= FEW_ROWS:
                yield from finished(chunk, chunk.work)
                continue
            ahead.append((chunk, pool.submit(chunk.work)))
            if len(ahead) > cores:
                first, future = ahead.popleft()
                yield from finished(first, future.result)
        for chunk, future in ahead:
            yield from finished(chunk, future.result)


class _Reader:
    """Divides files into chunks; what runs on threads does not change its state."""

    def __init__(self, layout: Layout, topics: Sequence[str]) -> None:
        self._layout = layout
        self._topics = set(topics)
        self._clients: dict[str, int] = {}

    def chunks(self, folder: Path) -> Generator[FileChunk]:
        """Yield every file's chunks, one file after the other."""
        for path in run_folder.operation_files(folder / run_folder.HISTORY):
            yield from self._guarded(path, partial(self._recorded, path, RECORDED))
        for path in run_folder.operation_files(folder / run_folder.DRAIN):
            yield from self._guarded(path, partial(self._recorded, path, DRAINED))
        for path in run_folder.tap_files(folder / run_folder.CLUSTER):
            node = node_id_of(path.parent)
            yield from self._guarded(path, partial(self._tap, path, node))
        for what, name in FILES.items():
            for path in broker_files(folder / run_folder.CLUSTER, name):
                yield from self._guarded(path, partial(self._coordinator, path, what))

    def _guarded(self, path: Path, cut: Callable[[], Generator[FileChunk]]) -> Generator[FileChunk]:
        try:
            yield from cut()
        except Exception as error:
            self._layout.problems.append(f"{path}: {type(error).__name__}: {error}")

    def _recorded(self, path: Path, source: int) -> Generator[FileChunk]:
        """Yield the chunks of one `.ops` file."""
        history = read_history(path)
        rows = history.rows
        assert len(rows) < ROWS_MOST, path
        header = ChunkHeader(
            file=str(path), what=OPS, clients=self._client_numbers(history.names), constants={"source": source}
        )
        topics = self._numbered(history.names)
        if source == RECORDED and len(rows):
            self._layout.recorded += 1
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows[start : start + CHUNK_ROWS]
            yield FileChunk(path, len(chunk), partial(_operations, chunk, start, topics, header))
        if source == RECORDED and len(rows):
            yield FileChunk(path, len(rows), partial(_pending, rows, topics, header))

    def _tap(self, path: Path, node: int) -> Generator[FileChunk]:
        """Yield the chunks of one broker's tap."""
        tap = read_tap(path)
        rows, names = tap.rows, tap.names
        assert len(rows) < ROWS_MOST, path
        self._layout.taps += 1
        peers = [number for number, name in enumerate(names) if REPLICA_CLIENT.fullmatch(name)]
        header = ChunkHeader(
            file=str(path), what=BATCHES, clients=self._client_numbers(names), constants={"node": node}
        )
        yield from self._tap_chunks(path, rows, names, peers, header)

    def _coordinator(self, path: Path, what: str) -> Generator[FileChunk]:
        """Yield the chunks of one file of a coordinator."""
        rows = map_coordinator_rows(path, what)
        names = read_names(path.with_name(TAP_NAMES))
        assert len(rows) < ROWS_MOST, path
        node = node_id_of(path.parent)
        header = ChunkHeader(file=str(path), what=what, clients=self._client_numbers(names), constants={"node": node})
        yield from self._tap_chunks(path, rows, names, [], header)

    def _tap_chunks(
        self, path: Path, rows: Rows, names: Sequence[str], peers: list[int], header: ChunkHeader
    ) -> Generator[FileChunk]:
        """Yield the chunks of rows of a tap; `peers`: the numbers of the clients that are brokers."""
        topics = self._numbered(names)
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows[start : start + CHUNK_ROWS]
            indexed = partial(_batches, chunk, start, topics, peers, header)
            yield FileChunk(path, len(chunk), indexed)

    def _numbered(self, names: Sequence[str]) -> dict[int, str]:
        return {number: name for number, name in enumerate(names) if name in self._topics}

    def _client_numbers(self, names: Sequence[str]) -> list[int]:
        for name in names:
            if name not in self._clients:
                self._clients[name] = len(self._clients)
                self._layout.clients.append(name)
        assert len(self._clients) == len(self._layout.clients), "two clients of the run have one number"
        return [self._clients[name] for name in names]


def _operations(rows: Rows, first: int, topics: dict[int, str], header: ChunkHeader) -> IndexedChunk:
    """Index completions; also return the producers that the chunk names."""
    import numpy as np

    made: list[tuple[int, bool]] = []

    def wanted(block: Rows) -> Wanted:
        kind = block["kind"]
        clients = kind == OperationFunction.CLIENT
        if header.constants["source"] == RECORDED and clients.any():
            made.extend((int(row["offset"]), bool(row["op"])) for row in block[clients])
        kept: Wanted = (block["outcome"] != OperationType.INVOKE) & ~clients & _among(block["topic"], topics)
        return kept

    numbers, topic, partition = _chosen(rows, wanted)
    numbers += np.uint32(first)
    return _by_place(header, numbers, topic, partition, topics, made)


def _pending(rows: Rows, topics: dict[int, str], header: ChunkHeader) -> IndexedChunk:
    """Index sends that have no completion: their result is unknown."""
    import numpy as np

    assert header.constants["source"] == RECORDED, f"{header.file}: a final read has no sends"
    at = _uncompleted(rows)
    topic, partition = rows["topic"][at], rows["partition"][at]
    mask = _among(topic, topics)
    info = ChunkHeader(
        file=header.file,
        what=header.what,
        clients=header.clients,
        constants={**header.constants, "outcome": int(OperationType.INFO)},
    )
    numbers = at[mask].astype(np.uint32)
    return _by_place(info, numbers, topic[mask], partition[mask], topics)


def _batches(rows: Rows, first: int, topics: dict[int, str], peers: list[int], header: ChunkHeader) -> IndexedChunk:
    """Index a tap's rows without brokers' own fetches; the rows of coordinators have no fetches."""
    import numpy as np

    if len(rows) and int(rows["topic"].max()) >= len(header.clients):
        raise ValueError("its rows have numbers of names that are not in tap.names, which was cut off")

    def wanted(block: Rows) -> Wanted:
        found = _among(block["topic"], topics)
        return found & ~_among(block["client"], peers) if peers else found

    numbers, topic, partition = _chosen(rows, wanted)
    numbers += np.uint32(first)
    return _by_place(header, numbers, topic, partition, topics)


def _chosen(
    rows: Rows, wanted: Callable[[Rows], Wanted]
) -> tuple[RowNumbers, npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
    """Return the numbers, topics and partitions of the wanted rows, block by block."""
    import numpy as np

    numbers = np.empty(len(rows), np.uint32)
    topic, partition = np.empty(len(rows), np.uint32), np.empty(len(rows), np.int32)
    count = 0
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        at = np.flatnonzero(wanted(block))
        end = count + len(at)
        numbers[count:end] = at
        numbers[count:end] += np.uint32(start)
        topic[count:end] = block["topic"][at]
        partition[count:end] = block["partition"][at]
        count = end
    return numbers[:count], topic[:count], partition[:count]


def _by_place(
    header: ChunkHeader,
    numbers: RowNumbers,
    topic: npt.NDArray[np.uint32],
    partition: npt.NDArray[np.int32],
    topics: dict[int, str],
    producers: Sequence[tuple[int, bool]] = (),
) -> IndexedChunk:
    """Bring the rows of one topic-partition together, else in their order."""
    import numpy as np

    if not len(numbers):
        return IndexedChunk(header, numbers, [], list(producers))
    assert len(numbers) == len(topic) == len(partition), (header.file, len(numbers), len(topic), len(partition))
    index = np.zeros(max(topics) + 1, np.int64)
    index[list(topics)] = np.arange(len(topics))
    names = list(topics.values())
    width = max(int(partition.max()), -1) + 2
    place = index[topic] * width + np.maximum(partition, -1) + 1  # 0 of each topic: not known
    counts = np.bincount(place, minlength=width * len(names)).tolist()
    assert len(counts) == width * len(names), f"{header.file}: a row's place is beyond the last of {len(names)} topics"
    if max(counts) < len(place):
        few = len(counts) <= 1 << 16
        order = np.argsort(place.astype(np.uint16) if few else place, kind="stable")  # by radix
        numbers = numbers[order]
    places = [(names[at // width], at % width - 1, rows) for at, rows in enumerate(counts) if rows]
    return IndexedChunk(header, numbers, places, list(producers))


def _among(values: npt.NDArray[np.uint32], wanted: Iterable[int]) -> Wanted:
    import numpy as np

    found = np.zeros(len(values), np.bool_)
    for value in wanted:  # a few
        found |= values == value
    return found


def _uncompleted(rows: Rows) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows that are invocations of sends without completion."""
    import numpy as np

    kind, outcome = np.ascontiguousarray(rows["kind"]), np.ascontiguousarray(rows["outcome"])
    sends = kind == OperationFunction.SEND
    invoked = sends & (outcome == OperationType.INVOKE)
    if not invoked.any():
        return np.empty(0, np.int64)
    identity = rows["client"].astype(np.int64) << 40 | rows["op"]
    invocations, completed = identity[invoked], np.sort(identity[sends & ~invoked])
    if len(invocations) == len(completed) and np.array_equal(np.sort(invocations), completed):
        return np.empty(0, np.int64)  # nearly always
    at = np.flatnonzero(invoked)
    return at[~np.isin(invocations, completed, kind="sort")]
