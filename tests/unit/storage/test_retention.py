"""Retention (B7): by time, size and log start offset; its limits; the deletion of the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harrow.cluster.errors import StorageError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log
from harrow.cluster.storage.retention import clean_up
from harrow.cluster.wire.batches import build_batch
from storage_host import StorageHost

EPOCH = LeaderEpoch(3)
NOW = 1_700_000_000_000
SIZE = len(build_batch([(b"k", b"v" * 10, ())], timestamp_ms=NOW))


def filled(host: StorageHost, folder: Path, topic: dict[str, object], time: int = NOW) -> Log:
    """A log of five segments with two batches each, one second between batches."""
    log = host.open(str(folder / "orders-0"), {"internal.segment.bytes": 2 * SIZE, **topic})
    for number in range(10):
        at = time + number * 1_000 if time >= 0 else time
        log.append_as_leader(build_batch([(b"k", b"v" * 10, ())], timestamp_ms=at), EPOCH)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_retention_without_timestamps_uses_the_files_modification_time(tmp_path: Path, host: StorageHost) -> None:
    log = filled(host, tmp_path, {"retention.ms": 4_000}, time=-1)
    assert len(log.segments) == 5
    for number, segment in enumerate(log.segments):
        changed = (NOW + number * 1_000) / 1_000
        os.utime(segment.path_of(".log"), (changed, changed))
    host.clock.now = NOW + 5_500
    assert clean_up(host.host, log) == 2
    assert bases(log) == [4, 6, 8]


def test_retention_stops_at_the_first_segment_that_stays(tmp_path: Path, host: StorageHost) -> None:
    """A young segment keeps older segments behind it: retention deletes only from the front of a log."""
    log = filled(host, tmp_path, {"retention.ms": 1_000})
    log.segments[1].max_timestamp = NOW + 10**9
    host.clock.now = NOW + 10**6
    assert clean_up(host.host, log) == 1
    assert bases(log) == [2, 4, 6, 8]


def test_retention_rolls_the_active_segment_before_deleting_it(tmp_path: Path, host: StorageHost) -> None:
    log = filled(host, tmp_path, {"retention.ms": 0})
    host.clock.now = NOW + 10**6
    assert clean_up(host.host, log) == 5
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([10], 10, 10)
    assert clean_up(host.host, log) == 0, "an empty active segment stays"
    log.close()
    again = host.open(log.folder, {"internal.segment.bytes": 2 * SIZE})
    assert (again.log_start_offset, again.log_end_offset) == (10, 10)


@pytest.mark.parametrize(("keep", "left"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 3), (10, 5), (11, 5), (-1, 5)])
def test_retention_by_size_keeps_at_least_retention_bytes(
    tmp_path: Path, host: StorageHost, keep: int, left: int
) -> None:
    topic: dict[str, object] = {"retention.ms": -1, "retention.bytes": keep * SIZE if keep >= 0 else -1}
    log = filled(host, tmp_path, topic)
    clean_up(host.host, log)
    assert len([segment for segment in log.segments if segment.size]) == left
    assert log.size >= min(max(keep, 0), 10) * SIZE


def test_retention_by_log_start_deletes_whole_segments_except_the_active_one(tmp_path: Path, host: StorageHost) -> None:
    log = filled(host, tmp_path, {"retention.ms": -1})
    log.increment_log_start_offset(Offset(5))
    assert clean_up(host.host, log) == 2
    assert (bases(log), log.log_start_offset) == ([4, 6, 8], 5)
    log.increment_log_start_offset(Offset(10))
    assert clean_up(host.host, log) == 2
    assert bases(log) == [8]


def test_retention_of_a_compacted_topic_deletes_only_below_the_log_start(tmp_path: Path, host: StorageHost) -> None:
    topic: dict[str, object] = {"cleanup.policy": "compact", "retention.ms": 0, "retention.bytes": 0}
    log = filled(host, tmp_path, topic)
    host.clock.now = NOW + 10**9
    assert clean_up(host.host, log) == 0
    log.increment_log_start_offset(Offset(4))
    assert clean_up(host.host, log) == 2


@pytest.mark.parametrize("high_watermark", [0, 1, 2, 5, 9, 10])
def test_retention_deletes_nothing_above_the_high_watermark(
    tmp_path: Path, host: StorageHost, high_watermark: int
) -> None:
    log = filled(host, tmp_path, {"retention.ms": 0, "retention.bytes": 0})
    host.clock.now = NOW + 10**6
    log.high_watermark = lambda: Offset(high_watermark)
    clean_up(host.host, log)
    assert log.log_start_offset == high_watermark - high_watermark % 2
    assert log.log_end_offset == 10


def test_retention_renames_every_file_and_removes_it_after_the_delay(tmp_path: Path, host: StorageHost) -> None:
    log = filled(host, tmp_path, {"retention.bytes": 8 * SIZE, "file.delete.delay.ms": 5_000})
    reader = log.segments[0].file
    assert clean_up(host.host, log) == 1
    names = sorted(path.name for path in Path(log.folder).glob("*.deleted"))
    assert names == [f"{0:020d}.{kind}.deleted" for kind in ("index", "log", "timeindex")]
    assert len(reader.read_at(0, 10)) == 10, "an open reader continues"
    host.tasks.advance(4_999)
    assert sorted(path.name for path in Path(log.folder).glob("*.deleted")) == names
    host.tasks.advance(1)
    assert not list(Path(log.folder).glob("*.deleted"))


def test_restart_removes_files_that_await_deletion(tmp_path: Path, host: StorageHost) -> None:
    log = filled(host, tmp_path, {"retention.bytes": 4 * SIZE})
    assert clean_up(host.host, log) == 3
    log.abandon()
    again = host.open(log.folder, {"internal.segment.bytes": 2 * SIZE}, clean=False)
    assert bases(again) == [6, 8]
    assert not list(Path(log.folder).glob("*.deleted"))


def test_retention_with_a_refused_rename_takes_the_log_offline(
    tmp_path: Path, host: StorageHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(host, tmp_path, {"retention.bytes": 0})

    def refuse(_disk: object, source: str, _target: str) -> None:
        raise OSError(5, "refused by the test", source)

    monkeypatch.setattr(type(host.disk), "rename", refuse)
    with pytest.raises(StorageError, match="delete segments"):
        clean_up(host.host, log)
    assert log.failed is not None
