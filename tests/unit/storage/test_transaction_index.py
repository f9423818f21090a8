"""The transaction index and the last stable offset (B1, F5)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from harrow.cluster.errors import CorruptLogError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, Origin
from harrow.cluster.storage.indexes.transaction_index import AbortedTxn, TransactionIndex
from harrow.cluster.wire.batches import build_batch, build_end_txn_marker, header_at, stamp
from storage_host import RefusingDisk, StorageHost

NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(0)


class Producers:
    """Transactional producers of one log, by id."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def send(self, producer: int, count: int = 2) -> int:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        data = build_batch(
            [(None, b"x", ())] * count,
            timestamp_ms=NOW,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        return self.log.append_as_leader(data, EPOCH).first_offset

    def end(self, producer: int, *, commit: bool) -> int:
        marker = build_end_txn_marker(
            commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=2, timestamp_ms=NOW
        )
        return self.log.append_as_leader(marker, EPOCH, origin=Origin.COORDINATOR).first_offset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def txnindex(folder: Path, base: int = 0) -> Path:
    return folder / f"{base:020d}.txnindex"


def interleaved(log: Log) -> Producers:
    """Append three transactions: 1 starts at 0, 2 at 2; 2 aborts at 4 while 1 is open; 1 aborts at 7; 3 commits."""
    producers = Producers(log)
    assert producers.send(1) == 0
    assert producers.send(2) == 2
    assert producers.end(2, commit=False) == 4
    assert producers.send(1) == 5
    assert producers.end(1, commit=False) == 7
    assert producers.send(3) == 8
    assert producers.end(3, commit=True) == 10
    return producers


ENTRIES = [AbortedTxn(2, 2, 4, 0), AbortedTxn(1, 0, 7, 8)]


