"""Keyed logs, their compaction without an event loop, and a model of the records that it must keep (B8)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.host.seam import Buffer, DiskFile, MappedFile
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log
from harrow.cluster.storage.compaction.log_cleaner import LogCleaner
from harrow.cluster.storage.results import Origin
from harrow.cluster.wire.batches import BatchHeader, Record, build_batch, build_end_txn_marker, decode_records, headers
from storage_host import RefusingDisk, StorageHost

T = TypeVar("T")
EPOCH = LeaderEpoch(3)
KeyValue = tuple[bytes, bytes | None]
COMPACT: dict[str, object] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 600,
    "index.interval.bytes": 100,
    "segment.index.bytes": 4_096,
    "min.cleanable.dirty.ratio": 0,
}


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a storage coroutine to its end; on a `StorageHost` no coroutine waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a storage task waited for something")


class Compaction:
    """A log and the cleaner of its broker."""

    def __init__(
        self,
        folder: str,
        topic: Mapping[str, object] | None = None,
        *,
        host: StorageHost | None = None,
        broker: Mapping[str, object] | None = None,
        tail_bytes: int = 0,
    ) -> None:
        self.host = host or StorageHost()
        self.folder = folder
        self.topic = {**COMPACT, **(topic or {})}
        self.log = self.host.open(folder, self.topic, tail_bytes=tail_bytes)
        self.broker = BrokerConfig.parse({"log.cleaner.dedupe.buffer.size": 10**7, **(broker or {})})
        self.cleaner = LogCleaner(self.host.host, self.broker, lambda: [self.log])
        self.cleaner.manager.watch(self.log)
        self.offsets = self.cleaner.offset_map()

    def put(self, *records: KeyValue, **batch: Any) -> int:
        """Append one batch; return the offset of its first record."""
        batch.setdefault("timestamp_ms", self.host.clock.now)
        data = build_batch([(key, value, ()) for key, value in records], **batch)
        return self.log.append_as_leader(data, EPOCH).first_offset

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        """Append a marker; return its offset."""
        data = build_end_txn_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp_ms=self.host.clock.now,
        )
        return self.log.append_as_leader(data, EPOCH, origin=Origin.COORDINATOR).first_offset

    def clean(self) -> bool:
        """Run one round, if the log is dirty enough; return whether it was cleaned."""
        cleaned = finish(self.cleaner.clean_filthiest(self.offsets))
        self.host.tasks.run()
        return cleaned

    def seal_and_clean(self) -> bool:
        """Roll, so that every record may be compacted, then run one round."""
        self.log.roll()
        return self.clean()


def read_batches(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    """Return every batch from the log start to the log end, as a fetch of the whole log reads it."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset: int = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(Offset(offset), 10**6, log.log_end_offset, at_least_one=True)
        if not data.size:
            break
        whole = b"".join(data.parts)
        for placed in headers(whole, partial_ok=False):
            batch = whole[placed.position : placed.position + placed.size]
            found.append((placed.header, decode_records(batch)))
            offset = placed.header.last_offset + 1
    return found


def records(log: Log) -> list[Record]:
    """Return every data record."""
    return [record for header, inside in read_batches(log) if not header.is_control for record in inside]


@dataclass(slots=True)
class Model:
    """The appended records, and the rule which of them must remain."""

    appended: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict[int, KeyValue])

    def note(self, first_offset: int, pairs: Sequence[KeyValue]) -> None:
        """Store the records of an appended batch."""
        for number, pair in enumerate(pairs):
            self.appended[first_offset + number] = pair

    def newest(self) -> dict[bytes, tuple[int, bytes | None]]:
        """Map each key to the offset and value of its last record."""
        return {key: (offset, value) for offset, (key, value) in sorted(self.appended.items())}

    def check(self, log: Log, *, dirty_from: int | None = None) -> None:
        """Assert that each key's last value remains, records are correct, in order, complete from `dirty_from` on."""
        left = records(log)
        offsets = [record.offset for record in left]
        assert offsets == sorted(set(offsets))
        for record in left:
            assert self.appended[record.offset] == (record.key, record.value)
        found = set(offsets)
        for key, (offset, value) in self.newest().items():
            assert value is None or offset in found, f"the last value of {key!r}, at {offset}, is lost"
        values = {record.key: record.value for record in left}
        for key, (_, value) in self.newest().items():
            assert values.get(key) == value, f"{key!r} reads {values.get(key)!r}, not {value!r}"
        if dirty_from is not None:
            assert {offset for offset in self.appended if offset >= dirty_from} <= found


class Crash(BaseException):
    """The process crashed."""


class CrashingDisk(RefusingDisk):
    """A disk that performs `steps` more changes and then fails: its content is then the content after a crash."""

    __slots__ = ("cause", "changes", "has_crashed", "steps")

    def __init__(self) -> None:
        super().__init__()
        self.steps = -1
        self.changes: list[str] = []
        self.has_crashed = False
        self.cause = ""
        """The change or the failpoint at which the disk failed."""

    def change(self, operation: str, path: str) -> None:
        """Count one change; fail if no more changes are allowed."""
        if self.has_crashed or self.steps == 0:
            self.crash(operation)
        self.steps -= 1
        self.changes.append(f"{operation} {path.rpartition('/')[2]}")

    def crash(self, cause: str) -> NoReturn:
        """Fail this change and all later ones."""
        self.has_crashed = True
        self.cause = self.cause or cause
        raise Crash(self.cause)

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        if create and not self.exists(path):
            self.change("create", path)
        return CrashingFile(RealDisk.open(self, path, create=create), self)

    def map(self, path: str, size: int) -> MappedFile:
        self.change("map", path)
        return super().map(path, size)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.change("replace", path)
        super().replace(path, data, durable=False)

    def sync_file(self, path: str) -> None:
        self.change("sync", path)

    def rename(self, source: str, target: str) -> None:
        self.change("rename", target)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.change("remove", path)
            super().remove(path)


class CrashingFile:
    """A file of a `CrashingDisk`."""

    def __init__(self, file: DiskFile, disk: CrashingDisk) -> None:
        self._file, self._disk = file, disk
        self.path = file.path
        self.read_at, self.region, self.size = file.read_at, file.region, file.size
        self.close = file.close

    def append(self, parts: Sequence[Buffer]) -> int:
        self._disk.change("append", self.path)
        return self._file.append(parts)

    def write_at(self, position: int, data: Buffer) -> None:
        self._disk.change("write", self.path)
        self._file.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._disk.change("truncate", self.path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.change("sync", self.path)  # no real fsync: these tests lose no power


class CrashHost(StorageHost):
    """A host that crashes at the n-th change of its disk, or at the n-th hit of a failpoint of compaction."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: CrashingDisk = CrashingDisk()
        self.failpoints = self  # type: ignore[assignment]  # only the failpoints are replaced
        self.hits: list[str] = []
        self.crashes_at = -1

    def hit(self, name: str) -> None:
        """Count a hit of a compaction failpoint; crash at the n-th."""
        if not name.startswith("cleaner."):
            return
        if len(self.hits) == self.crashes_at:
            self.disk.crash(name)
        self.hits.append(name)


def crashes(run: Callable[[], object], host: CrashHost) -> str:
    """Return the point at which `run` crashed, or "" if it completed. The host has crashed in either case."""
    with contextlib.suppress(Crash):
        run()
    host.disk.has_crashed = True
    return host.disk.cause
