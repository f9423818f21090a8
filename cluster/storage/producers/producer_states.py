"""Every producer of one log (F1), and their snapshots on disk.

Owns: producer id → `ProducerEntry`, `map_end` (the state covers every offset below it), the transactions that hold
back the last stable offset, the `.snapshot` files. An append is planned before its write (`plan`) and committed after
it (`commit`), so an append that fails changes nothing. Only clients' appends are validated; batches that were
accepted before (replication, recovery) are recorded without validation.

What may fail: KafkaError from `plan`; OSError from the disk. A snapshot that cannot be read is removed
and an older one taken. Source: Kafka's `ProducerStateManager`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...errors import CorruptLogError, ErrorCode, KafkaError
from ...host.seam import Buffer, Disk
from ...ids import Offset
from ...wire.batches import BatchHeader, PlacedBatch, decode_records
from ...wire.records import CONTROL_KEY, END_TXN_VALUE
from ..files import SNAPSHOT, file_name, offset_of
from ..indexes.transaction_index import AbortedTxn
from ..results import Origin
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


class CompletedTxn(NamedTuple):
    """A transaction that had data in this log, and whose marker is being appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's."""
    aborted: bool


class Plan(NamedTuple):
    """The changes of an append, computed before its write."""

    entries: Mapping[int, ProducerEntry]
    started: Sequence[tuple[int, int]] = ()
    """First offset and producer id of each transaction that begins in it."""
    completed: Sequence[CompletedTxn] = ()


NOTHING = Plan({})
"""No producer state changes."""

ABORT, COMMIT = 0, 1
"""Types of a transaction marker (`ControlRecordType`)."""


