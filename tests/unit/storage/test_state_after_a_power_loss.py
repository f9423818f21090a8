"""B10: everything below the recovery point survives a power loss, with its indexes and epochs; the rest is checked.

Each case reproduces a defect that was found by an attack: after a power loss at the worst instant the log was wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fragile_broker import ABORT, EACH, EPOCH, ID, NOW, Broker, batch, epochs_of, in_transaction, stored
from harrow.cluster.host.power_loss.roll_back import lose_power
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import LeaderEpochs
from harrow.cluster.storage.results import Origin
from harrow.cluster.wire.batches import assign_offset, build_end_txn_marker
from storage_host import TP

pytestmark = pytest.mark.usefixtures("journal_only")


def test_roll_makes_the_indexes_durable_before_the_recovery_point_passes_the_segment(tmp_path: Path) -> None:
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


def test_power_loss_after_a_clean_shutdown_keeps_an_abort(tmp_path: Path) -> None:
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
def test_power_loss_soon_after_the_start_is_an_unclean_shutdown(tmp_path: Path, seed: int) -> None:
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
def test_torn_epoch_checkpoint_is_rebuilt_from_the_batches(tmp_path: Path, torn: str) -> None:
    """The power loss kept only the first digit of the offset 12, or lost the end of the line."""
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


def test_power_loss_after_a_truncation_leaves_the_epochs_of_the_stored_batches(tmp_path: Path) -> None:
    """Truncated batches may return although the checkpoint already holds the epoch that overwrote them."""
    returned = 0
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
        batches = stored(log)
        assert log.epochs.entries() == epochs_of(batches)
        in_file = LeaderEpochs(broker.disk, log.folder).entries()
        assert in_file == epochs_of(batches), "the checkpoint file agrees"
        returned += batches[-1][1] == 1 and log.log_end_offset > 6
        broker.stop()
    assert returned, "in some runs the power loss brought back truncated batches"


def test_opening_with_unchanged_epochs_does_not_rewrite_the_checkpoint(tmp_path: Path) -> None:
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


def test_power_loss_does_not_bring_truncated_batches_back_behind_newer_ones(tmp_path: Path) -> None:
    seen: set[int] = set()
    for seed in range(60):
        broker = Broker(tmp_path / str(seed))
        for _ in range(20):
            broker.put(batch(60))
        broker.log.flush()
        broker.log.truncate_to(Offset(6))
        broker.log.append_as_follower(batch(60, base_offset=6, leader_epoch=2))  # of equal size
        log = broker.lose_power(None, seed)
        epochs = [epoch for _, epoch in stored(log)]
        assert epochs == sorted(epochs)
        seen.add(len(epochs))
        broker.stop()
    assert {6, 7, 20} & seen > {7}, "some losses kept the new batch, some brought the old ones back"


def test_opening_keeps_an_epoch_whose_records_compaction_removed(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for base, epoch in ((0, 0), (1, 0), (4, 2), (5, 2)):
        broker.log.append_as_follower(batch(base_offset=base, leader_epoch=epoch))
    broker.stop()
    checkpoint = "0\n3\n0 0\n1 2\n2 4\n"
    (broker.data / str(TP) / "leader-epoch-checkpoint").write_text(checkpoint)
    log = broker.begin()
    assert log.epochs.entries() == [(0, 0), (1, 2), (2, 4)]
    broker.stop()


def test_opening_keeps_the_start_offset_of_an_epoch_after_compaction(tmp_path: Path) -> None:
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
def test_opening_a_log_that_was_truncated_below_its_start_keeps_its_batches(tmp_path: Path, fully: bool) -> None:
    """After an unclean election the new leader's log ends below the log start offset that DeleteRecords had set."""
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


def test_power_loss_does_not_bring_removed_batches_back_behind_appends_after_recovery(tmp_path: Path) -> None:
    for seed in range(30):
        broker = Broker(tmp_path / str(seed), {"internal.segment.bytes": 400})
        for _ in range(8):
            broker.put(batch(60))
        broker.log.flush()
        assert len(broker.log.segments) == 3
        broker.stop()
        path = Path(broker.log.segments[0].file.path)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1  # in the batch at offset 2
        path.write_bytes(data)
        log = broker.begin()
        assert stored(log) == [(0, 1), (1, 1)]
        log.append_as_leader(batch(5), LeaderEpoch(2))
        log = broker.lose_power(None, seed)
        assert stored(log) in ([(0, 1), (1, 1)], [(0, 1), (1, 1), (2, 2)])
        assert log.epochs.entries() == epochs_of(stored(log))
        broker.stop()


def test_opening_lowers_a_recovery_point_above_the_log_end(tmp_path: Path) -> None:
    """A crash between a truncation and its checkpoint: later appends below the old recovery point are not durable."""
    broker = Broker(tmp_path)
    for _ in range(10):
        broker.put(batch(60))
    broker.log.flush()
    broker.logs.checkpoint_recovery_points()
    log = broker.log
    log.on_cut = lambda _end: None  # the broker crashes before it writes the checkpoint
    log.truncate_to(Offset(4))
    broker.stop()
    log = broker.begin()
    assert log.log_end_offset == 4
    point = (broker.data / "recovery-point-offset-checkpoint").read_text().splitlines()[2]
    assert point in ("orders 0 0", "orders 0 4")
    broker.stop()


@pytest.mark.parametrize("seed", range(6))
def test_empty_log_survives_a_power_loss_after_a_clean_shutdown(tmp_path: Path, seed: int) -> None:
    broker = Broker(tmp_path)
    broker.logs.close(clean=True)
    lose_power(str(tmp_path / "unsynced"), seed=seed)
    log = broker.begin()
    assert (broker.logs.was_clean, log.topic_id) == (True, ID)
    broker.stop()


def test_power_loss_does_not_bring_batches_that_recovery_truncated_back(tmp_path: Path) -> None:
    truncations = 0
    for seed in range(25):
        settings: dict[str, object] = {"segment.ms": 3_600_000, "message.timestamp.after.max.ms": 10_000_000}
        broker = Broker(tmp_path / str(seed), settings)
        for _ in range(4):
            broker.put(batch(60))
        broker.log.flush()
        broker.logs.checkpoint_recovery_points()
        for _ in range(4):
            broker.put(batch(600))
        log = broker.lose_power(None, seed)
        if log.log_end_offset == 4:
            truncations += 1
            broker.put(batch(60, NOW + 7_200_000), 2)  # rolls by age
            log.flush()
            broker.logs.checkpoint_recovery_points()
            log = broker.lose_power(None, seed + 1_000)
            assert stored(log) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2)]
        broker.stop()
    assert truncations, "in some runs recovery truncated the log"


def test_power_loss_does_not_bring_a_truncated_abort_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(in_transaction())
    broker.put(ABORT, origin=Origin.COORDINATOR)
    log = broker.log
    log.roll()
    broker.host.tasks.run()
    log.truncate_to(Offset(1))
    commit = build_end_txn_marker(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)
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
