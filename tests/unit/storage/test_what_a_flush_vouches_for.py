"""B11: two threads at once, and whatever the disk refuses: nothing is vouched for that is not durable.

Each case was found by an attack.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fragile_broker import (
    ABORT,
    CONFIG,
    EACH,
    EPOCH,
    ID,
    NOW,
    Broker,
    batch,
    in_transaction,
    stored,
)
from harrow.cluster.errors import StorageError
from harrow.cluster.host.knobs.disk_faults import DiskFaults
from harrow.cluster.host.power_loss.roll_back import lose_power
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.storage.results import Origin
from storage_host import TP, StorageHost

pytestmark = pytest.mark.usefixtures("journal_only")


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
    end = broker.log.acknowledgeable_end
    ended.set()
    thread.join()
    assert (end, len(refused)) == (1, 1)
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
