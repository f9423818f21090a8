"""B11: what a policy wants fsynced is not settled before; one fsync serves many appends; a failure stops all."""

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
    """A log manager and what it told."""

    def __init__(self, *folders: Path) -> None:
        self.host = StorageHost()
        self.logs = LogManager(self.host.host, [str(folder) for folder in folders], CONFIG)
        self.logs.load()
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.logs.on_folder_failed.append(
            lambda folder, logs, _: self.told.append(
                (folder.path, [one.topic_partition for one in logs])
            )
        )

    def log(self, number: int = 0, **topic: object) -> Log:
        config = CONFIG.topic({name.replace("_", "."): value for name, value in topic.items()})
        return self.logs.create(tp(number), "", config)

    def loop(self) -> None:
        """One turn of the loop, with all that is spawned in it."""
        self.host.tasks.advance(0)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def test_an_append_is_settled_by_its_fsync_and_many_share_one(broker: Broker) -> None:
    log = broker.log(flush_messages=1)
    ends: list[int] = []
    log.on_fsync_completed = lambda: ends.append(log.acknowledgeable_end)
    for _ in range(10):
        log.append_as_leader(batch(2), EPOCH)
    assert (log.log_end_offset, log.acknowledgeable_end, log.awaits_fsync) == (20, 0, True)
    assert (log.recovery_point, ends) == (0, [])
    broker.loop()
    assert (log.acknowledgeable_end, log.awaits_fsync, log.recovery_point) == (20, False, 20)
    assert ends[-1] == 20
    assert broker.host.disk.syncs.count(log.segments[-1].file.path) == 1
    log.append_as_leader(batch(), EPOCH)
    assert log.acknowledgeable_end == 20


def test_what_is_appended_during_an_fsync_needs_the_next(broker: Broker) -> None:
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

    file.sync = sync  # type: ignore[method-assign] # the disk takes its time
    seen: list[int] = []
    log.on_fsync_completed = lambda: seen.append(log.acknowledgeable_end)
    broker.loop()
    assert seen == [1, 2]


def test_a_policy_of_many_settles_the_others_at_once(broker: Broker) -> None:
    log = broker.log(flush_messages=3)
    log.append_as_leader(batch(2), EPOCH)
    assert log.acknowledgeable_end == 2
    log.append_as_leader(batch(1), EPOCH)
    assert (log.log_end_offset, log.acknowledgeable_end) == (3, 2)
    broker.loop()
    assert (log.acknowledgeable_end, log.recovery_point) == (3, 3)
    log.append_as_leader(batch(2), EPOCH)
    assert (log.acknowledgeable_end, log.recovery_point) == (5, 3)


def test_without_a_policy_nothing_waits_and_time_flushes(broker: Broker) -> None:
    log = broker.log(flush_ms=1_000)
    other = broker.log(1)
    for one in (log, other):
        one.append_as_leader(batch(), EPOCH)
        assert (one.acknowledgeable_end, one.recovery_point) == (1, 0)
    broker.host.clock.now += 999
    broker.logs.flush_overdue()
    assert log.recovery_point == 0
    broker.host.clock.now += 1
    broker.logs.flush_overdue()
    assert (log.recovery_point, other.recovery_point) == (1, 0)


def test_a_truncation_takes_back_what_waits(broker: Broker) -> None:
    log = broker.log(flush_messages=1)
    log.append_as_leader(batch(), EPOCH)
    broker.loop()
    log.append_as_leader(batch(), EPOCH)
    log.truncate_to(Offset(0))
    assert log.acknowledgeable_end == 0
    broker.loop()
    assert (log.awaits_fsync, log.recovery_point, log.log_end_offset) == (False, 0, 0)


def test_a_failed_fsync_moves_no_recovery_point_and_the_folder_is_offline_at_once(
    broker: Broker,
) -> None:
    log, other = broker.log(0, flush_messages=1), broker.log(1)
    woken: list[bool] = []
    log.on_fsync_completed = lambda: woken.append(not log.awaits_fsync)
    log.append_as_leader(batch(), EPOCH)
    broker.host.disk.refuse_syncs = True
    broker.host.tasks.run()
    # the loop has not been told yet: nothing may be appended all the same (KAFKA-10778)
    assert broker.told == []
    for one in (log, other):
        with pytest.raises(KafkaError) as caught:
            one.append_as_leader(batch(), EPOCH)
        assert caught.value.code.name == "kafka_storage_error"
    assert (log.recovery_point, log.acknowledgeable_end) == (0, 0)
    assert woken == [True]
    broker.host.disk.refuse_syncs = False
    broker.logs.flush_overdue()
    assert log.recovery_point == 0
    broker.loop()
    assert broker.told == [(broker.logs.folders[0].path, [tp(0), tp(1)])]
    assert broker.logs.online == []


def test_a_refused_append_takes_its_folder_and_no_other(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    logs = [broker.log(number) for number in range(4)]
    homes = [Path(log.folder).parent.name for log in logs]
    assert homes == ["a", "b", "a", "b"]  # the folder with the fewest
    broker.host.disk.refuse_appends = errno.EIO
    with pytest.raises(StorageError):
        logs[1].append_as_leader(batch(), EPOCH)
    broker.host.disk.refuse_appends = 0
    broker.loop()
    assert broker.told == [(str(tmp_path / "b"), [tp(1), tp(3)])]
    assert [log.failed is None for log in logs] == [True, False, True, False]
    logs[0].append_as_leader(batch(), EPOCH)
    assert Path(broker.log(4).folder).parent.name == "a"
    broker.logs.close(clean=True)
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
