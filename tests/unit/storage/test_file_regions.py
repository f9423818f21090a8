"""B12: file regions for a response hold the same bytes as a read; one budget bounds the tails of all logs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from harrow.cluster.host.seam import bytes_of
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log
from harrow.cluster.storage.file_regions import REGION_BYTES_LEAST
from harrow.cluster.storage.indexes.offset_index import OffsetIndex
from harrow.cluster.storage.tail import ENTRY_COST, Tail, TailBudget
from harrow.cluster.wire.batches import build_batch, headers
from storage_host import StorageHost

EPOCH = LeaderEpoch(1)
ALL = Offset(2**62)


def fill(log: Log, count: int, rng: random.Random) -> None:
    for _ in range(count):
        records = [(b"k", rng.randbytes(rng.choice((10, 900, 9_000))), ()) for _ in range(rng.randint(1, 4))]
        log.append_as_leader(build_batch(records, timestamp_ms=1_700_000_000_000), EPOCH)


def test_read_to_send_returns_regions_with_the_bytes_of_a_read(host: StorageHost, tmp_path: Path) -> None:
    rng = random.Random(11)
    log = host.open(str(tmp_path / "orders-0"), {"internal.segment.bytes": 1_200_000}, tail_bytes=0)
    fill(log, 500, rng)
    assert len(log.segments) > 1
    regions = 0
    for _ in range(300):
        offset = Offset(rng.randrange(log.log_end_offset))
        upper = Offset(rng.choice((2**62, rng.randrange(log.log_end_offset + 1))))
        most = rng.choice((1, 5_000, REGION_BYTES_LEAST, 300_000, 3_000_000))
        at_least_one = rng.random() < 0.8
        found = log.read_to_send(offset, most, upper, at_least_one=at_least_one)
        plain = log.read(offset, most, upper, at_least_one=at_least_one)
        data = b"".join(bytes_of(part) for part in found.parts)
        assert data == b"".join(plain.parts)
        assert (found.size, found.first_offset) == (len(data), plain.first_offset)
        assert sum(size for _, size, _ in headers(data)) == len(data)
        regions += any(not isinstance(part, bytes | memoryview) for part in found.parts)
    assert regions > 50


def test_read_to_send_of_a_large_region_needs_few_file_reads(host: StorageHost, tmp_path: Path) -> None:
    log = host.open(str(tmp_path / "orders-0"), tail_bytes=0)
    fill(log, 600, random.Random(5))
    host.disk.reads = 0
    found = log.read_to_send(Offset(0), log.size - 10, ALL, at_least_one=True)
    assert found.size > log.size * 0.9
    assert host.disk.reads <= 6


def test_read_to_send_with_a_foreign_index_returns_every_batch(
    host: StorageHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = host.open(str(tmp_path / "orders-0"), tail_bytes=0)
    fill(log, 300, random.Random(6))
    segment = log.segments[-1]
    wanted = b"".join(log.read(Offset(0), 500_000, ALL, at_least_one=True).parts)
    position, offset = segment.offsets.last_before(400_000, 2**40)

    def wrong_position(*_: object) -> tuple[int, int]:
        return position + 7, offset

    monkeypatch.setattr(OffsetIndex, "last_before", wrong_position)
    found = log.read_to_send(Offset(0), 500_000, ALL, at_least_one=True)
    assert b"".join(bytes_of(part) for part in found.parts) == wanted


def test_read_to_send_from_the_tail_reads_no_file(host: StorageHost, tmp_path: Path) -> None:
    log = host.open(str(tmp_path / "orders-0"))
    fill(log, 100, random.Random(6))
    host.disk.reads = 0
    found = log.read_to_send(Offset(0), 10**7, ALL, at_least_one=True)
    assert found.size == log.size
    assert host.disk.reads == 0


def test_budget_empties_the_least_recently_used_tail_first() -> None:
    budget = TailBudget(10_000)
    tails = [Tail(5_000, budget) for _ in range(4)]
    batch = bytes(1_000 - ENTRY_COST)
    for offset in range(3):
        for tail in tails[:3]:
            tail.append(offset, offset, len(batch), (batch,))
    assert budget.used == 9_000
    assert tails[0].read(0, 10**6, 10, at_least_one=True) is not None  # tail 1 is the least recently used
    for offset in range(2):
        tails[3].append(offset, offset, len(batch), (batch,))
    assert [tail.size for tail in tails] == [3_000, 0, 3_000, 2_000]
    assert budget.used == sum(tail.size for tail in tails)
    assert tails[1].read(2, 10**6, 10, at_least_one=True) is None
    tails[1].append(3, 3, len(batch), (batch,))
    assert tails[1].read(3, 10**6, 10, at_least_one=True) is not None
    assert tails[1].read(2, 10**6, 10, at_least_one=True) is None


def test_budget_holds_under_random_operations() -> None:
    rng = random.Random(3)
    budget = TailBudget(50_000)
    tails = [Tail(20_000, budget) for _ in range(8)]
    ends = [0] * 8
    for _ in range(4_000):
        at = rng.randrange(8)
        tail = tails[at]
        match rng.randrange(10):
            case 0:
                ends[at] = rng.randint(max(0, ends[at] - 5), ends[at])
                tail.truncate_to(ends[at])
            case 1:
                tail.clear()
            case 2:
                tail.read(rng.randint(0, ends[at]), 10_000, 2**40, at_least_one=True)
            case _:
                size = rng.choice((70, 3_000, 25_000))
                tail.append(ends[at], ends[at], size, (bytes(61), bytes(size - 61)))
                ends[at] += 1
        assert budget.used == sum(tail.size for tail in tails) <= 50_000 + 20_000
        assert all(tail.size <= 20_000 for tail in tails)
