"""B11: a flush is reported only for data that is durable, with two threads at once and with refused system calls.

Each case reproduces a defect that was found by attacking the log.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fragile_broker import ABORT, CONFIG, EACH, EPOCH, ID, NOW, Broker, batch, in_transaction, stored
from harrow.cluster.errors import KafkaError, StorageError
from harrow.cluster.host.knobs.disk_faults import DiskFaults
from harrow.cluster.host.power_loss.roll_back import lose_power
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.storage.results import Origin
from storage_host import TP, StorageHost

pytestmark = pytest.mark.usefixtures("journal_only")


class WatchedMutex:
    """A mutex that sets `blocked` when a thread has to wait for it."""

    def __init__(self, blocked: threading.Event) -> None:
        self._lock, self._blocked = threading.Lock(), blocked

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._blocked.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("held_in", ["write", "rename"])
def test_truncate_while_a_thread_writes_the_checkpoint_leaves_no_stale_recovery_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_in: str
) -> None:
    """The event loop truncates while the thread writes the temporary file, or between that write and the rename."""
    begun, truncated_or_blocked = threading.Event(), threading.Event()
    host = StorageHost()
    host.disk = disk = RealDisk()  # type: ignore[assignment]
    monkeypatch.setattr(host.tasks, "mutex", lambda: WatchedMutex(truncated_or_blocked))
    logs = LogManager(host.host, str(tmp_path), CONFIG)
    logs.load()
    log = logs.create(TP, "", CONFIG.topic({}))
    for _ in range(10):
        log.append_as_leader(batch(), EPOCH)
    log.flush()
    replace, rename = disk.replace, os.replace

    def hold(path: str) -> None:
        if path.endswith("recovery-point-offset-checkpoint") and not begun.is_set():
            begun.set()
            assert truncated_or_blocked.wait(30)

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
    truncated_or_blocked.set()
    thread.join()
    assert logs.folders[0].failed is None
    rows = (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    assert rows == ["orders 0 0"], "the checkpoint does not name truncated offsets as durable"
    logs.close(clean=False)


def test_flush_during_another_flush_syncs_the_file_names_itself(tmp_path: Path) -> None:
    """An append's flush during a flush by flush.ms must not rely on an fsync that the other flush only began."""
    broker = Broker(tmp_path, EACH)
    broker.log.append_as_leader(batch(), EPOCH)
    real, held = broker.disk.sync_file, threading.Event()
    reached, ended = threading.Event(), threading.Event()

    def sync_file(path: str) -> None:
        if path.endswith("partition.metadata") and not held.is_set():
            held.set()
            reached.set()
            assert ended.wait(30)
            raise OSError(errno.EIO, "the power is lost before this fsync ends", path)
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
    broker.host.tasks.run()  # runs the second flush to its end
    end = broker.log.acknowledgeable_end
    ended.set()
    thread.join()
    assert (end, len(refused)) == (1, 1)
    log = broker.lose_power()
    assert stored(log) == [(0, 1)]
    assert log.epochs.entries() == [(1, 0)]
    assert log.topic_id == ID
    broker.stop()


def test_epoch_assigned_during_a_flush_is_made_durable_by_the_next_flush(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(batch())
    broker.log.flush()
    real = broker.disk.replace
    during: list[str] = []

    def replace(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith("leader-epoch-checkpoint") and not during:
            during.append(path)
            broker.log.epochs.flush()  # as a flush on its thread does at this instant
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


def test_failed_fsync_during_a_truncation_is_reported(tmp_path: Path) -> None:
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


REFUSED_CALLS: dict[str, tuple[str, str, Callable[[Log], object]]] = {
    "move the start": ("write", "*leader-epoch*", lambda log: log.increment_log_start_offset(Offset(3))),
    "truncate": ("write", "*leader-epoch*", lambda log: log.truncate_to(log.log_end_offset)),
    "transaction index": ("read", "*txnindex", lambda log: log.aborted_within_read(Offset(0), Offset(0), Offset(3))),
    "read": ("read", "*", lambda log: log.offset_for_timestamp(NOW)),
    "roll": ("rename", "*", lambda log: log.roll()),
    "snapshot": ("write", "*snapshot", lambda log: log.roll()),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused_system_call_takes_the_data_folder_offline(tmp_path: Path, name: str) -> None:
    operation, path, call = REFUSED_CALLS[name]
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


def test_retention_with_a_refused_deletion_takes_the_folder_offline_and_continues(tmp_path: Path) -> None:
    host = StorageHost()
    host.disk = RealDisk()  # type: ignore[assignment]
    logs = LogManager(host.host, str(tmp_path), CONFIG)
    logs.load()
    log = logs.create(TP, ID, CONFIG.topic({"retention.ms": 1_000, "internal.segment.bytes": 300}))
    for _ in range(8):
        log.append_as_leader(batch(60, time=-1), EPOCH)
    Path(log.segments[0].file.path).unlink()
    host.clock.now += 10**9
    assert logs.clean_up() == 0
    assert log.failed is not None
    assert logs.folders[0].failed is not None
    logs.close(clean=False)


def test_timestamp_lookup_during_a_truncation_fails_without_taking_the_log_offline(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(batch())
    broker.log.segments[0].file.close()  # as a truncation on the event loop closes it
    with pytest.raises(KafkaError, match=r"closed|Bad file"):
        broker.log.offset_for_timestamp(NOW)
    assert broker.log.failed is None
    broker.stop()
