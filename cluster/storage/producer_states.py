"""Every producer of one log (F1), and their snapshots on disk.

Owns: producer id → `ProducerEntry`, `map_end` (the state covers every offset below it), the `.snapshot`
files. An append is planned before its write (`plan`) and committed after it (`commit`), so an append
that fails changes nothing. Only clients' appends are judged; what was accepted once (replication,
recovery) is recorded as it is.

What may fail: KafkaError from `plan`; OSError from the disk. A snapshot that cannot be read is removed
and an older one taken. Source: Kafka's `ProducerStateManager`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import CorruptLogError, ErrorCode, KafkaError
from ..host.seam import Buffer, Disk
from ..ids import Offset
from ..wire.batches import BatchHeader, PlacedBatch, decode_records
from ..wire.records import CONTROL_KEY, END_TXN_VALUE
from .files import SNAPSHOT, file_name, offset_of
from .producer_entry import (
    NO_TRANSACTION,
    BatchMetadata,
    ProducerEntry,
    advance,
    check,
    check_epoch,
    end_transaction,
    find_duplicate,
)
from .producer_snapshots import decode_snapshot, encode_snapshot
from .results import Origin

Plan = Mapping[int, ProducerEntry]
_NOTHING: Plan = {}


class ProducerStates:
    """The producers of one log."""

    __slots__ = ("_disk", "_entries", "_folder", "_snapshot_offset", "expiration_ms", "map_end")

    def __init__(self, disk: Disk, folder: str, *, expiration_ms: int) -> None:
        self._disk = disk
        self._folder = folder
        self._entries: dict[int, ProducerEntry] = {}
        self._snapshot_offset = -1  # of the newest file we know of
        self.expiration_ms = expiration_ms
        self.map_end = Offset(0)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer."""
        return self._entries.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        """All producers, by id."""
        return [self._entries[key] for key in sorted(self._entries)]

    def find_duplicate(self, batches: Sequence[PlacedBatch]) -> BatchMetadata | None:
        """The first append of a batch that a client sends again; None when all are new."""
        for _, _, header in batches:
            if header.producer_id >= 0 and not header.is_control:
                entry = self._entries.get(header.producer_id)
                found = find_duplicate(entry, header) if entry else None
                if found:
                    return found
        return None

    def plan(
        self,
        records: Buffer,
        batches: Sequence[PlacedBatch],
        first_offsets: Sequence[int],
        origin: Origin,
    ) -> Plan:
        """The entries as these batches will leave them; KafkaError when a client's may not follow."""
        planned: dict[int, ProducerEntry] | None = None
        for placed, first_offset in zip(batches, first_offsets, strict=True):
            header = placed.header
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if planned is None:
                planned = {}
            entry = planned.get(producer_id) or self._entries.get(producer_id)
            if entry is None:
                entry = ProducerEntry(producer_id)
            if header.is_control:
                planned[producer_id] = _after_marker(entry, records, placed, first_offset, origin)
                continue
            if origin is Origin.CLIENT:
                check(entry, header)
                _check_transaction(entry, header)
            elif origin is Origin.COORDINATOR:
                check_epoch(entry, header.producer_epoch)
            planned[producer_id] = advance(entry, header, first_offset)
        return _NOTHING if planned is None else planned

    def commit(self, planned: Plan, end: Offset) -> None:
        """The planned batches are in the log, which ends at `end` now."""
        if planned:
            self._entries.update(planned)
        self.map_end = end

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers silent for `producer.id.expiration.ms` without an open transaction."""
        expired = [key for key, entry in self._entries.items() if self._is_expired(entry, now_ms)]
        for key in expired:
            del self._entries[key]
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        silent_ms = now_ms - entry.last_timestamp
        return entry.txn_first_offset == NO_TRANSACTION and silent_ms >= self.expiration_ms

    def touches(self, offset: Offset) -> bool:
        """True when some entry stems from `offset` or above: truncating there needs a reload."""
        return any(entry.last_offset >= offset for entry in self._entries.values())

    def clear(self, offset: Offset) -> None:
        """Forget everything and every snapshot: the log is empty and begins at `offset`."""
        self._entries.clear()
        self.map_end = offset
        for snapshot in self._snapshot_offsets():
            self._remove(snapshot)
        self._snapshot_offset = -1

    # -- snapshots

    def take_snapshot(self) -> None:
        """BLOCKS briefly. Write what is known up to `map_end`, unless that is written already."""
        if self.map_end > self._snapshot_offset:
            self._disk.replace(self._path(self.map_end), encode_snapshot(self.entries()))
            self._snapshot_offset = self.map_end

    def remove_snapshots_above(self, offset: Offset) -> None:
        """Truncation: what they say is of records that are gone."""
        for snapshot in self._snapshot_offsets():
            if snapshot > offset:
                self._remove(snapshot)
        self._snapshot_offset = max(self._snapshot_offsets(), default=-1)

    def remove_stray_snapshots(self, bases: Sequence[int]) -> None:
        """Keep those at a segment's base and the newest."""
        found = self._snapshot_offsets()
        for snapshot in found[:-1]:
            if snapshot not in bases:
                self._remove(snapshot)

    def load(self, end: Offset, log_start: Offset, now_ms: int) -> None:
        """Take the newest snapshot at or below `end`; `map_end` says what it covers.

        The caller replays the batches from there. Without one the log is replayed from its start.
        """
        self.remove_snapshots_above(end)
        self._entries.clear()
        self.map_end = log_start
        for snapshot in reversed(self._snapshot_offsets()):
            if snapshot < log_start:
                break
            path = self._path(snapshot)
            try:
                loaded = decode_snapshot(self._disk.read(path), path)
            except (CorruptLogError, FileNotFoundError):
                self._remove(snapshot)
                continue
            alive = (entry for entry in loaded if not self._is_expired(entry, now_ms))
            self._entries = {entry.producer_id: entry for entry in alive}
            self.map_end = Offset(snapshot)
            break
        self._snapshot_offset = max(self._snapshot_offsets(), default=-1)

    def _snapshot_offsets(self) -> list[int]:
        names = self._disk.list(self._folder)
        found = (offset_of(name, SNAPSHOT) for name in names)
        return sorted(offset for offset in found if offset is not None)

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{file_name(offset, SNAPSHOT)}"

    def _remove(self, offset: int) -> None:
        self._disk.remove(self._path(offset))


def _check_transaction(entry: ProducerEntry, header: BatchHeader) -> None:
    if entry.txn_first_offset != NO_TRANSACTION and not header.is_transactional:
        raise KafkaError(
            ErrorCode.invalid_txn_state,
            f"producer {entry.producer_id}: a batch outside its open transaction",
        )


def _after_marker(
    entry: ProducerEntry, records: Buffer, placed: PlacedBatch, offset: int, origin: Origin
) -> ProducerEntry:
    position, size, header = placed
    marker = decode_records(memoryview(records)[position : position + size])[0]
    if marker.key is None or len(marker.key) < CONTROL_KEY.size:
        return entry
    if CONTROL_KEY.unpack_from(marker.key)[1] not in (0, 1) or marker.value is None:
        return entry  # a control record of another kind
    coordinator_epoch = int(END_TXN_VALUE.unpack_from(marker.value)[1])
    if origin is not Origin.REPLICATION:
        check_epoch(entry, header.producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"marker of coordinator epoch {coordinator_epoch} for producer "
                f"{entry.producer_id}, the log has seen {entry.coordinator_epoch}",
            )
    return end_transaction(entry, header, offset, coordinator_epoch)
