"""Reads of committed data (KIP-98): what a reader with isolation level read_committed receives.

`fetch_committed` asks the leader, and `committed_records` filters the batches of one fetch by the aborted transactions
of its response, as every consumer does. `records_of_log` finds the same in the bytes of a whole log by its markers
alone, so the two are independent; `judge_index` compares them in one replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batch_header import BatchHeader, headers
from harrow.cluster.wire.fetch_response import FetchedPartition
from harrow.cluster.wire.records import CONTROL_KEY, decode_records

from ..backends.simulated.wire import WireClient

Record = tuple[int, bytes]
"""Offset and value."""
COMMIT = 1
READ_COMMITTED = 1


async def fetch_committed(client: WireClient, tp: TopicPartition, offset: int, wait_ms: int) -> FetchedPartition | None:
    """Fetch committed data from the leader; None without a response, whose error code the caller checks."""
    leader = await client.leader(tp)
    return await client.fetch(tp, leader, offset, wait_ms, isolation=READ_COMMITTED, epoch=leader.epoch)


def committed_records(data: memoryview | bytes, aborted: Iterable[tuple[int, int]]) -> tuple[list[Record], int | None]:
    """Return the committed records of a fetch, and the offset after its last batch; None for no batch."""
    found: list[Record] = []
    end: int | None = None
    batches = [(data[at : at + size], header) for at, size, header in headers(data)]
    dropped = dropped_batches((header for _, header in batches), aborted)
    for batch, header in batches:
        end = header.last_offset + 1
        if not (header.is_control or header.base_offset in dropped):
            found += _records(batch)
    return found, end


def dropped_batches(batches: Iterable[BatchHeader], aborted: Iterable[tuple[int, int]]) -> set[int]:
    """Return the base offsets of the batches that a consumer drops.

    `aborted`: the aborted transactions of a response, as producer id and first offset.
    """
    coming = sorted(aborted, key=lambda row: row[1])
    open_aborts, dropped = set[int](), set[int]()
    for header in batches:
        while coming and coming[0][1] <= header.last_offset:
            open_aborts.add(coming.pop(0)[0])
        if header.is_control:
            open_aborts.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in open_aborts:
            dropped.add(header.base_offset)
    return dropped


@dataclass(slots=True)
class _LogRecords:
    """The records of a log by what became of their transactions."""

    committed: list[Record] = field(default_factory=list[Record])
    """Also those outside of transactions."""
    aborted: list[Record] = field(default_factory=list[Record])
    opened: dict[int, list[Record]] = field(default_factory=dict[int, list[Record]])
    """Of transactions without a marker, by producer id."""


def _by_outcome(data: bytes) -> _LogRecords:
    found = _LogRecords()
    for at, size, header in headers(data):
        batch = data[at : at + size]
        if header.is_control:
            mine = found.opened.pop(header.producer_id, [])
            for record in decode_records(batch):
                assert record.key is not None, "a marker has a key"
                is_commit = CONTROL_KEY.unpack(record.key)[1] == COMMIT
                (found.committed if is_commit else found.aborted).extend(mine)
        elif header.is_transactional:
            found.opened.setdefault(header.producer_id, []).extend(_records(batch))
        else:
            found.committed.extend(_records(batch))
    return found


def records_of_log(data: bytes) -> tuple[list[Record], list[int]]:
    """Return the committed records of a log in offset order, and the producer ids with an open transaction."""
    found = _by_outcome(data)
    return sorted(found.committed), sorted(producer for producer, rows in found.opened.items() if rows)


def aborted_records(data: bytes) -> set[Record]:
    """Return the records of a log that an abort marker follows."""
    return set(_by_outcome(data).aborted)


def _records(batch: memoryview | bytes) -> Iterator[Record]:
    for record in decode_records(batch):
        yield record.offset, bytes(record.value or b"")
