"""Our loader opens a data folder that Apache Kafka wrote, with the same result as Kafka (B1-B4, B9, F1).

The log end offset, leader epochs, producer states and topic ids are the same. After a clean shutdown nothing is
recovered and no file changes; after a kill, recovery builds the same index files that Kafka had built during appends.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harrow.cluster.config import BrokerConfig
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import LeaderEpochs, Log, LogManager, MetaProperties
from harrow.cluster.storage.checkpoints import OffsetCheckpoint
from harrow.cluster.storage.files import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from harrow.cluster.storage.metadata_files import (
    read_clean_shutdown,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_topic_id,
)
from harrow.cluster.storage.producers.producer_snapshots import decode_snapshot, encode_snapshot
from harrow.harness.commands import cli
from kafka_writes import FIRST_TIME, GOLDEN
from storage_host import StorageHost

SETTINGS: dict[str, Any] = {"log.index.interval.bytes": 300, "log.index.size.max.bytes": 4096, "log.retention.ms": -1}
"""The settings of the topics of the golden files."""
RECOVERED = ("codecs", "k-java", "transactions", "append-time", "compacted")
CLEAN = (*RECOVERED, "__consumer_offsets", "__transaction_state")


def opened(folder: Path) -> tuple[StorageHost, LogManager]:
    host = StorageHost()
    host.clock.now = FIRST_TIME + 10_000
    manager = LogManager(host.host, str(folder), BrokerConfig.parse(SETTINGS))
    manager.load()
    return host, manager


def log_of(manager: LogManager, topic: str) -> Log:
    log = manager.get(TopicPartition(topic, 0))
    assert log is not None, topic
    return log


def files_of(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {
        f"{file.parent.name}/{file.name}": file.read_bytes()
        for file in sorted(folder.glob("*-0/*"))
        if file.suffix in suffixes
    }


def producers_of(log: Log) -> dict[int, tuple[int, ...]]:
    """Returns by id: epoch, last sequence, last offset, timestamp, coordinator epoch, first transaction offset."""
    return {
        entry.producer_id: (
            entry.epoch,
            entry.batches[-1].last_sequence if entry.batches else -1,
            entry.batches[-1].last_offset if entry.batches else -1,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        for entry in log.producers.entries()
    }


def entries_below(offset: int, name: str, data: bytes) -> list[tuple[int, ...]]:
    """Returns the entries of an index file for records below `offset`."""
    form, column = {"index": (">ii", 0), "timeindex": (">qi", 1), "txnindex": (">hqqqq", 3)}[name.rpartition(".")[2]]
    base = 0 if column == 3 else int(Path(name).stem)
    entries = list(struct.iter_unpack(form, data))
    return [entry for entry in entries if base + entry[column] < offset]


def leader_epochs_of(log: Log) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in log.epochs.entries()]


def epochs_in(folder: Path) -> list[tuple[int, int]]:
    lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]


@pytest.fixture
def kafka_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for topic in CLEAN:
        shutil.copytree(GOLDEN / f"{topic}-0", folder / f"{topic}-0")
    for file in GOLDEN.iterdir():
        if file.is_file() and file.suffix not in {".out", ".err"}:
            shutil.copy(file, folder / file.name)
    return folder


def test_opening_a_cleanly_closed_kafka_folder_needs_no_recovery(kafka_folder: Path) -> None:
    ends = OffsetCheckpoint(StorageHost().disk, f"{kafka_folder}/{RECOVERY_POINTS}").read()
    assert set(ends) == {TopicPartition(topic, 0) for topic in CLEAN}
    before = files_of(kafka_folder, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    host, manager = opened(kafka_folder)
    assert manager.read_high_watermarks() == ends, "Kafka's high watermarks are read"
    for topic_partition, end in ends.items():
        log = log_of(manager, topic_partition.topic)
        golden = GOLDEN / str(topic_partition)
        assert log.log_end_offset == end
        # Kafka's loader also drops an epoch without records (`truncateFromEnd` at the log end offset)
        assert leader_epochs_of(log) == [epoch for epoch in epochs_in(golden) if epoch[1] < end]
        assert log.topic_id in (golden / "partition.metadata").read_text()
        newest = max(golden.glob("*.snapshot"))
        producers = {e.producer_id: e for e in decode_snapshot(newest.read_bytes(), newest.name)}
        assert {p: rest[:3] for p, rest in producers_of(log).items()} == {
            p: (
                e.epoch,
                e.batches[-1].last_sequence if e.batches else -1,
                e.batches[-1].last_offset if e.batches else -1,
            )
            for p, e in producers.items()
        }
    assert not [event for event in host.notes.events if event[0] == "log.recovered"]
    manager.close(clean=True)
    after = files_of(kafka_folder, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    gone = {name for name in before if name not in after}
    assert gone == {"transactions-0/00000000000000000049.snapshot"}, (
        "it was written at a stop between segments and is not the newest: Kafka's loader removes it too"
    )
    changed = {name for name in after if after[name] != before.get(name)}
    assert not changed, "a file that Kafka wrote has changed"


def test_opening_the_folder_of_a_killed_kafka_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(GOLDEN / "killed", folder)
    untrimmed = [data for data in files_of(folder, ".index").values() if len(data) == 4096]
    assert untrimmed, "the golden folder must contain index files of their preallocated size"
    _, manager = opened(folder)
    ends = OffsetCheckpoint(StorageHost().disk, str(folder / HIGH_WATERMARKS)).read()
    for topic in ("codecs", "transactions"):
        log = log_of(manager, topic)
        newest = max((GOLDEN / "killed" / f"{topic}-0").glob("*.log"))
        assert log.log_end_offset >= ends[TopicPartition(topic, 0)]
        assert newest.stat().st_size == (folder / f"{topic}-0" / newest.name).stat().st_size
        assert leader_epochs_of(log) == epochs_in(GOLDEN / "killed" / f"{topic}-0")
    manager.close(clean=True)
    for suffix in (".log", ".txnindex"):
        assert files_of(folder, suffix) == files_of(GOLDEN / "killed", suffix)
    indexes = ",".join(str(file) for file in sorted(folder.glob("*-0/*index")))
    for question in ("--verify-index-only", "--index-sanity-check"):
        result = CliRunner().invoke(cli, ["dump-log", question, "--files", indexes])
        assert (result.exit_code, result.stderr) == (0, "")


def test_recovery_builds_the_same_indexes_as_kafka(kafka_folder: Path) -> None:
    """Rebuilds from the logs alone: index entries at the same batches, aborted transactions, producer states.

    Compares up to Kafka's restart, where Kafka started to count the index interval again. Kafka's internal topics are
    left out, because they had another interval.
    """
    suffixes = (".index", ".timeindex", ".txnindex")
    for topic in ("__consumer_offsets", "__transaction_state"):
        shutil.rmtree(kafka_folder / f"{topic}-0")
    kafkas = files_of(kafka_folder, *suffixes)
    for name in kafkas:
        (kafka_folder / name).unlink()
    (kafka_folder / ".kafka_cleanshutdown").unlink()
    (kafka_folder / RECOVERY_POINTS).unlink()
    host, manager = opened(kafka_folder)
    assert len([event for event in host.notes.events if event[0] == "log.recovered"]) == 5
    producers = {topic: producers_of(log_of(manager, topic)) for topic in RECOVERED}
    manager.close(clean=True)
    ours = files_of(kafka_folder, *suffixes)
    assert {name for name, data in ours.items() if data} == {n for n, data in kafkas.items() if data}
    compared = 0
    for name, data in kafkas.items():
        restarted = epochs_in(GOLDEN / name.partition("/")[0])[-1][1]
        expected = entries_below(restarted, name, data)
        assert entries_below(restarted, name, ours.get(name, b"")) == expected, name
        compared += len(expected)
    assert compared > 30
    for topic in RECOVERED:
        newest = max((GOLDEN / f"{topic}-0").glob("*.snapshot"))
        known = {e.producer_id for e in decode_snapshot(newest.read_bytes(), newest.name)}
        assert known <= set(producers[topic]), (
            "Kafka removes producers after a day without records, so it may have fewer"
        )


def test_reading_the_meta_properties_of_a_kraft_folder_returns_its_ids(kafka_folder: Path) -> None:
    """Kafka 4's meta.properties has version 1 (node.id); ours has version 0, as 3.9.1's with ZooKeeper."""
    text = (kafka_folder / "meta.properties").read_text()
    assert "version=1" in text
    read = MetaProperties.read(StorageHost().disk, str(kafka_folder))
    assert read is not None
    assert read.broker_id == 1
    assert f"cluster.id={read.cluster_id}\n" in text


def test_writing_checkpoints_and_metadata_gives_the_bytes_of_kafka(tmp_path: Path) -> None:
    """B2: reading Kafka's files and writing them gives the same bytes, except the order of entries in checkpoints."""
    disk = StorageHost().disk
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS, CLEANER_OFFSETS, LOG_START_OFFSETS):
        OffsetCheckpoint(disk, str(tmp_path / name)).write(OffsetCheckpoint(disk, str(GOLDEN / name)).read())
        kafkas = (GOLDEN / name).read_text().splitlines(keepends=True)
        assert (tmp_path / name).read_text() == "".join(kafkas[:2] + sorted(kafkas[2:]))
    for folder in sorted(GOLDEN.glob("*-0")):
        copy = tmp_path / folder.name
        copy.mkdir()
        epochs = LeaderEpochs(disk, str(copy))
        for epoch, start in epochs_in(folder):
            epochs.assign(LeaderEpoch(epoch), Offset(start))
        epochs.flush()
        write_topic_id(disk, str(copy), read_topic_id(disk, str(folder)))
        for name in (LEADER_EPOCHS, PARTITION_METADATA):
            assert (copy / name).read_bytes() == (folder / name).read_bytes(), name
        for snapshot in folder.glob("*.snapshot"):
            data = snapshot.read_bytes()
            assert encode_snapshot(decode_snapshot(data, snapshot.name)) == data, snapshot.name
    marker = (GOLDEN / CLEAN_SHUTDOWN).read_bytes()
    shutil.copy(GOLDEN / CLEAN_SHUTDOWN, tmp_path)
    clean, epoch = read_clean_shutdown(disk, str(tmp_path))
    assert clean
    remove_clean_shutdown(disk, str(tmp_path))
    write_clean_shutdown(disk, str(tmp_path), epoch)
    assert (tmp_path / CLEAN_SHUTDOWN).read_bytes() == marker


def test_opening_an_empty_checkpoint_of_kafka_is_no_error(tmp_path: Path) -> None:
    """Kafka's `CheckpointFile` creates the file when it opens it; the file is empty until the first write."""
    (tmp_path / LOG_START_OFFSETS).touch()
    assert OffsetCheckpoint(StorageHost().disk, str(tmp_path / LOG_START_OFFSETS)).read() == {}
    (tmp_path / LEADER_EPOCHS).touch()
    assert LeaderEpochs(StorageHost().disk, str(tmp_path)).entries() == []