class ProducerStates:
    """The producers of one log."""

    __slots__ = (
        "_disk",
        "_entries",
        "_folder",
        "_ongoing",
        "_snapshot_offset",
        "_undecided",
        "_unsynced",
        "expiration_ms",
        "map_end",
    )

    def __init__(self, disk: Disk, folder: str, *, expiration_ms: int) -> None:
        self._disk = disk
        self._folder = folder
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset → producer id, in order
        self._undecided: list[CompletedTxn] = []  # completed, with the marker at or above the high watermark
        self._unsynced: list[int] = []  # snapshots not durable yet
        self._snapshot_offset = 0  # of the newest snapshot file; 0: none
        self.expiration_ms = expiration_ms
        self.map_end = Offset(0)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of a producer; None when it is unknown."""
        return self._entries.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        """All producers, by id."""
        return [self._entries[key] for key in sorted(self._entries)]

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The first append of a batch that a client sends again; None when it is new."""
        entry = self._entries.get(header.producer_id)
        return find_duplicate(entry, header) if entry else None

    def plan(self, records: Buffer, batches: Sequence[PlacedBatch], offset: int | None, origin: Origin) -> Plan:
        """The entries after these batches; KafkaError when a client's batch must be refused.

        The batches start at `offset`, one behind the other; None: at the offsets in their headers.
        """
        planned: dict[int, ProducerEntry] | None = None
        started: list[tuple[int, int]] = []
        completed: list[CompletedTxn] = []
        for placed in batches:
            header = placed.header
            first_offset = header.base_offset if offset is None else offset
            if offset is not None:
                offset += header.last_offset_delta + 1
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if planned is None:
                planned = {}
            entry = planned.get(producer_id) or self._entries.get(producer_id)
            if entry is None:
                entry = ProducerEntry(producer_id)
            if header.is_control:
                planned[producer_id], done = _after_marker(entry, records, placed, first_offset, origin)
                if done is not None:
                    completed.append(done)
                continue
            if origin is Origin.CLIENT:
                check(entry, header)
                _check_transaction(entry, header)
            elif origin is Origin.COORDINATOR:
                check_epoch(entry, header.producer_epoch)
            planned[producer_id] = advance(entry, header, first_offset)
            if header.is_transactional and entry.txn_first_offset == NO_TRANSACTION:
                started.append((first_offset, producer_id))
        return NOTHING if planned is None else Plan(planned, started, completed)

    def commit(self, planned: Plan, end: Offset) -> list[AbortedTxn]:
        """The planned batches were written up to `end`; returns the new entries of the transaction index."""
        assert end >= self.map_end, f"{self._folder}: producers up to {self.map_end}, log to {end}"
        self.map_end = end
        if not planned.entries:
            return []
        self._entries.update(planned.entries)
        aborted: list[AbortedTxn] = []
        started = deque(planned.started)
        for done in planned.completed:
            while started and started[0][0] < done.last_offset:  # not those that start behind its marker
                first_offset, producer_id = started.popleft()
                self._ongoing[first_offset] = producer_id
            self._ongoing.pop(done.first_offset, None)
            if done.aborted:
                stable = next(iter(self._ongoing), done.last_offset + 1)
                aborted.append(AbortedTxn(*done[:3], stable))
            self._undecided.append(done)
        # `first_unstable_offset` takes the first one: they are in the order of their offsets
        last = next(reversed(self._ongoing), -1)
        assert not started or last < started[0][0], f"{self._folder}: {started[0]} starts behind {last}"
        self._ongoing.update(started)
        return aborted

    def note(self, header: BatchHeader) -> None:
        """`plan` and `commit`, without validation, of a data batch that was accepted before."""
        producer_id, offset = header.producer_id, header.base_offset
        entry = self._entries.get(producer_id) or ProducerEntry(producer_id)
        self._entries[producer_id] = advance(entry, header, offset)
        if header.is_transactional and entry.txn_first_offset == NO_TRANSACTION:
            self._ongoing[offset] = producer_id
        self.map_end = Offset(header.last_offset + 1)

    # -- the last stable offset (F5)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """Start of the first transaction that is open, or whose marker is not below `high_watermark`.

        read_committed consumers stop there; None when there is no such transaction.
        """
        undecided = self._undecided
        if undecided and undecided[0].last_offset < high_watermark:
            self._undecided = undecided = [t for t in undecided if t.last_offset >= high_watermark]
        first = next(iter(self._ongoing), None)
        for done in undecided:
            if first is None or done.first_offset < first:
                first = done.first_offset
        return None if first is None else Offset(first)

    def _reset(self, entries: Iterable[ProducerEntry]) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        # markers before a snapshot or a truncation are below the high watermark
        self._undecided = []
        open_entries = (e for e in self._entries.values() if e.txn_first_offset >= 0)
        self._ongoing = dict(sorted((e.txn_first_offset, e.producer_id) for e in open_entries))

    def remove_expired(self, now_ms: int) -> int:
        """Remove producers without an open transaction that were silent for `producer.id.expiration.ms`."""
        expired = [key for key, entry in self._entries.items() if self._is_expired(entry, now_ms)]
        for key in expired:
            del self._entries[key]
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        silent_ms = now_ms - entry.last_timestamp
        return entry.txn_first_offset == NO_TRANSACTION and silent_ms >= self.expiration_ms

    def touches(self, offset: Offset) -> bool:
        """True when an entry may come from a batch at or above `offset`: a truncation there needs a reload."""
        return any(entry.may_stem_from(offset) for entry in self._entries.values())

    def clear(self, offset: Offset) -> None:
        """Remove all entries and snapshots: the log is empty and starts at `offset`."""
        self._reset(())
        self.map_end = offset
        for snapshot in self._snapshot_offsets():
            self._remove(snapshot)
        self._snapshot_offset = offset

    # -- snapshots

    def take_snapshot(self) -> None:
        """Write the state before `map_end`, unless it is written already; `flush` makes it durable."""
        if self.map_end > self._snapshot_offset:
            data = encode_snapshot(self.entries())
            self._disk.replace(self._path(self.map_end), data, durable=False)
            self._snapshot_offset = self.map_end
            self._unsynced.append(self.map_end)

    def flush(self) -> None:
        """BLOCKS. fsync new snapshots; safe on two threads."""
        for offset in list(self._unsynced):
            self._disk.sync_file(self._path(offset))
            with contextlib.suppress(ValueError):  # the other thread was faster
                self._unsynced.remove(offset)

    def remove_snapshots_above(self, offset: Offset) -> None:
        """After a truncation: remove the snapshots of removed records."""
        for snapshot in self._snapshot_offsets():
            if snapshot > offset:
                self._remove(snapshot)
        self._snapshot_offset = max(self._snapshot_offsets(), default=0)

    def remove_stray_snapshots(self, bases: Sequence[int]) -> None:
        """Keep snapshots at a segment's base offset, and the newest other snapshot if it lies above the last base."""
        strays = [offset for offset in self._snapshot_offsets() if offset not in bases]
        for snapshot in strays:
            if snapshot != strays[-1] or snapshot < max(bases):
                self._remove(snapshot)

    def load(self, end: Offset, log_start: Offset, now_ms: int) -> None:
        """Load the newest snapshot at or below `end`; remove those above it. `map_end` is the snapshot's offset.

        The caller replays the batches from there; without a snapshot from the log start offset.
        """
        self.remove_snapshots_above(end)
        self.load_below(end, log_start, now_ms)

    def load_below(self, end: Offset, log_start: Offset, now_ms: int) -> None:
        """As `load`, for an older state: only unreadable snapshots are removed."""
        self._reset(())
        self.map_end = log_start
        for snapshot in reversed(self._snapshot_offsets()):
            if snapshot > end:
                continue
            if snapshot < log_start:
                break
            path = self._path(snapshot)
            try:
                loaded = decode_snapshot(self._disk.read(path), path)
            except (CorruptLogError, FileNotFoundError):
                self._remove(snapshot)
                continue
            self._reset(entry for entry in loaded if not self._is_expired(entry, now_ms))
            self.map_end = Offset(snapshot)
            break
        self._snapshot_offset = max(self._snapshot_offsets(), default=log_start)

    def keep_last_batches(self) -> None:
        """Keep what a snapshot has: of each producer the last batch."""
        for producer_id, entry in self._entries.items():
            self._entries[producer_id] = entry._replace(batches=entry.batches[-1:])

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
            ErrorCode.invalid_txn_state, f"producer {entry.producer_id}: a batch outside its open transaction"
        )


