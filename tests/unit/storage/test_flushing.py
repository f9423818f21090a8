"""B11: an append is acknowledgeable only after the fsync that its policy requires.

One fsync serves many appends; after a failed fsync the whole data folder is offline.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import KafkaError, StorageError
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.wire.batches import build_batch
from storage_host import StorageHost

EPOCH = LeaderEpoch(1)
CONFIG = BrokerConfig.parse({})


def tp(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def batch(records: int = 1) -> bytes:
    return build_batch([(b"k", b"v", ())] * records, timestamp_ms=1_700_000_000_000)


class Broker:
    """A log manager and the data folders that it reported as failed."""

    def __init__(self, *folders: Path) -> None:
        self.host = StorageHost()
        self.logs = LogManager(self.host.host, [str(folder) for folder in folders], CONFIG)
        self.logs.load()
        self.failures: list[tuple[str, list[TopicPartition]]] = []
        self.logs.on_folder_failed.append(
            lambda folder, logs, _: self.failures.append((folder.path, [log.topic_partition for log in logs]))
        )

    def log(self, number: int = 0, **topic: object) -> Log:
        config = CONFIG.topic({name.replace("_", "."): value for name, value in topic.items()})
        return self.logs.create(tp(number), "", config)

    def run_loop(self) -> None:
        """Run one turn of the event loop, with all tasks that it spawns."""
        self.host.tasks.advance(0)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def test_fsync_makes_all_earlier_appends_acknowledgeable(broker: Broker) -> None:
    log = broker.log(flush_messages=1)
    ends: list[int] = []
    log.on_fsync_completed = lambda: ends.append(log.acknowledgeable_end)
    for _ in range(10):
        log.append_as_leader(batch(2), EPOCH)
    assert (log.log_end_offset, log.acknowledgeable_end, log.awaits_fsync) == (20, 0, True)
    assert (log.recovery_point, ends) == (0, [])
    broker.run_loop()
    assert (log.acknowledgeable_end, log.awaits_fsync, log.recovery_point) == (20, False, 20)
    assert ends[-1] == 20
    assert broker.host.disk.syncs.count(log.segments[-1].file.path) == 1
    log.append_as_leader(batch(), EPOCH)
    assert log.acknowledgeable_end == 20


def test_append_during_an_fsync_waits_for_the_next_fsync(broker: Broker) -> None:
    log = broker.log(flush_messages=1)
    log.append_as_leader(batch(), EPOCH)
    file = log.segments[-1].file
    real, during = file.sync, [1]

    def sync() -> None:
        real()
        while during:
            during.pop()
            log.append_as_leader(batch(), EPOCH)
            assert log.acknowledgeable_end == 0

    file.sync = sync  # type: ignore[method-assign] # appends while the fsync runs
    seen: list[int] = []
    log.on_fsync_completed = lambda: seen.append(log.acknowledgeable_end)
    broker.run_loop()
    assert seen == [1, 2]


def test_append_between_required_flushes_is_acknowledgeable_at_once(broker: Broker) -> None:
    log = broker.log(flush_messages=3)
    log.append_as_leader(batch(2), EPOCH)
    assert log.acknowledgeable_end == 2
    log.append_as_leader(batch(1), EPOCH)
    assert (log.log_end_offset, log.acknowledgeable_end) == (3, 2)
    broker.run_loop()
    assert (log.acknowledgeable_end, log.recovery_point) == (3, 3)
    log.append_as_leader(batch(2), EPOCH)
    assert (log.acknowledgeable_end, log.recovery_point) == (5, 3)


def test_append_without_flush_messages_waits_for_no_fsync(broker: Broker) -> None:
    log = broker.log(flush_ms=1_000)
    other = broker.log(1)
    for appended in (log, other):
        appended.append_as_leader(batch(), EPOCH)
        assert (appended.acknowledgeable_end, appended.recovery_point) == (1, 0)
    broker.host.clock.now += 999
    broker.logs.flush_overdue()
    assert log.recovery_point == 0
    broker.host.clock.now += 1
    broker.logs.flush_overdue()
    assert (log.recovery_point, other.recovery_point) == (1, 0)


def test_truncate_below_a_waiting_append_lowers_the_acknowledgeable_end(broker: Broker) -> None:
    log = broker.log(flush_messages=1)
    log.append_as_leader(batch(), EPOCH)
    broker.run_loop()
    log.append_as_leader(batch(), EPOCH)
    log.truncate_to(Offset(0))
    assert log.acknowledgeable_end == 0
    broker.run_loop()
    assert (log.awaits_fsync, log.recovery_point, log.log_end_offset) == (False, 0, 0)


def test_failed_fsync_keeps_the_recovery_point_and_takes_the_folder_offline_at_once(broker: Broker) -> None:
    log, other = broker.log(0, flush_messages=1), broker.log(1)
    woken: list[bool] = []
    log.on_fsync_completed = lambda: woken.append(not log.awaits_fsync)
    log.append_as_leader(batch(), EPOCH)
    broker.host.disk.refuse_syncs = True
    broker.host.tasks.run()
    # The event loop has not processed the failure yet; appends are refused nevertheless (KAFKA-10778).
    assert broker.failures == []
    for refused_log in (log, other):
        with pytest.raises(KafkaError) as caught:
            refused_log.append_as_leader(batch(), EPOCH)
        assert caught.value.code.name == "kafka_storage_error"
    assert (log.recovery_point, log.acknowledgeable_end) == (0, 0)
    assert woken == [True]
    broker.host.disk.refuse_syncs = False
    broker.logs.flush_overdue()
    assert log.recovery_point == 0
    broker.run_loop()
    assert broker.failures == [(broker.logs.folders[0].path, [tp(0), tp(1)])]
    assert broker.logs.online == []


def test_refused_append_takes_only_its_own_folder_offline(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    logs = [broker.log(number) for number in range(4)]
    homes = [Path(log.folder).parent.name for log in logs]
    assert homes == ["a", "b", "a", "b"]  # each new log goes to the folder with the fewest logs
    broker.host.disk.refuse_appends = errno.EIO
    with pytest.raises(StorageError):
        logs[1].append_as_leader(batch(), EPOCH)
    broker.host.disk.refuse_appends = 0
    broker.run_loop()
    assert broker.failures == [(str(tmp_path / "b"), [tp(1), tp(3)])]
    assert [log.failed is None for log in logs] == [True, False, True, False]
    logs[0].append_as_leader(batch(), EPOCH)
    assert Path(broker.log(4).folder).parent.name == "a"
    broker.logs.close(clean=True)
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
