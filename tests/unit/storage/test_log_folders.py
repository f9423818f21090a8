"""B13: several data folders: whose they are, what lies where, what a broken one takes with it."""

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
    [
        ("", ["/b/data"]),
        ("data, data2", ["/b/data", "/b/data2"]),
        ("/disk1/x/,y", ["/disk1/x", "/b/y"]),
    ],
)
def test_folders_are_named_as_kafka_names_them(text: str, expected: list[str]) -> None:
    assert log_folders(BrokerConfig.parse({"log.dirs": text}), "/b") == expected


def test_a_folder_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        log_folders(BrokerConfig.parse({"log.dirs": "a,a/"}), "/b")


def test_each_folder_has_its_own_files_and_finds_its_own_logs_again(tmp_path: Path) -> None:
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


def test_one_unclean_folder_is_recovered_alone(tmp_path: Path) -> None:
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
    recovered = [
        fields["partition"] for event, fields in host.notes.events if event == "log.recovered"
    ]
    assert recovered == [1]
    assert [log.log_end_offset for log in logs.logs()] == [3, 3]


def test_a_partition_in_two_folders_is_nobodys_guess(tmp_path: Path) -> None:
    for name in "ab":
        logs = manager(tmp_path / name)
        append(logs, 0)
        logs.close(clean=True)
    with pytest.raises(StorageError, match="lies in"):
        manager(tmp_path / "a", tmp_path / "b")


def test_a_folder_that_cannot_be_read_is_offline_and_the_others_serve(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    logs = manager(*folders)
    append(logs, 0, 2)
    append(logs, 1, 2)
    logs.close(clean=True)
    (folders[1]).rename(tmp_path / "gone")
    folders[1].write_text("no folder any more")
    host = StorageHost()
    logs = manager(*folders, host=host)
    told: list[str] = []
    logs.on_folder_failed.append(lambda folder, _logs, _error: told.append(folder.path))
    host.tasks.advance(0)
    assert told == [str(folders[1])]
    assert logs.get(tp(0)) is not None
    # it may lie in the folder that is offline: an empty one in its place would be a loss
    with pytest.raises(StorageError, match="offline"):
        logs.create(tp(1), ID, CONFIG.topic(), is_new=False)
    assert Path(logs.create(tp(2), ID, CONFIG.topic(), is_new=True).folder).parent == folders[0]


def test_no_folder_at_all_ends_the_start(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("")
    with pytest.raises(StorageError, match="no data folder"):
        manager(tmp_path / "a", tmp_path / "b")


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    first = manager(tmp_path / "a")
    with pytest.raises(StorageError, match="in use"):
        manager(tmp_path / "a")
    first.close(clean=False)
    manager(tmp_path / "a").close(clean=True)


def test_a_folder_belongs_to_one_broker_of_one_cluster(tmp_path: Path) -> None:
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.claim("cluster-1", 3)
    logs.close(clean=True)
    found = [MetaProperties.read(StorageHost().disk, str(tmp_path / name)) for name in "ab"]
    assert [(one.cluster_id, one.broker_id) for one in found if one] == [("cluster-1", 3)] * 2
    ids = {one.directory_id for one in found if one}
    assert len(ids) == 2
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.claim("cluster-1", 3)
    for wrong in (("cluster-2", 3), ("cluster-1", 4)):
        with pytest.raises(StorageError, match="belongs to"):
            logs.claim(*wrong)
    again = MetaProperties.read(StorageHost().disk, str(tmp_path / "a"))
    assert again is not None
    assert again.directory_id in ids


def test_a_torn_partition_metadata_after_an_unclean_stop_costs_nothing(tmp_path: Path) -> None:
    logs = manager(tmp_path / "a")
    append(logs, 0, 2)
    logs.close(clean=False)
    (tmp_path / "a" / "orders-0" / "partition.metadata").write_bytes(bytes(30))
    logs = manager(tmp_path / "a")
    found = logs.get(tp(0))
    assert found is not None
    assert (found.topic_id, found.log_end_offset) == ("", 2)
    assert logs.create(tp(0), ID, CONFIG.topic()).topic_id == ID
