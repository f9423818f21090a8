"""Idempotent producers: the five-batch window, sequences, epochs, snapshots (F1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, Origin
from harrow.cluster.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from harrow.cluster.storage.producers.producer_snapshots import decode_snapshot, encode_snapshot
from harrow.cluster.wire.batches import build_batch, build_end_txn_marker, header_at
from storage_host import StorageHost

EPOCH = LeaderEpoch(0)
NOW = 1_700_000_000_000
SEQUENCE_MAX = 2**31 - 1


def batch(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> bytes:
    records = [(None, b"v%d" % sequence, ())] * count
    return build_batch(records, timestamp_ms=NOW, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def send(log: Log, *sequences: int, epoch: int = 0) -> list[int]:
    return [log.append_as_leader(batch(s, epoch=epoch), EPOCH).first_offset for s in sequences]


def refusal(log: Log, data: bytes, origin: Origin = Origin.CLIENT) -> ErrorCode:
    before = (log.log_end_offset, log.size, log.producers.entries())
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, EPOCH, origin=origin)
    assert (log.log_end_offset, log.size, log.producers.entries()) == before
    return caught.value.code


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return StorageHost().open(str(tmp_path / "orders-0"))


def test_retry_of_one_of_the_last_five_batches_returns_the_first_appends_offsets(log: Log) -> None:
    for sequence in range(0, 18, 3):
        log.append_as_leader(batch(sequence, 3), EPOCH)
    for sequence in range(3, 18, 3):
        info = log.append_as_leader(batch(sequence, 3), EPOCH)
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (sequence, sequence + 2)
        assert (info.size, info.record_count) == (0, 3)
    assert log.log_end_offset == 18
    assert refusal(log, batch(0, 3)) == ErrorCode.out_of_order_sequence_number


@pytest.mark.parametrize("sequence", [0, 2, 4, 100])
def test_append_with_a_sequence_gap_or_a_lower_sequence_is_out_of_order(log: Log, sequence: int) -> None:
    log.append_as_leader(batch(0, 2), EPOCH)
    log.append_as_leader(batch(2), EPOCH)
    if sequence == 2:
        assert log.append_as_leader(batch(2), EPOCH).duplicate
    else:
        assert refusal(log, batch(sequence)) == ErrorCode.out_of_order_sequence_number


def test_append_after_the_largest_sequence_wraps_to_zero(log: Log) -> None:
    send(log, SEQUENCE_MAX - 1, SEQUENCE_MAX, 0, 1)
    log.append_as_leader(batch(0, epoch=1), EPOCH)
    assert refusal(log, batch(3, epoch=1)) == ErrorCode.out_of_order_sequence_number


def test_append_of_a_batch_across_the_sequence_wrap_is_accepted(log: Log) -> None:
    log.append_as_leader(batch(SEQUENCE_MAX - 1, 4), EPOCH)
    assert log.append_as_leader(batch(SEQUENCE_MAX - 1, 4), EPOCH).duplicate
    assert send(log, 2) == [4]


def test_higher_producer_epoch_restarts_the_sequence_and_fences_lower_epochs(log: Log) -> None:
    send(log, 0, 1, epoch=3)
    assert refusal(log, batch(2, epoch=2)) == ErrorCode.invalid_producer_epoch
    assert refusal(log, batch(2, epoch=4)) == ErrorCode.out_of_order_sequence_number
    assert send(log, 0, 1, epoch=4) == [2, 3]
    assert refusal(log, batch(2, epoch=3)) == ErrorCode.invalid_producer_epoch


def test_append_by_an_unknown_producer_may_start_at_any_sequence(log: Log) -> None:
    assert send(log, 41, 42) == [0, 1]


def test_append_by_another_producer_is_no_duplicate(log: Log) -> None:
    log.append_as_leader(batch(0, producer=1), EPOCH)
    assert not log.append_as_leader(batch(0, producer=2), EPOCH).duplicate


def test_append_as_follower_stores_producer_states_without_validation(log: Log, tmp_path: Path) -> None:
    follower = StorageHost().open(str(tmp_path / "orders-1"))
    send(log, 0, 1, 2)
    data = b"".join(bytes(p) for p in log.read(Offset(0), 10**6, Offset(3), at_least_one=True).parts)
    follower.append_as_follower(data)
    assert follower.producers.entries() == log.producers.entries()
    assert follower.append_as_leader(batch(1), EPOCH).first_offset == 1


def test_marker_ends_the_transaction_and_is_refused_from_clients(log: Log) -> None:
    data = build_batch(
        [(None, b"x", ())], timestamp_ms=NOW, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(data, EPOCH)
    entry = log.producers.get(7)
    assert entry is not None
    assert entry.txn_first_offset == 0
    assert refusal(log, batch(1)) == ErrorCode.invalid_txn_state

    def marker(coordinator_epoch: int) -> bytes:
        return build_end_txn_marker(
            commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=coordinator_epoch, timestamp_ms=NOW
        )

    assert refusal(log, marker(3)) == ErrorCode.invalid_record
    log.append_as_leader(marker(3), EPOCH, origin=Origin.COORDINATOR)
    entry = log.producers.get(7)
    assert entry is not None
    assert (entry.txn_first_offset, entry.coordinator_epoch) == (-1, 3)
    fenced = refusal(log, marker(2), Origin.COORDINATOR)
    assert fenced == ErrorCode.transaction_coordinator_fenced


def test_snapshot_is_decoded_as_encoded_and_corruption_is_detected() -> None:
    last = BatchMetadata(SEQUENCE_MAX, 2, 96, 99, NOW)
    entries = [ProducerEntry(7, 3, (last,), NOW, 4, 96), ProducerEntry(9, 1, (), NOW)]
    data = encode_snapshot(entries)
    assert len(data) == 10 + 2 * 46
    assert decode_snapshot(data, "x") == entries
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 1
        with pytest.raises(CorruptLogError, match=r"00\.snapshot"):
            decode_snapshot(bytes(bad), "00.snapshot")
        with pytest.raises(CorruptLogError):
            decode_snapshot(data[:position], "x")


@pytest.mark.parametrize("clean", [True, False])
def test_reopening_keeps_the_last_batch_of_a_producer(tmp_path: Path, clean: bool) -> None:
    host = StorageHost()
    folder = str(tmp_path / "orders-0")
    log = host.open(folder)
    send(log, *range(8))
    (full,) = log.producers.entries()
    assert len(full.batches) == 5
    if clean:
        log.close()
    else:
        log.abandon()
    log = host.open(folder, clean=clean)
    assert log.producers.entries() == [full._replace(batches=full.batches[-1:])]
    assert log.append_as_leader(batch(7), EPOCH).first_offset == 7
    assert refusal(log, batch(6)) == ErrorCode.out_of_order_sequence_number
    assert send(log, 8) == [8]


def test_truncate_restores_the_earlier_producer_state(tmp_path: Path) -> None:
    log = StorageHost().open(str(tmp_path / "orders-0"))
    send(log, *range(10))
    log.truncate_to(Offset(6))
    (entry,) = log.producers.entries()
    assert [b.first_offset for b in entry.batches] == [1, 2, 3, 4, 5]
    assert send(log, 6) == [6]
    log.truncate_to(Offset(0))
    assert log.producers.entries() == []


def test_snapshot_is_written_at_each_roll_and_a_corrupt_one_is_ignored(tmp_path: Path) -> None:
    host = StorageHost()
    folder = tmp_path / "orders-0"
    size = len(batch(0))
    log = host.open(str(folder), {"internal.segment.bytes": 3 * size})
    send(log, *range(8))
    assert [p.name for p in sorted(folder.glob("*.snapshot"))] == [
        "00000000000000000003.snapshot",
        "00000000000000000006.snapshot",
    ]
    full = log.producers.entries()
    log.close()
    newest = max(folder.glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
    log = host.open(str(folder), {"internal.segment.bytes": 3 * size})
    (entry,) = log.producers.entries()
    assert entry.batches[-1] == full[0].batches[-1]
    assert sum(1 for _ in folder.glob("*.snapshot")) == 3


def test_remove_expired_removes_producers_without_recent_appends(tmp_path: Path) -> None:
    host = StorageHost()
    log = host.open(str(tmp_path / "orders-0"))
    send(log, 0)
    assert log.producers.remove_expired(NOW + 86_400_000 - 1) == 0
    assert log.producers.remove_expired(NOW + 86_400_000) == 1
    assert send(log, 5) == [1]  # the log stores no state of this producer any more


def test_failed_append_leaves_the_producer_states_unchanged(tmp_path: Path) -> None:
    host = StorageHost()
    log = host.open(str(tmp_path / "orders-0"))
    send(log, 0)
    before = log.producers.entries()
    host.disk.refuse_appends = 5
    with pytest.raises(StorageError, match="offline"):
        send(log, 1)
    assert log.producers.entries() == before
    assert header_at(batch(0)).producer_id == 7
