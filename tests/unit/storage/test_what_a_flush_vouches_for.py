"""B10, B11: what is below the recovery point is durable, all that is said of it too; nothing else is believed.

Each case was found by an attack: a power loss, or two threads at once, and what the log then knew wrongly.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import StorageError
from harrow.cluster.host.disk import RealDisk
from harrow.cluster.host.disk_faults import DiskFaults
from harrow.cluster.host.power_loss import lose_power
from harrow.cluster.host.tracked_disk import TrackedDisk
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.storage.results import Origin
from harrow.cluster.wire.batches import build_batch, build_end_txn_marker, crc_matches, headers
from storage_host import TP, StorageHost

CONFIG = BrokerConfig.parse({"harrow.tail.bytes": 0})
ID = "0W2cD9rlRj6jvUdxDTHqxA"
NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(1)
EACH: dict[str, object] = {"flush.messages": 1}


def no_fsync(_fd: int) -> None:
    """The journal is what is tested; the real disk need not be waited for."""


@pytest.fixture(autouse=True)
def a_disk_that_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", no_fsync)


class Broker:
    """One log of a broker whose power may be lost."""

    def __init__(self, folder: Path, topic: dict[str, object] | None = None) -> None:
        self.folder, self.topic = folder, topic or {}
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self.begin()

    def begin(self) -> Log:
        self.host = StorageHost()
        self.disk = TrackedDisk(str(self.folder / "unsynced"), [str(self.data)])
        self.host.disk = self.disk  # type: ignore[assignment]
        self.logs = LogManager(self.host.host, str(self.data), CONFIG)
        self.logs.load()
        self.logs.claim("cluster", 1)
        self.log = self.logs.create(TP, ID, CONFIG.topic(self.topic))
        return self.log

    def put(self, data: bytes, epoch: int = 1, **how: Any) -> None:
        """Append and let the fsync that it waits for happen."""
        self.log.append_as_leader(data, LeaderEpoch(epoch), **how)
        self.host.tasks.run()

    def lose_power(self, keep: float | None = 0.0, seed: int = 0) -> Log:
        self.logs.close(clean=False)
        for call in self.host.tasks.spawned:
            call.close()
        lose_power(str(self.folder / "unsynced"), seed=seed, keep=keep)
        return self.begin()

    def stop(self) -> None:
        self.logs.close(clean=False)
        for call in self.host.tasks.spawned:
            call.close()


def batch(size: int = 10, time: int = NOW, **fields: Any) -> bytes:
    return build_batch([(b"k", bytes(size), ())], timestamp_ms=time, **fields)


def in_transaction(sequence: int = 0) -> bytes:
    return batch(producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)


ABORT = build_end_txn_marker(
    commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
)


def stored(log: Log) -> list[tuple[int, int]]:
    """Base offset and leader epoch of every batch; each has a good CRC."""
    found: list[tuple[int, int]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 10**7, log.log_end_offset, at_least_one=True)
        whole = b"".join(map(bytes, data.parts))
        for placed in headers(whole, partial_ok=False):
            assert crc_matches(whole, placed), f"batch {placed.header.base_offset}"
            found.append((placed.header.base_offset, placed.header.leader_epoch))
        offset = Offset(found[-1][0] + 1)
    return found


def epochs_of(batches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    firsts = [next(group) for _, group in itertools.groupby(batches, key=lambda one: one[1])]
    return [(epoch, base) for base, epoch in firsts]


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
        told += there[-1][1] == 1 and log.log_end_offset > 6
        broker.stop()
    assert told, "the power loss brought back what was cut"


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


@pytest.mark.parametrize("held_in", ["write", "rename"])
def test_a_checkpoint_on_a_thread_and_a_cut_on_the_loop_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_in: str
) -> None:
    """The thread has taken the recovery points, or written the temporary file, and the loop cuts a log."""
    host = StorageHost()
    host.disk = disk = RealDisk()  # type: ignore[assignment]
    logs = LogManager(host.host, str(tmp_path), CONFIG)
    logs.load()
    log = logs.create(TP, "", CONFIG.topic({}))
    for _ in range(10):
        log.append_as_leader(batch(), EPOCH)
    log.flush()
    begun, done = threading.Event(), threading.Event()
    replace, rename = disk.replace, os.replace

    def hold(path: str) -> None:
        if path.endswith("recovery-point-offset-checkpoint") and not begun.is_set():
            begun.set()
            done.wait(0.3)  # by now the loop has cut, or waits for this to end

    def held_replace(path: str, data: bytes, *, durable: bool = True) -> None:
        hold(path)
        replace(path, data, durable=durable)

    def held_rename(source: str, target: str) -> None:
        hold(target)
        rename(source, target)

    if held_in == "write":
        disk.replace = held_replace  # type: ignore[method-assign]
    else:
        monkeypatch.setattr(os, "replace", held_rename)
    thread = threading.Thread(target=logs.checkpoint_recovery_points)
    thread.start()
    assert begun.wait(30)
    log.truncate_to(Offset(4))
    done.set()
    thread.join()
    assert logs.folders[0].failed is None
    rows = (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    assert rows == ["orders 0 0"], "nothing vouches for what was cut"
    logs.close(clean=False)


def test_two_flushes_at_once_each_wait_for_the_names(tmp_path: Path) -> None:
    """flush.ms's and the one that an append waits for: the second may not lean on what the first has only begun."""
    broker = Broker(tmp_path, EACH)
    broker.log.append_as_leader(batch(), EPOCH)
    real, held = broker.disk.sync_file, threading.Event()
    reached, ended = threading.Event(), threading.Event()

    def sync_file(path: str) -> None:
        if path.endswith("partition.metadata") and not held.is_set():
            held.set()
            reached.set()
            assert ended.wait(30)
            raise OSError(errno.EIO, "the power goes before this has ended", path)
        real(path)

    broker.disk.sync_file = sync_file  # type: ignore[method-assign]
    refused: list[Exception] = []

    def first() -> None:
        try:
            broker.log.flush()
        except StorageError as error:
            refused.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert reached.wait(30)
    broker.host.tasks.run()  # the second one, whole
    settled = broker.log.settled_offset
    ended.set()
    thread.join()
    assert (settled, len(refused)) == (1, 1)
    log = broker.lose_power()
    assert stored(log) == [(0, 1)]
    assert log.epochs.entries() == [(1, 0)]
    assert log.topic_id == ID
    broker.stop()


