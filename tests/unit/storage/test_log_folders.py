"""B13: several data folders: the broker and cluster they belong to, the logs they hold, and failed folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ConfigError, StorageError
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import LogManager, MetaProperties
from harrow.cluster.storage.log_folder import log_folders
from harrow.cluster.wire.batches import build_batch
from storage_host import StorageHost

EPOCH = LeaderEpoch(1)
CONFIG = BrokerConfig.parse({})
ID = "0W2cD9rlRj6jvUdxDTHqxA"


def tp(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def manager(*folders: Path, host: StorageHost | None = None) -> LogManager:
    made = LogManager((host or StorageHost()).host, [str(folder) for folder in folders], CONFIG)
    made.load()
    return made


def append(logs: LogManager, number: int, count: int = 1) -> None:
    log = logs.create(tp(number), ID, CONFIG.topic())
    for _ in range(count):
        data = build_batch([(b"k", b"v", ())], timestamp_ms=1_700_000_000_000)
        log.append_as_leader(data, EPOCH)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ["/b/data"]), ("data, data2", ["/b/data", "/b/data2"]), ("/disk1/x/,y", ["/disk1/x", "/b/y"])],
)
def test_log_dirs_is_parsed_as_kafka_parses_it(text: str, expected: list[str]) -> None:
    assert log_folders(BrokerConfig.parse({"log.dirs": text}), "/b") == expected


def test_log_dirs_with_a_repeated_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        log_folders(BrokerConfig.parse({"log.dirs": "a,a/"}), "/b")


def test_restart_finds_the_logs_and_checkpoints_of_each_folder(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    logs = manager(*folders)
    for number in range(5):
        append(logs, number, number)
    marks = {tp(number): Offset(number) for number in range(5)}
    logs.write_high_watermarks(marks)
    logs.close(clean=True)
    found = [sorted(path.name for path in folder.iterdir() if path.is_dir()) for folder in folders]
    assert found == [["orders-0", "orders-3"], ["orders-1", "orders-4"], ["orders-2"]]
    for folder in folders:
        assert (folder / ".kafka_cleanshutdown").exists()
        assert (folder / "recovery-point-offset-checkpoint").exists()
    text = (folders[1] / "replication-offset-checkpoint").read_text()
    assert text == "0\n2\norders 1 1\norders 4 4\n"
    logs = manager(*folders)
    assert logs.was_clean
    assert {log.topic_partition: log.log_end_offset for log in logs.logs()} == marks
    assert logs.read_high_watermarks() == marks


def test_start_recovers_only_the_unclean_folder(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    logs = manager(*folders)
    append(logs, 0, 3)
    append(logs, 1, 3)
    logs.close(clean=True)
    (folders[1] / ".kafka_cleanshutdown").unlink()
    (folders[1] / "recovery-point-offset-checkpoint").unlink()
    host = StorageHost()
    logs = manager(*folders, host=host)
    assert not logs.was_clean
    recovered = [fields["partition"] for event, fields in host.notes.events if event == "log.recovered"]
    assert recovered == [1]
    assert [log.log_end_offset for log in logs.logs()] == [3, 3]


def test_start_with_a_partition_in_two_folders_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        logs = manager(tmp_path / name)
        append(logs, 0)
        logs.close(clean=True)
    with pytest.raises(StorageError, match="lies in"):
        manager(tmp_path / "a", tmp_path / "b")


def test_start_with_an_unreadable_folder_serves_the_other_folders(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    logs = manager(*folders)
    append(logs, 0, 2)
    append(logs, 1, 2)
    logs.close(clean=True)
    (folders[1]).rename(tmp_path / "gone")
    folders[1].write_text("a file instead of a folder")
    host = StorageHost()
    logs = manager(*folders, host=host)
    failures: list[str] = []
    logs.on_folder_failed.append(lambda folder, _logs, _error: failures.append(folder.path))
    host.tasks.advance(0)
    assert failures == [str(folders[1])]
    assert logs.get(tp(0)) is not None
    # The partition may lie in the offline folder: a new empty log in the other folder would lose its records.
    with pytest.raises(StorageError, match="offline"):
        logs.create(tp(1), ID, CONFIG.topic(), is_new=False)
    assert Path(logs.create(tp(2), ID, CONFIG.topic(), is_new=True).folder).parent == folders[0]


def test_start_without_a_usable_folder_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("")
    with pytest.raises(StorageError, match="no data folder"):
        manager(tmp_path / "a", tmp_path / "b")


def test_start_with_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    first = manager(tmp_path / "a")
    with pytest.raises(StorageError, match="in use"):
        manager(tmp_path / "a")
    first.close(clean=False)
    manager(tmp_path / "a").close(clean=True)


def test_claim_by_another_broker_or_cluster_is_refused(tmp_path: Path) -> None:
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.claim("cluster-1", 3)
    logs.close(clean=True)
    found = [MetaProperties.read(StorageHost().disk, str(tmp_path / name)) for name in "ab"]
    assert [(properties.cluster_id, properties.broker_id) for properties in found if properties] == [
        ("cluster-1", 3)
    ] * 2
    ids = {properties.directory_id for properties in found if properties}
    assert len(ids) == 2
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.claim("cluster-1", 3)
    for wrong in (("cluster-2", 3), ("cluster-1", 4)):
        with pytest.raises(StorageError, match="belongs to"):
            logs.claim(*wrong)
    again = MetaProperties.read(StorageHost().disk, str(tmp_path / "a"))
    assert again is not None
    assert again.directory_id in ids


def test_torn_partition_metadata_after_an_unclean_shutdown_loses_no_record(tmp_path: Path) -> None:
    logs = manager(tmp_path / "a")
    append(logs, 0, 2)
    logs.close(clean=False)
    (tmp_path / "a" / "orders-0" / "partition.metadata").write_bytes(bytes(30))
    logs = manager(tmp_path / "a")
    found = logs.get(tp(0))
    assert found is not None
    assert (found.topic_id, found.log_end_offset) == ("", 2)
    assert logs.create(tp(0), ID, CONFIG.topic()).topic_id == ID


def test_a_new_log_lies_in_the_preferred_folder(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    logs = manager(*folders)
    first, second = logs.folders
    assert logs.folder_at(f"{folders[1]}/") is second
    assert logs.folder_at(str(tmp_path)) is None
    for number in range(3):
        logs.prefer(tp(number), second)
        append(logs, number)
    assert (len(first.logs), len(second.logs)) == (0, 3)
    logs.prefer(tp(7), second)
    second.failed = StorageError("the disk failed")
    append(logs, 7)
    assert list(first.logs) == [tp(7)], "a folder that is offline is not preferred"
    logs.close(clean=False)
