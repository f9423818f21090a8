"""All logs of a data folder: creation, loading, deletion, checkpoints, clean and unclean shutdowns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import StorageError
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.storage.opening.loader import LogLoader
from harrow.cluster.wire.batches import build_batch
from storage_host import TP, StorageHost

EPOCH = LeaderEpoch(1)
ID = "0W2cD9rlRj6jvUdxDTHqxA"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
CONFIG = BrokerConfig.parse({})


def batch(time: int = 1_700_000_000_000) -> bytes:
    return build_batch([(b"k", b"v", ())], timestamp_ms=time)


def manager(folder: Path, host: StorageHost | None = None) -> LogManager:
    made = LogManager((host or StorageHost()).host, str(folder), CONFIG)
    made.load()
    return made


def test_created_log_is_loaded_after_a_clean_shutdown(tmp_path: Path) -> None:
    logs = manager(tmp_path / "data")
    assert (logs.was_clean, logs.get(TP)) == (False, None)
    log = logs.create(TP, ID, CONFIG.topic({"retention.ms": 5}))
    log.append_as_leader(batch(), EPOCH)
    logs.broker_epoch = 77
    logs.close(clean=True)
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert names == [
        ".kafka_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "orders-0",
        "recovery-point-offset-checkpoint",
    ]
    checkpoint = (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text()
    assert checkpoint == "0\n1\norders 0 1\n"
    logs = manager(tmp_path / "data")
    assert (logs.was_clean, logs.previous_broker_epoch) == (True, 77)
    found = logs.get(TP)
    assert found is not None
    assert (found.log_end_offset, found.topic_id) == (1, ID)
    assert logs.create(TP, ID, CONFIG.topic({"retention.ms": 9})) is found
    assert found.config.number("retention.ms") == 9
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(("flush_messages", "durable"), [("1", 2), ("2", 2), ("3", 0)])
def test_what_was_recovered_is_durable_before_it_is_served_where_the_topic_asks_for_it(
    tmp_path: Path, flush_messages: str, durable: int
) -> None:
    crashed = manager(tmp_path / "data").create(TP, ID, CONFIG.topic({}))
    for _ in range(2):
        crashed.append_as_leader(batch(), EPOCH)
    assert crashed.recovery_point == 0
    shutil.copytree(tmp_path / "data", tmp_path / "after the crash")
    config = BrokerConfig.parse({"log.flush.interval.messages": flush_messages})
    logs = LogManager(StorageHost().host, str(tmp_path / "after the crash"), config)
    logs.load()
    recovered = logs.get(TP)
    assert recovered is not None
    assert (recovered.log_end_offset, recovered.recovery_point) == (2, durable)


def test_the_clean_shutdown_marker_is_gone_before_a_log_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = manager(tmp_path)
    logs.create(TP, ID, CONFIG.topic()).append_as_leader(batch(), EPOCH)
    logs.close(clean=True)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    found: list[bool] = []

    def crash(_loader: LogLoader) -> Log:
        found.append((tmp_path / ".kafka_cleanshutdown").exists())
        raise OSError("the broker dies while it loads its logs")

    with monkeypatch.context() as patch:
        patch.setattr(LogLoader, "load", crash)
        with pytest.raises(OSError, match="the broker dies"):
            manager(tmp_path)
    assert found == [False]


def test_load_after_an_unclean_shutdown_recovers_the_log(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.create(TP, ID, CONFIG.topic()).append_as_leader(batch(), EPOCH)
    logs.close(clean=False)
    host = StorageHost()
    logs = manager(tmp_path, host)
    assert not logs.was_clean
    found = logs.get(TP)
    assert found is not None
    assert found.log_end_offset == 1
    assert [event for event, _ in host.notes.events] == ["log.recovered"]


def test_create_with_another_topic_id_is_refused(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.create(TP, ID, CONFIG.topic())
    with pytest.raises(StorageError, match="delete the old replica"):
        logs.create(TP, OTHER_ID, CONFIG.topic())


def test_delete_renames_the_log_folder_and_removes_it_later(tmp_path: Path) -> None:
    host = StorageHost()
    logs = manager(tmp_path, host)
    logs.create(TP, ID, CONFIG.topic())
    logs.delete(TP)
    logs.delete(TP)
    (deleted,) = tmp_path.glob("orders-0.*-delete")
    assert len(deleted.name) == len("orders-0.") + 32 + len("-delete")
    fresh = logs.create(TP, OTHER_ID, CONFIG.topic())
    assert fresh.log_end_offset == 0
    host.tasks.advance(60_000)
    assert not deleted.exists()
    assert fresh.append_as_leader(batch(), EPOCH).first_offset == 0


def test_load_removes_a_log_folder_whose_deletion_was_interrupted(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.create(TP, ID, CONFIG.topic())
    logs.delete(TP)
    logs.close(clean=True)
    host = StorageHost()
    logs = manager(tmp_path, host)
    assert "recovery.before-deleted-folder" in host.notes.hits
    assert list(logs.logs()) == []
    assert list(tmp_path.glob("*-delete")) == []


def test_high_watermarks_are_read_back_and_a_malformed_file_is_ignored(tmp_path: Path) -> None:
    host = StorageHost()
    logs = manager(tmp_path, host)
    assert logs.read_high_watermarks() == {}
    logs.write_high_watermarks({TP: Offset(12), TopicPartition("a-b", 3): Offset(0)})
    assert logs.read_high_watermarks() == {TP: 12, TopicPartition("a-b", 3): 0}
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text("0\n1\norders 0\n")
    assert logs.read_high_watermarks() == {}
    assert "replication-offset-checkpoint:3" in host.notes.lines[-1]


def test_checkpoint_keeps_a_raised_log_start_offset(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = logs.create(TP, ID, CONFIG.topic())
    for _ in range(5):
        log.append_as_leader(batch(), EPOCH)
    log.increment_log_start_offset(Offset(3))
    logs.checkpoint_recovery_points()
    logs.close(clean=False)
    found = manager(tmp_path).get(TP)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (3, 5)


def test_close_with_a_failed_log_writes_no_clean_shutdown_marker(tmp_path: Path) -> None:
    host = StorageHost()
    logs = manager(tmp_path, host)
    log = logs.create(TP, ID, CONFIG.topic())
    host.disk.refuse_appends = 28
    with pytest.raises(StorageError):
        log.append_as_leader(batch(), EPOCH)
    logs.close(clean=True)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_clean_up_deletes_expired_segments_of_every_log(tmp_path: Path) -> None:
    host = StorageHost()
    logs = manager(tmp_path, host)
    log = logs.create(TP, ID, CONFIG.topic({"retention.ms": 1_000}))
    log.append_as_leader(batch(time=1_000), EPOCH)
    assert logs.clean_up() == 1
    assert log.log_start_offset == log.log_end_offset == 1


def test_clean_up_removes_producers_by_the_expiration_that_the_broker_has_now(tmp_path: Path) -> None:
    host = StorageHost()
    config = BrokerConfig.parse({})
    logs = LogManager(host.host, str(tmp_path), config)
    logs.load()
    log = logs.create(TP, ID, config.topic())
    data = build_batch(
        [(b"k", b"v", ())], timestamp_ms=host.clock.now, producer_id=7, producer_epoch=0, base_sequence=0
    )
    log.append_as_leader(data, EPOCH)
    host.clock.now += 1_000
    logs.clean_up()
    assert [entry.producer_id for entry in log.producers.entries()] == [7]
    config.dynamic["producer.id.expiration.ms"] = 1_000
    logs.clean_up()
    assert not list(log.producers.entries())


def test_flush_overdue_flushes_after_flush_ms(tmp_path: Path) -> None:
    host = StorageHost()
    logs = manager(tmp_path, host)
    log = logs.create(TP, ID, CONFIG.topic({"flush.ms": 500}))
    log.append_as_leader(batch(), EPOCH)
    logs.flush_overdue()
    assert log.recovery_point == 0
    host.clock.now += 500
    logs.flush_overdue()
    assert log.recovery_point == 1
