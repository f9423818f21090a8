"""What a ShareFetch reads and acquires: records of its share-partitions, in one step, within its limits (KIP-932).

Owns: `ShareFetch`, the fetch of a member without its messages; `DelayedShareFetch`, the same while it waits. A fetch is
complete when one of its share-partitions has an error, when it could acquire `min_bytes`, or at its deadline. It
reads and acquires when it completes, in one step of the loop, so that no two members read for the same records.

A share-partition that still loads gives nothing and no error. Source: Kafka's DelayedShareFetch, ShareFetchUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Buffer
from ..ids import Offset
from ..purgatory import DelayedOperation
from ..replication.fetch_isolation import FetchIsolation
from ..wire.batches import headers
from .directory import LedShare
from .in_flight_records import AcquiredRecords, BatchSpan
from .sessions import Place
from .share_partition import SharePartitionState

if TYPE_CHECKING:
    from ..storage.indexes.transaction_index import AbortedTxn

ShareRead = tuple[bytes, Sequence[BatchSpan]]
"""Whole batches of records, and where each lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a fetch may return."""

    min_bytes: int
    max_bytes: int
    records_most: int
    batch_size: int
    exact: bool
    """No more than `records_most`: the fetch may get a part of a batch."""


@dataclass(slots=True, kw_only=True)
class Fetched:
    """The result of one share-partition."""

    led: LedShare | None = None
    error: KafkaError | None = None
    records: bytes = b""
    acquired: Sequence[AcquiredRecords] = ()


@dataclass(slots=True, kw_only=True)
class ShareFetch:
    """The share-partitions of one fetch, in the order in which they are read."""

    member: str
    isolation: FetchIsolation
    limits: Limits
    lock_ms: int
    now_ms: Callable[[], int]
    log_failed: Callable[[LedShare, StorageError], None]
    places: dict[Place, LedShare] = field(default_factory=dict[Place, LedShare])
    failed: dict[Place, KafkaError] = field(default_factory=dict[Place, KafkaError])
    until_ms: int = 0
    """When the locks of what was acquired end."""

    def is_due(self) -> bool:
        """True when there is an error, or enough to acquire."""
        if self.failed or not self.places:
            return True
        size = 0
        for led in self.places.values():
            if led.closed or _moved(led):
                return True
            state = self._ready(led)
            if state is None:
                continue
            if self.limits.min_bytes <= 1:
                return True
            size += len(self._read(led, state, self.limits.max_bytes - size, first=size == 0)[0])
            if size >= self.limits.min_bytes:
                return True
        return False

    def _ready(self, led: LedShare) -> SharePartitionState | None:
        """The state of a share-partition of which something can be acquired now."""
        state = led.active()
        if state is None or not state.may_acquire:
            return None
        return state if state.next_fetch_offset < self.isolation.upper_bound(led.partition) else None

    def complete(self) -> dict[Place, Fetched]:
        """Read and acquire within the limits."""
        found: dict[Place, Fetched] = {place: Fetched(error=error) for place, error in self.failed.items()}
        left, room = self.limits.max_bytes, self.limits.records_most
        self.until_ms = self.now_ms() + self.lock_ms
        for place, led in self.places.items():
            if place in found:
                continue
            got = self._fetch(led, left, room, first=left == self.limits.max_bytes)
            found[place] = got
            left -= len(got.records)
            room -= sum(row.last_offset - row.first_offset + 1 for row in got.acquired)
        return found

    def _fetch(self, led: LedShare, left: int, room: int, *, first: bool) -> Fetched:
        if led.closed or _moved(led):
            code = led.partition.check_leader()
            moved = ErrorCode.not_leader_or_follower if code is ErrorCode.none else code
            return Fetched(led=led, error=KafkaError(moved))
        state = self._ready(led)
        if state is None or room <= 0 or (left <= 0 and not first):
            return Fetched(led=led)
        try:
            data, spans = self._read(led, state, left, first=first)
        except KafkaError as error:
            return Fetched(led=led, error=error)
        except StorageError as error:
            self.log_failed(led, error)
            return Fetched(led=led, error=KafkaError(ErrorCode.kafka_storage_error))
        acquired = state.acquire(
            self.member,
            spans,
            fetch_offset=state.next_fetch_offset,
            records_most=room,
            batch_size=self.limits.batch_size,
            exact=self.limits.exact,
            deadline_ms=self.until_ms,
        )
        led.acquired()
        return Fetched(led=led, records=_slice(data, acquired), acquired=acquired)

    def _read(self, led: LedShare, state: SharePartitionState, left: int, *, first: bool) -> ShareRead:
        log, offset = led.partition.log, state.next_fetch_offset
        upper = self.isolation.upper_bound(led.partition)
        read = log.read(offset, max(0, left), upper, at_least_one=first)
        data = b"".join(bytes(part) for part in read.parts)
        aborted: Sequence[AbortedTxn] = ()
        if self.isolation is FetchIsolation.TXN_COMMITTED and data:
            aborted = log.aborted_within_read(offset, read.first_offset, upper)
        return data, _spans(data, aborted)


def _moved(led: LedShare) -> bool:
    return led.partition.check_leader() is not ErrorCode.none


def _spans(data: Buffer, aborted: Sequence[AbortedTxn]) -> list[BatchSpan]:
    found: list[BatchSpan] = []
    for _, _, header in headers(data):
        first, last = Offset(header.base_offset), Offset(header.base_offset + header.last_offset_delta)
        dropped = header.is_transactional and not header.is_control
        dropped = dropped and any(
            row.producer_id == header.producer_id and row.first_offset <= first <= row.last_offset for row in aborted
        )
        found.append(BatchSpan(first, last, dropped))
    return found


def _slice(data: bytes, acquired: Sequence[AcquiredRecords]) -> bytes:
    """The batches from the first to the last that has an acquired record."""
    if not acquired:
        return b""
    start, end = len(data), 0
    for at, size, header in headers(data):
        last = header.base_offset + header.last_offset_delta
        if last >= acquired[0].first_offset and header.base_offset <= acquired[-1].last_offset:
            start, end = min(start, at), at + size
    return data[start:end]


class DelayedShareFetch(DelayedOperation):
    """A fetch that waits for records, for an error, or for its deadline."""

    __slots__ = ("_done", "_fetch")

    def __init__(self, deadline_ms: int, fetch: ShareFetch, done: Callable[[dict[Place, Fetched]], None]) -> None:
        super().__init__(deadline_ms)
        self._fetch = fetch
        self._done = done

    def try_complete(self) -> bool:
        """Complete when something can be acquired."""
        return self._fetch.is_due() and self.force_complete()

    def on_complete(self) -> None:
        """Acquire, and respond."""
        self._done(self._fetch.complete())