def test_an_epoch_that_is_written_during_a_flush_needs_the_next(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(batch())
    broker.log.flush()
    real = broker.disk.replace
    during: list[str] = []

    def replace(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith("leader-epoch-checkpoint") and not during:
            during.append(path)
            broker.log.epochs.flush()  # what a flush on its thread does in this moment
        real(path, data, durable=durable)

    broker.disk.replace = replace  # type: ignore[method-assign]
    broker.put(batch(), 2)
    broker.log.flush()
    assert during
    file = broker.data / str(TP) / "leader-epoch-checkpoint"
    wanted = file.read_bytes()
    broker.stop()
    lose_power(str(tmp_path / "unsynced"), seed=0, keep=0.0)
    assert file.read_bytes() == wanted


def test_an_fsync_that_failed_is_told_even_if_the_log_was_cut_meanwhile(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for _ in range(10):
        broker.put(batch())
    log, segment = broker.log, broker.log.segments[0]
    real: Any = segment.file

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def sync(self) -> None:
            segment.file = real
            log.truncate_to(Offset(8))
            raise OSError(errno.EIO, "the disk lost pages of 0 to 8", real.path)

    failing: Any = Failing()
    segment.file = failing
    with pytest.raises(StorageError, match="fsync"):
        log.flush()
    assert log.failed is not None
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


REFUSED: dict[str, tuple[str, str, Callable[[Log], object]]] = {
    "move the start": (
        "write", "*leader-epoch*", lambda log: log.increment_log_start_offset(Offset(3))
    ),
    "truncate": ("write", "*leader-epoch*", lambda log: log.truncate_to(log.log_end_offset)),
    "transaction index": (
        "read", "*txnindex", lambda log: log.aborted_within_read(Offset(0), Offset(3))
    ),
    "read": ("read", "*", lambda log: log.offset_for_timestamp(NOW)),
    "roll": ("name", "*", lambda log: log.roll()),
    "snapshot": ("write", "*snapshot", lambda log: log.roll()),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_whatever_the_disk_refuses_takes_the_folder_offline(tmp_path: Path, what: str) -> None:
    operation, path, call = REFUSED[what]
    host, faults = StorageHost(), DiskFaults()
    host.disk = RealDisk(faults)  # type: ignore[assignment]
    logs = LogManager(host.host, str(tmp_path), CONFIG)
    logs.load()
    log = logs.create(TP, ID, CONFIG.topic({}))
    log.append_as_leader(in_transaction(), EPOCH)
    log.append_as_leader(ABORT, EPOCH, origin=Origin.COORDINATOR)
    log.append_as_leader(batch(), LeaderEpoch(2))
    log.epochs.assign(LeaderEpoch(5), log.log_end_offset)
    faults.arm(operation, path=path)
    with pytest.raises(StorageError):
        call(log)
    assert log.failed is not None
    assert logs.folders[0].failed is not None
    logs.close(clean=False)


def test_retention_that_the_disk_refuses_takes_the_folder_offline_and_goes_on(
    tmp_path: Path,
) -> None:
    host = StorageHost()
    host.disk = RealDisk()  # type: ignore[assignment]
    logs = LogManager(host.host, str(tmp_path), CONFIG)
    logs.load()
    log = logs.create(TP, ID, CONFIG.topic({"retention.ms": 1_000, "segment.bytes": 300}))
    for _ in range(8):
        log.append_as_leader(batch(60, time=-1), EPOCH)
    Path(log.segments[0].file.path).unlink()
    host.clock.now += 10**9
    assert logs.clean_up() == 0
    assert log.failed is not None
    assert logs.folders[0].failed is not None
    logs.close(clean=False)


def test_a_look_up_under_which_the_log_is_cut_fails_alone(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(batch())
    broker.log.segments[0].file.close()  # as a truncation, on the loop, closes it
    with pytest.raises(Exception, match=r"closed|Bad file") as caught:
        broker.log.offset_for_timestamp(NOW)
    assert not isinstance(caught.value, OSError)
    assert broker.log.failed is None
    broker.stop()