def test_commit_or_marker_without_a_transaction_creates_no_index(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    producers = Producers(log)
    producers.send(9)
    producers.end(9, commit=True)
    assert not txnindex(folder).exists(), "only an abort creates the file"
    producers.end(9, commit=False)
    assert not txnindex(folder).exists(), "a marker without a transaction adds no entry"
    log.abandon()


def test_abort_stores_an_entry_with_the_last_stable_offset(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    interleaved(log)
    expected = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in ENTRIES)
    assert txnindex(folder).read_bytes() == expected
    assert log.aborted_transactions(Offset(0), Offset(11)) == ENTRIES
    assert log.aborted_transactions(Offset(5), Offset(11)) == ENTRIES[1:]
    assert log.aborted_transactions(Offset(0), Offset(2)) == ENTRIES[1:]
    assert log.aborted_transactions(Offset(8), Offset(11)) == []


def test_last_stable_offset_is_the_first_offset_of_the_oldest_open_transaction(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    producers = Producers(log)
    all_of_it = Offset(100)
    assert log.last_stable_offset(Offset(0)) == 0
    producers.send(1)
    producers.send(2)
    assert log.last_stable_offset(Offset(4)) == 0
    producers.end(1, commit=True)  # at 4
    assert log.last_stable_offset(Offset(4)) == 0, "the marker is not replicated yet"
    assert log.last_stable_offset(Offset(5)) == 2
    producers.send(1)  # a new transaction at 5, after producer 2's
    producers.end(2, commit=False)  # at 7
    assert log.last_stable_offset(Offset(7)) == 2
    assert log.last_stable_offset(Offset(8)) == 5
    producers.end(1, commit=True)
    assert log.last_stable_offset(Offset(8)) == 5
    assert log.last_stable_offset(Offset(9)) == 9
    assert log.producers.first_unstable_offset(all_of_it) is None


@pytest.mark.parametrize("clean", [True, False])
def test_restart_keeps_open_transactions(folder: Path, clean: bool) -> None:
    log = StorageHost().open(str(folder))
    producers = interleaved(log)
    producers.send(5)
    producers.send(4)
    before = txnindex(folder).read_bytes()
    log.close() if clean else log.abandon()
    log = StorageHost().open(str(folder), clean=clean)
    assert log.last_stable_offset(log.log_end_offset) == 11
    assert txnindex(folder).read_bytes() == before
    producers.log = log
    producers.end(5, commit=False)
    assert log.aborted_transactions(Offset(0), Offset(20)) == [*ENTRIES, AbortedTxn(5, 11, 15, 13)]


@pytest.mark.parametrize("damage", ["missing", "cut off", "foreign version", "rubbish"])
def test_recovery_rebuilds_a_damaged_transaction_index(folder: Path, damage: str) -> None:
    host = StorageHost()
    log = host.open(str(folder), {"internal.segment.bytes": 300})
    interleaved(log)
    log.close()
    paths = sorted(folder.glob("*.txnindex"))
    before = {path: path.read_bytes() for path in paths}
    assert len(paths) == 2
    for path in paths:
        if damage == "missing":
            path.unlink()
        elif damage == "cut off":
            path.write_bytes(path.read_bytes()[:-1])
        elif damage == "foreign version":
            path.write_bytes(b"\x00\x01" + path.read_bytes()[2:])
        else:
            path.write_bytes(b"\xff" * 34)
    log = StorageHost().open(str(folder), {"internal.segment.bytes": 300}, clean=damage != "missing")
    assert {path: path.read_bytes() for path in paths} == before
    assert log.aborted_transactions(Offset(0), Offset(11)) == ENTRIES


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("end", "entries", "stable"), [(10, 2, 8), (7, 1, 0), (5, 1, 0), (4, 0, 0), (2, 0, 0)])
def test_truncate_removes_aborts_and_reopens_their_transactions(
    folder: Path, end: int, entries: int, stable: int, restart: bool
) -> None:
    host = StorageHost()
    log = host.open(str(folder))
    interleaved(log)
    if restart:  # the loaded snapshot does not hold the offsets of the markers
        log.close()
        log = host.open(str(folder))
    log.truncate_to(Offset(end))
    assert log.aborted_transactions(Offset(0), Offset(100)) == ENTRIES[:entries]
    assert log.last_stable_offset(Offset(end)) == min(stable, end)
    size = txnindex(folder).stat().st_size
    assert size == 34 * entries
    log.close()
    log = host.open(str(folder))
    assert log.last_stable_offset(Offset(end)) == min(stable, end)


def test_append_as_follower_writes_the_same_transaction_index(tmp_path: Path, folder: Path) -> None:
    host = StorageHost()
    leader = host.open(str(folder))
    interleaved(leader)
    data = (folder / f"{0:020d}.log").read_bytes()
    follower = host.open(str(tmp_path / "copy-0"))
    follower.append_as_follower(data)  # all batches in one fetch
    assert txnindex(tmp_path / "copy-0").read_bytes() == txnindex(folder).read_bytes()
    assert follower.producers.entries() == leader.producers.entries()


def test_append_as_follower_of_a_transaction_after_a_marker_stores_the_leaders_entries(
    tmp_path: Path, folder: Path
) -> None:
    """A wrong entry ends the search for aborts too early: a read_committed consumer then misses the second abort."""
    host = StorageHost()
    leader = host.open(str(folder))
    producers = Producers(leader)
    producers.send(1)
    producers.end(1, commit=False)
    producers.send(1)
    producers.send(2)
    producers.end(1, commit=False)
    data = (folder / f"{0:020d}.log").read_bytes()
    follower = host.open(str(tmp_path / "copy-0"))
    follower.append_as_follower(data)
    assert txnindex(tmp_path / "copy-0").read_bytes() == txnindex(folder).read_bytes()
    stable = follower.last_stable_offset(follower.log_end_offset)
    aborted = [log.aborted_transactions(Offset(0), stable) for log in (leader, follower)]
    assert aborted[0] == aborted[1] == [AbortedTxn(1, 0, 2, 3), AbortedTxn(1, 3, 7, 5)]


def test_last_stable_offset_is_not_below_the_log_start(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    producers = Producers(log)
    producers.send(1)
    for _ in range(2):
        log.append_as_leader(build_batch([(None, b"x", ())] * 3, timestamp_ms=NOW), EPOCH)
    assert log.last_stable_offset(Offset(8)) == 0
    log.increment_log_start_offset(Offset(5))
    assert [log.last_stable_offset(Offset(high)) for high in (5, 8)] == [5, 5]
    producers.end(1, commit=True)
    assert log.last_stable_offset(Offset(9)) == 9


@pytest.mark.parametrize(("key", "value"), [(bytes(4), b""), (bytes(4), bytes(5)), (b"", bytes(6)), (bytes(3), b"")])
def test_control_batch_without_a_marker_ends_no_transaction(folder: Path, key: bytes, value: bytes) -> None:
    host = StorageHost()
    log = host.open(str(folder))
    Producers(log).send(7)
    odd = build_batch(
        [(key, value, ())],
        timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        base_offset=2,
        leader_epoch=EPOCH,
    )
    rubbish = bytearray(odd)
    rubbish[:8], rubbish[61:] = (3).to_bytes(8, "big"), b"\xff" * len(odd[61:])
    stamp(rubbish, header_at(rubbish).attributes, 1)
    log.append_as_follower(odd + bytes(rubbish))
    assert (log.log_end_offset, log.last_stable_offset(Offset(4))) == (4, 0)
    log.abandon()
    again = host.open(str(folder), clean=False)
    assert (again.log_end_offset, again.last_stable_offset(Offset(4))) == (4, 0)


def test_append_of_a_marker_that_does_not_rise_is_refused(tmp_path: Path) -> None:
    index = TransactionIndex(RefusingDisk(), str(tmp_path / "x.txnindex"), 5)
    index.append(AbortedTxn(1, 3, 9, 10))
    with pytest.raises(ValueError, match="after marker 9"):
        index.append(AbortedTxn(1, 3, 9, 10))
    index.close()
    other = TransactionIndex(RefusingDisk(), index.path, 10)
    with pytest.raises(CorruptLogError, match="impossible"):
        other.load()
