"""The contents of the final read: every record with partition, offset, timestamp, key, value and headers.

Owns `contents-<n>.arrow` and `contents.json` in `drain/`. The final read writes them only when a promise of the
application is to be judged (`harness/promises/`).

* `contents-<n>.arrow`: an Arrow IPC file with a chunk of one topic: at most `CHUNK_ROWS` records, and at most
  `CHUNK_BYTES` of values, or a single batch of the consumer more. The records of a partition are in the order of
  their offsets, in a chunk and from chunk to chunk. The columns are `COLUMNS`.
* `contents.json`: the list of the chunks and, for each partition, what was read (`FinalRead`). It is written last, so
  it exists only when the final read was complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import HarrowError

from .task_files import arrow_table, write_arrow

if TYPE_CHECKING:
    from confluent_kafka import Message

SCHEMA_VERSION = 1
INDEX = "contents.json"
CHUNK_ROWS = 1 << 15
CHUNK_BYTES = 8 << 20
COLUMNS = ("partition", "offset", "timestamp_type", "timestamp_ms", "key", "value", "headers")
"""`timestamp_type`: 0 none, 1 CreateTime, 2 LogAppendTime. `headers`: null, or a list of (name, value)."""


class ContentsError(HarrowError):
    """The contents of a final read cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRead:
    """The final read of one partition: offsets from `low` up to, but not including, `high`."""

    topic: str
    partition: int
    low: int
    high: int
    records: int
    """Records of aborted and open transactions included, though their contents are not kept."""
    markers: int = 0
    """Offsets of the markers of transactions, which are no records."""
    asked_ns: int = 0
    """Monotonic; what was written later may lie above `high`. 0: not known."""

    @property
    def removed(self) -> int:
        """How many offsets have no record: retention, DeleteRecords or compaction removed it."""
        return self.high - self.records - self.markers


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsChunk:
    """A chunk of a topic's records; a `Chunk` of the join (`promises/join.py`). `path`: also `URL#PATH`."""

    path: str
    topic: str
    rows: int
    size: int
    """Bytes of the values."""

    def table(self) -> Any:
        """Return the chunk as a pyarrow Table; its memory is the mapped file, where there is one."""
        return arrow_table(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a final read kept."""

    chunks: list[ContentsChunk] = field(default_factory=list[ContentsChunk])
    partitions: list[FinalRead] = field(default_factory=list[FinalRead])

    def chunks_of(self, topics: Iterable[str]) -> list[ContentsChunk]:
        """Return the chunks of `topics`, each topic's in the order in which they were read."""
        wanted = set(topics)
        return [chunk for chunk in self.chunks if chunk.topic in wanted]

    def partitions_of(self, topics: Iterable[str]) -> list[FinalRead]:
        """Return what was read of each partition of `topics`."""
        wanted = set(topics)
        return [partition for partition in self.partitions if partition.topic in wanted]


def read_contents(folder: Path) -> Contents:
    """Return the contents in `drain/` of a run folder. Raises ContentsError where there are none."""
    path = folder / INDEX
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ContentsError(
            f"{folder} has no contents of a final read ({error}): the topics could not be read completely, or the "
            "final read kept no contents; call verify() again"
        ) from error
    if body.get("schema_version") != SCHEMA_VERSION:
        raise ContentsError(
            f"{path} has schema version {body.get('schema_version')}, this Harrow reads version {SCHEMA_VERSION}"
        )
    listed: list[dict[str, Any]] = body["chunks"]
    chunks = [ContentsChunk(**row) for row in listed]
    chunks = [replace(chunk, path=str(folder / chunk.path)) for chunk in chunks]
    return Contents(chunks=chunks, partitions=[FinalRead(**row) for row in body["partitions"]])


class ContentsWriter:
    """Writes the chunks of one final read. It holds at most one chunk of each topic, as confluent-kafka's messages."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._chunks: list[ContentsChunk] = []
        self._held: dict[str, list[Message]] = {}
        self._bytes: dict[str, int] = {}
        self._added = 0

    def add(self, topic: str, messages: Sequence[Message]) -> None:
        """Keep records of one topic that the consumer returned, without its error messages."""
        held = self._held.setdefault(topic, [])
        held.extend(messages)
        self._added += len(messages)
        size = self._bytes.get(topic, 0) + sum(map(len, messages))
        self._bytes[topic] = size
        if len(held) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            self._write(topic)

    def finish(self, partitions: Sequence[FinalRead]) -> None:
        """Write what is held and the index; the final read is complete."""
        for topic in list(self._held):
            self._write(topic)
        written = sum(chunk.rows for chunk in self._chunks)
        assert written == self._added, f"{self._folder}: {written} records are in chunks, {self._added} were read"
        places = {(partition.topic, partition.partition) for partition in partitions}
        assert len(places) == len(partitions), f"{self._folder}: a partition was read twice: {partitions}"
        body = {
            "schema_version": SCHEMA_VERSION,
            "chunks": [asdict(chunk) for chunk in self._chunks],
            "partitions": [asdict(partition) for partition in partitions],
        }
        (self._folder / INDEX).write_text(json.dumps(body), encoding="utf-8")

    def _write(self, topic: str) -> None:
        messages, size = self._held.pop(topic), self._bytes.pop(topic)
        name = f"contents-{len(self._chunks)}.arrow"
        batch = record_batch(messages)
        write_arrow(self._folder / name, batch)
        self._chunks.append(ContentsChunk(path=name, topic=topic, rows=len(messages), size=size))


def record_batch(messages: Sequence[Message]) -> Any:
    """Return messages as a pyarrow RecordBatch of `COLUMNS`, a column at a time."""
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

    arrow: Any = pa
    times = [message.timestamp() for message in messages]
    header = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
    return arrow.record_batch(
        {
            "partition": arrow.array([message.partition() for message in messages], arrow.int32()),
            "offset": arrow.array([message.offset() for message in messages], arrow.int64()),
            "timestamp_type": arrow.array([kind for kind, _ in times], arrow.int8()),
            "timestamp_ms": arrow.array([time_ms for _, time_ms in times], arrow.int64()),
            "key": arrow.array([message.key() for message in messages], arrow.binary()),
            "value": arrow.array([message.value() for message in messages], arrow.binary()),
            "headers": arrow.array(list(_headers(messages)), arrow.list_(header)),
        }
    )


def _headers(messages: Sequence[Message]) -> Iterator[list[dict[str, Any]] | None]:
    for message in messages:
        headers: Any = message.headers()
        yield [{"name": name, "value": value} for name, value in headers] if headers else None
