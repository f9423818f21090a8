"""One run folder's histories rewritten for judging: Parquet (zstd), one folder a topic-partition.

Owns `history.parquet/<topic>-<partition>/{ops,batches}-<n>.parquet`, made anew by `lay_out`:

* `ops`: what recorders saw (`history/*.ops`) and what the final read saw (`drain/*.ops`), completions only,
  since they repeat their invocations; a send without completion becomes `info` here, in every partition of its
  topic when its partition is not known (`<topic>-pending/`);
* `batches`: the brokers' taps (`cluster/broker-*/tap.bin`), without the brokers' own fetches.

Kafka's unit of independence is the topic-partition, so this is the only shuffle a verdict ever does; files are
read in chunks, so its memory is bounded whatever the history. Clients are numbered over the whole run
(`Layout.clients`).
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .format import Kind, Outcome, read_history
from .tap import REPLICA_CLIENT, TAP_COLUMNS, read_tap

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    Rows = npt.NDArray[np.void]

CHUNK_ROWS = 1 << 20
OPS_COLUMNS = (
    "kind", "outcome", "error", "partition", "offset", "op", "key_hash", "value_hash", "timestamp_ms",
    "invoked_ns", "time_ns",
)  # fmt: skip
RECORDED = 1
DRAINED = 2


@dataclass(slots=True, kw_only=True)
class PartitionFiles:
    """Where the rows of one topic-partition lie."""

    topic: str
    partition: int
    ops: list[str] = field(default_factory=list[str])
    batches: list[str] = field(default_factory=list[str])
    rows: int = 0


@dataclass(slots=True, kw_only=True)
class Layout:
    """What was laid out."""

    folder: Path
    clients: list[str] = field(default_factory=list[str])
    partitions: dict[tuple[str, int], PartitionFiles] = field(
        default_factory=dict[tuple[str, int], PartitionFiles]
    )
    pending: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
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


def lay_out(folder: Path, topics: Sequence[str]) -> Layout:
    """Rewrite what the run in `folder` recorded about `topics`; a file that cannot be read is a problem."""
    target = folder / "history.parquet"
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    layout = Layout(folder=target)
    writer = _Rewriter(layout, topics)
    for path in sorted(folder.glob("history/*.ops")):
        writer.guarded(path, partial(writer.recorded, path, RECORDED))
    for path in sorted(folder.glob("drain/*.ops")):
        writer.guarded(path, partial(writer.recorded, path, DRAINED))
    for path in sorted(folder.glob("cluster/broker-*/tap.bin")):
        node = path.parent.name.rpartition("-")[2]
        writer.guarded(path, partial(writer.tap, path, int(node)))
    writer.flush()
    return layout


class _Rewriter:
    def __init__(self, layout: Layout, topics: Sequence[str]) -> None:
        self._layout = layout
        self._topics = set(topics)
        self._clients: dict[str, int] = {}
        self._written = 0
        self._held: dict[tuple[str, int, str], list[pl.DataFrame]] = defaultdict(list)
        self._held_rows = 0

    def guarded(self, path: Path, rewrite: Callable[[], None]) -> None:
        """A file that cannot be read makes the verdict unknown, and is named in it."""
        try:
            rewrite()
        except Exception as error:
            self._layout.problems.append(f"{path}: {type(error).__name__}: {error}")

    def recorded(self, path: Path, source: int) -> None:
        """Rewrite one `.ops` file."""
        history = read_history(path)
        rows, names = history.rows, history.names
        topics = {number: name for number, name in enumerate(names) if name in self._topics}
        clients = self._client_numbers(names)
        if source == RECORDED and len(rows):
            self._layout.recorded += 1
            made = rows[rows["kind"] == Kind.CLIENT]
            self._layout.producers += [(int(row["offset"]), bool(row["op"])) for row in made]
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows[start : start + CHUNK_ROWS]
            kind = chunk["kind"]
            wanted = (chunk["outcome"] != Outcome.INVOKE) & (kind != Kind.CLIENT)
            self._operations(
                chunk[wanted & _among(chunk["topic"], topics)], topics, clients, source
            )
        pending = _uncompleted(rows)
        if len(pending):
            pending["outcome"] = Outcome.INFO
            self._operations(pending[_among(pending["topic"], topics)], topics, clients, source)

    def _operations(
        self, rows: Rows, topics: dict[int, str], clients: npt.NDArray[np.uint32], source: int
    ) -> None:
        import polars as pl

        if not len(rows):
            return
        frame = pl.DataFrame({name: rows[name] for name in (*OPS_COLUMNS, "topic")}).with_columns(
            pl.Series("client", clients[rows["client"]]), pl.lit(source, pl.UInt8).alias("source")
        )
        self._write(frame, topics, "ops")

    def tap(self, path: Path, node: int) -> None:
        """Rewrite one tap."""
        import polars as pl

        tap = read_tap(path)
        rows, names = tap.rows, tap.names
        self._layout.taps += 1
        topics = {number: name for number, name in enumerate(names) if name in self._topics}
        peers = [number for number, name in enumerate(names) if REPLICA_CLIENT.fullmatch(name)]
        clients = self._client_numbers(names)
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows[start : start + CHUNK_ROWS]
            wanted = _among(chunk["topic"], topics) & ~_among(chunk["client"], peers)
            chosen = chunk[wanted]
            if not len(chosen):
                continue
            columns = {name: chosen[name] for name in (*TAP_COLUMNS, "topic")}
            columns["client"] = clients[chosen["client"]]
            frame = pl.DataFrame(columns).with_columns(pl.lit(node, pl.Int32).alias("node"))
            self._write(frame, topics, "batches")

    def _client_numbers(self, names: Sequence[str]) -> npt.NDArray[np.uint32]:
        import numpy as np

        for name in names:
            if name not in self._clients:
                self._clients[name] = len(self._clients)
                self._layout.clients.append(name)
        return np.array([self._clients[name] for name in names], np.uint32)

    def _write(self, frame: pl.DataFrame, topics: dict[int, str], what: str) -> None:
        """Keep rows until a chunk of them has come together: small files cost more than their rows."""
        split = frame.partition_by("topic", "partition", as_dict=True, include_key=False)
        for (topic_number, partition), rows in split.items():
            self._held[topics[int(topic_number)], int(partition), what].append(rows)
        self._held_rows += len(frame)
        if self._held_rows >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        import polars as pl

        for (topic, partition, what), frames in self._held.items():
            known = partition >= 0
            folder = self._layout.folder / (f"{topic}-{partition}" if known else f"{topic}-pending")
            folder.mkdir(exist_ok=True)
            path = folder / f"{what}-{self._written}.parquet"
            self._written += 1
            rows = pl.concat(frames)
            rows.write_parquet(path, compression="zstd", compression_level=1)
            if not known:
                self._layout.pending[topic].append(str(path))
                continue
            place = self._layout.place(topic, partition)
            (place.ops if what == "ops" else place.batches).append(str(path))
            place.rows += len(rows)
        self._held.clear()
        self._held_rows = 0


def _among(values: npt.NDArray[Any], wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    import numpy as np

    return np.isin(values, np.fromiter(wanted, values.dtype))


def _uncompleted(rows: Rows) -> Rows:
    """Invocations of sends that have no completion, copied."""
    import numpy as np

    sends = rows["kind"] == Kind.SEND
    invoked = sends & (rows["outcome"] == Outcome.INVOKE)
    identity = rows["client"].astype(np.int64) << 40 | rows["op"]
    at = np.flatnonzero(invoked)
    completed = identity[sends & ~invoked]
    return rows[at[~np.isin(identity[at], completed)]].copy()