def _after_marker(
    entry: ProducerEntry, records: Buffer, placed: PlacedBatch, offset: int, origin: Origin
) -> tuple[ProducerEntry, CompletedTxn | None]:
    """The entry after a control batch, and the transaction in this log that it ends, if any."""
    position, size, header = placed
    if header.record_count == 0:  # compacted: the transaction is over, and the batch still has the producer epoch
        return end_transaction(entry, header, offset, entry.coordinator_epoch), None
    try:
        marker = decode_records(memoryview(records)[position : position + size])[0]
    except KafkaError:  # the CRC is right, but its records are not readable: it ends no transaction
        return entry, None
    if marker.key is None or len(marker.key) < CONTROL_KEY.size:
        return entry, None
    kind = CONTROL_KEY.unpack_from(marker.key)[1]
    value = marker.value or b""
    if kind not in (ABORT, COMMIT) or len(value) < END_TXN_VALUE.size:
        return entry, None  # a control record of another kind
    coordinator_epoch = int(END_TXN_VALUE.unpack_from(value)[1])
    if origin is not Origin.REPLICATION:
        check_epoch(entry, header.producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"marker of coordinator epoch {coordinator_epoch} for producer "
                f"{entry.producer_id}, the log has seen {entry.coordinator_epoch}",
            )
    done = None
    if entry.txn_first_offset != NO_TRANSACTION:
        done = CompletedTxn(entry.producer_id, entry.txn_first_offset, offset, kind == ABORT)
    return end_transaction(entry, header, offset, coordinator_epoch), done
