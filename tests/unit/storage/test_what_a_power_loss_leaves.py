"""B10: what is below the recovery point is durable, all that is said of it too; nothing else is believed.

Each case was found by an attack: a power loss at the wrong moment, and what the log then knew wrongly.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fragile_broker import (
    ABORT,
    EACH,
    EPOCH,
    ID,
    NOW,
    Broker,
    batch,
    epochs_of,
    in_transaction,
    stored,
)
from harrow.cluster.host.power_loss.roll_back import lose_power
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import LeaderEpochs
from harrow.cluster.storage.results import Origin
from harrow.cluster.wire.batches import (
    assign_offset,
    build_end_txn_marker,
)
from storage_host import TP

pytestmark = pytest.mark.usefixtures("journal_only")


def test_the_indexes_of_a_sealed_segment_are_durable_before_the_next_vouches_for_them(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, EACH)
    log = broker.log
    broker.put(in_transaction())
    broker.put(ABORT, origin=Origin.COORDINATOR)
    broker.put(batch(time=NOW + 5))
    aborted = log.aborted_transactions(Offset(0), Offset(3))
    found = log.offset_for_timestamp(NOW + 5)
    assert (len(aborted), log.recovery_point) == (1, 3)
    log.roll()
    broker.host.tasks.run()
    broker.put(batch(time=NOW + 50))
    broker.logs.checkpoint_recovery_points()
    log = broker.lose_power()
    assert log.log_end_offset == 4
    assert log.aborted_transactions(Offset(0), Offset(3)) == aborted
    assert log.offset_for_timestamp(NOW + 5) == found
    broker.stop()


def test_an_abort_is_not_forgotten_after_a_clean_stop(tmp_path: Path) -> None:
    broker = Broker(tmp_path, EACH)
    broker.put(in_transaction())
    broker.put(ABORT, origin=Origin.COORDINATOR)
    broker.logs.close(clean=True)
    lose_power(str(tmp_path / "unsynced"), seed=0, keep=0.0)
    log = broker.begin()
    assert broker.logs.was_clean
    assert len(log.aborted_transactions(Offset(0), Offset(2))) == 1
    broker.stop()


@pytest.mark.parametrize("seed", range(8))
def test_a_power_loss_soon_after_the_start_is_no_clean_stop(tmp_path: Path, seed: int) -> None:
    broker = Broker(tmp_path)
    broker.put(batch())
    broker.logs.close(clean=True)
    broker.begin()
    assert broker.logs.was_clean
    broker.log.append_as_leader(batch(3_000), EPOCH)
    log = broker.lose_power(None, seed)
    assert not broker.logs.was_clean
    assert [base for base, _ in stored(log)] in ([0], [0, 1])
    broker.stop()


@pytest.mark.parametrize("torn", ["0\n2\n1 0\n2 1", "0\n2\n1 0\n2 12"])
def test_a_torn_checkpoint_is_not_believed(tmp_path: Path, torn: str) -> None:
    """Of offset 12 the power loss left a 1."""
    broker = Broker(tmp_path)
    for number in range(13):
        broker.put(batch(), 1 + number // 12)
    assert broker.log.epochs.entries() == [(1, 0), (2, 12)]
    broker.stop()
    (broker.data / str(TP) / "leader-epoch-checkpoint").write_text(torn)
    log = broker.begin()
    assert log.epochs.entries() == [(1, 0), (2, 12)]
    assert any("no end of line" in str(line) for line in broker.host.notes.lines)
    broker.stop()


def test_epochs_are_those_of_the_batches_whatever_the_power_loss_kept(tmp_path: Path) -> None:
    """What was cut off may be back, and the epoch that was written over it may be known already."""
    told = 0
    for seed in range(60):
        broker = Broker(tmp_path / str(seed))
        for _ in range(20):
            broker.put(batch(60))
        broker.log.flush()
        broker.logs.checkpoint_recovery_points()
        broker.log.truncate_to(Offset(6))
        data = batch(61, base_offset=6, leader_epoch=2)
        broker.log.append_as_follower(data)
        assert broker.log.epochs.entries() == [(1, 0), (2, 6)]
        log = broker.lose_power(None, seed)
        there = stored(log)
        assert log.epochs.entries() == epochs_of(there)
        assert LeaderEpochs(broker.disk, log.folder).entries() == epochs_of(there), (
            "and in the file"
        )
        told += there[-1][1] == 1 and log.log_end_offset > 6
        broker.stop()
    assert told, "the power loss brought back what was cut"


def test_epochs_that_come_out_as_the_file_has_them_are_not_written_anew(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for epoch in (1, 1, 2, 5):
        broker.put(batch(), epoch)
    file = broker.data / str(TP) / "leader-epoch-checkpoint"
    before = file.stat().st_ino
    broker.stop()
    log = broker.begin()
    assert log.epochs.entries() == [(1, 0), (2, 2), (5, 3)]
    assert file.stat().st_ino == before
    broker.stop()


def test_what_was_cut_off_does_not_come_back_behind_what_was_written_over_it(
    tmp_path: Path,
) -> None:
    seen: set[int] = set()
    for seed in range(60):
        broker = Broker(tmp_path / str(seed))
        for _ in range(20):
            broker.put(batch(60))
        broker.log.flush()
        broker.log.truncate_to(Offset(6))
        broker.log.append_as_follower(batch(60, base_offset=6, leader_epoch=2))  # of the same size
        log = broker.lose_power(None, seed)
        epochs = [epoch for _, epoch in stored(log)]
        assert epochs == sorted(epochs)
        seen.add(len(epochs))
        broker.stop()
    assert {6, 7, 20} & seen > {7}, "some losses kept the new batch, some brought the old ones back"


def test_an_epoch_all_of_whose_records_compaction_took_is_remembered(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for base, epoch in ((0, 0), (1, 0), (4, 2), (5, 2)):
        broker.log.append_as_follower(batch(base_offset=base, leader_epoch=epoch))
    broker.stop()
    known = "0\n3\n0 0\n1 2\n2 4\n"
    (broker.data / str(TP) / "leader-epoch-checkpoint").write_text(known)
    log = broker.begin()
    assert log.epochs.entries() == [(0, 0), (1, 2), (2, 4)]
    broker.stop()


def test_what_compaction_took_of_an_epoch_is_still_where_it_began(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for base, epoch in ((0, 1), (1, 1), (9, 2), (12, 3)):
        broker.log.append_as_follower(batch(base_offset=base, leader_epoch=epoch))
    broker.log.epochs.assign(LeaderEpoch(2), Offset(5))
    broker.log.epochs.assign(LeaderEpoch(3), Offset(12))
    broker.stop()
    log = broker.begin()
    assert log.epochs.entries() == [(1, 0), (2, 5), (3, 12)]
    broker.stop()


@pytest.mark.parametrize("fully", [False, True])
def test_a_log_that_was_cut_below_its_start_is_not_emptied_by_the_next_start(
    tmp_path: Path, fully: bool
) -> None:
    """An unclean election: the new leader ends below where DeleteRecords had begun the log."""
    broker = Broker(tmp_path)
    for _ in range(8):
        broker.put(batch())
    log = broker.log
    log.increment_log_start_offset(Offset(7))
    broker.logs.checkpoint_recovery_points()
    (log.truncate_fully_and_start_at if fully else log.truncate_to)(Offset(3))
    for base in (3, 4):
        log.append_as_follower(batch(base_offset=base, leader_epoch=2))
    broker.stop()
    log = broker.begin()
    assert (log.log_start_offset, stored(log)) == (3, [(3, 2), (4, 2)])
    broker.stop()


def test_what_recovery_removed_does_not_come_back_behind_what_was_appended_since(
    tmp_path: Path,
) -> None:
    for seed in range(30):
        broker = Broker(tmp_path / str(seed), {"segment.bytes": 400})
        for _ in range(8):
            broker.put(batch(60))
        broker.log.flush()
        assert len(broker.log.segments) == 3
        broker.stop()
        path = Path(broker.log.segments[0].file.path)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1  # of the batch at 2
        path.write_bytes(data)
        log = broker.begin()
        assert stored(log) == [(0, 1), (1, 1)]
        log.append_as_leader(batch(5), LeaderEpoch(2))
        log = broker.lose_power(None, seed)
        assert stored(log) in ([(0, 1), (1, 1)], [(0, 1), (1, 1), (2, 2)])
        assert log.epochs.entries() == epochs_of(stored(log))
        broker.stop()


def test_a_recovery_point_above_the_logs_end_is_lowered_at_the_start(tmp_path: Path) -> None:
    """A crash after a cut, before the checkpoint that it needs: what is written next is not durable."""
    broker = Broker(tmp_path)
    for _ in range(10):
        broker.put(batch(60))
    broker.log.flush()
    broker.logs.checkpoint_recovery_points()
    log = broker.log
    log.on_cut = lambda _end: None  # the broker is gone
    log.truncate_to(Offset(4))
    broker.stop()
    log = broker.begin()
    assert log.log_end_offset == 4
    point = (broker.data / "recovery-point-offset-checkpoint").read_text().splitlines()[2]
    assert point in ("orders 0 0", "orders 0 4")
    broker.stop()


@pytest.mark.parametrize("seed", range(6))
def test_a_log_without_records_is_there_after_a_clean_stop_and_a_power_loss(
    tmp_path: Path, seed: int
) -> None:
    broker = Broker(tmp_path)
    broker.logs.close(clean=True)
    lose_power(str(tmp_path / "unsynced"), seed=seed)
    log = broker.begin()
    assert (broker.logs.was_clean, log.topic_id) == (True, ID)
    broker.stop()


def test_what_recovery_cut_off_does_not_come_back_in_a_sealed_segment(tmp_path: Path) -> None:
    cut = 0
    for seed in range(25):
        broker = Broker(tmp_path / str(seed), {"segment.ms": 3_600_000})
        for _ in range(4):
            broker.put(batch(60))
        broker.log.flush()
        broker.logs.checkpoint_recovery_points()
        for _ in range(4):
            broker.put(batch(600))
        log = broker.lose_power(None, seed)
        if log.log_end_offset == 4:
            cut += 1
            broker.put(batch(60, NOW + 7_200_000), 2)  # rolls by age
            log.flush()
            broker.logs.checkpoint_recovery_points()
            log = broker.lose_power(None, seed + 1_000)
            assert stored(log) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2)]
        broker.stop()
    assert cut, "a recovery cut something off"


def test_an_abort_that_was_cut_off_does_not_come_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(in_transaction())
    broker.put(ABORT, origin=Origin.COORDINATOR)
    log = broker.log
    log.roll()
    broker.host.tasks.run()
    log.truncate_to(Offset(1))
    commit = build_end_txn_marker(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
    )
    data = bytearray(commit)
    assign_offset(data, 1, 2)
    log.append_as_follower(bytes(data))
    log.append_as_follower(batch(base_offset=2, leader_epoch=2))
    log.roll()
    broker.host.tasks.run()
    log.append_as_follower(batch(base_offset=3, leader_epoch=2))
    broker.logs.checkpoint_recovery_points()
    assert log.recovery_point == 3
    log = broker.lose_power()
    assert log.aborted_transactions(Offset(0), Offset(3)) == []
    assert stored(log)[:3] == [(0, 1), (1, 2), (2, 2)]
    broker.stop()
