"""The leader epoch cache, checkpoint files and the small files of a data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import CorruptLogError
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import LeaderEpochs, MetaProperties
from harrow.cluster.storage.checkpoints import OffsetCheckpoint
from harrow.cluster.storage.metadata_files import (
    read_clean_shutdown,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_topic_id,
)
from storage_host import TP


def cache(folder: Path, *pairs: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(RealDisk(), str(folder))
    for epoch, start in pairs:
        epochs.assign(LeaderEpoch(epoch), Offset(start))
    return epochs


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-(2**31), (-(2**31), 0)),
        (-2, (-2, 0)),
        (-1, (-1, -1)),
        (0, (0, 0)),
        (1, (1, 10)),
        (2, (1, 10)),
        (3, (3, 25)),
        (4, (3, 25)),
        (7, (7, 40)),
        (8, (-1, -1)),
        (9, (-1, -1)),
    ],
)
def test_end_offset_for_returns_kafkas_pair(tmp_path: Path, epoch: int, expected: tuple[int, int]) -> None:
    epochs = cache(tmp_path, (1, 0), (3, 10), (7, 25))
    assert epochs.end_offset_for(LeaderEpoch(epoch), Offset(40)) == expected


def test_end_offset_for_an_epoch_before_the_first_returns_the_first_start(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (5, 100))
    assert epochs.end_offset_for(LeaderEpoch(2), Offset(200)) == (2, 100)


def test_empty_cache_returns_no_epoch(tmp_path: Path) -> None:
    epochs = cache(tmp_path)
    assert epochs.latest() == -1
    assert epochs.end_offset_for(LeaderEpoch(0), Offset(9)) == (-1, -1)
    assert epochs.entries() == []


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ([(1, 0), (1, 5)], [(1, 0)]),  # a later batch of the same leader
        ([(1, 5), (1, 2)], [(1, 2)]),  # the same leader, but earlier
        ([(1, 0), (2, 0)], [(2, 0)]),  # the first leader wrote nothing
        ([(1, 0), (2, 10), (3, 5)], [(1, 0), (3, 5)]),  # a newer leader overwrites
        ([(1, 0), (3, 10), (2, 20)], [(1, 0), (2, 20)]),  # epochs stay monotonic
        ([(1, 0), (5, 10), (4, 10)], [(1, 0), (4, 10)]),
    ],
)
def test_assign_keeps_epochs_and_start_offsets_monotonic(
    tmp_path: Path, assigned: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    epochs = cache(tmp_path, *assigned)
    assert epochs.entries() == expected
    assert LeaderEpochs(RealDisk(), str(tmp_path)).entries() == expected


@pytest.mark.parametrize(
    ("end", "expected"), [(0, []), (10, [(1, 0)]), (11, [(1, 0), (3, 10)]), (99, [(1, 0), (3, 10), (7, 25)])]
)
def test_truncate_from_end_removes_epochs_at_and_above_the_offset(
    tmp_path: Path, end: int, expected: list[tuple[int, int]]
) -> None:
    epochs = cache(tmp_path, (1, 0), (3, 10), (7, 25))
    epochs.truncate_from_end(Offset(end))
    assert epochs.entries() == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, [(1, 0), (3, 10), (7, 25)]),
        (9, [(1, 9), (3, 10), (7, 25)]),
        (10, [(3, 10), (7, 25)]),
        (12, [(3, 12), (7, 25)]),
        (99, [(7, 99)]),
    ],
)
def test_truncate_from_start_raises_the_start_of_the_first_epoch(
    tmp_path: Path, start: int, expected: list[tuple[int, int]]
) -> None:
    epochs = cache(tmp_path, (1, 0), (3, 10), (7, 25))
    epochs.truncate_from_start(Offset(start))
    assert epochs.entries() == expected
    assert LeaderEpochs(RealDisk(), str(tmp_path)).entries() == expected


def test_epoch_checkpoint_has_kafkas_format(tmp_path: Path) -> None:
    cache(tmp_path, (1, 0), (3, 10))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n3 10\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1\n0\n", 1),
        ("0\n", 2),
        ("0\nx\n", 2),
        ("0\n2\na 0 1\n", 3),
        ("0\n1\na 0\n", 3),
        ("0\n1\na x 1\n", 3),
        ("0\n2\na 0 1\na 1 y\n", 4),
        ("0\n1\na 0 1\nb 0 1\n", 4),
        ("0\n1\na 0 -5\n", 3),
    ],
)
def test_read_of_a_malformed_checkpoint_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "x-checkpoint"
    path.write_text(text)
    with pytest.raises(CorruptLogError, match=f"x-checkpoint:{line}:"):
        OffsetCheckpoint(RealDisk(), str(path)).read()


def test_checkpoint_is_read_back_as_written(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(RealDisk(), str(tmp_path / "x"))
    assert checkpoint.read() == {}
    offsets = {TP: Offset(5), TopicPartition("a", 3): Offset(2**40)}
    checkpoint.write(offsets)
    assert checkpoint.read() == offsets
    assert (tmp_path / "x").read_text() == f"0\n2\na 3 {2**40}\norders 0 5\n"


def test_read_of_an_epoch_checkpoint_with_falling_epochs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n3 10\n2 20\n")
    with pytest.raises(CorruptLogError, match="leader-epoch-checkpoint:4:"):
        LeaderEpochs(RealDisk(), str(tmp_path))


def test_topic_id_and_meta_properties_are_read_back_as_written(tmp_path: Path) -> None:
    disk, folder = RealDisk(), str(tmp_path)
    assert read_topic_id(disk, folder) == ""
    write_topic_id(disk, folder, "abcDEF_-123abcDEF_-123")
    assert read_topic_id(disk, folder) == "abcDEF_-123abcDEF_-123"
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: abcDEF_-123abcDEF_-123"
    assert MetaProperties.read(disk, folder) is None
    meta = MetaProperties(cluster_id="c", broker_id=3)
    meta.write(disk, folder)
    assert MetaProperties.read(disk, folder) == meta
    (tmp_path / "meta.properties").write_text("version=0\n")
    with pytest.raises(CorruptLogError, match=r"meta\.properties"):
        MetaProperties.read(disk, folder)
    (tmp_path / "partition.metadata").write_text("version: 0\nnonsense\n")
    with pytest.raises(CorruptLogError, match=r"partition\.metadata:2"):
        read_topic_id(disk, folder)


@pytest.mark.parametrize(("content", "epoch"), [(None, 42), (b"", -1), (b"[]", -1), (b"{}", -1)])
def test_clean_shutdown_marker_is_read_once(tmp_path: Path, content: bytes | None, epoch: int) -> None:
    disk, folder = RealDisk(), str(tmp_path)
    assert read_clean_shutdown(disk, folder) == (False, -1)
    write_clean_shutdown(disk, folder, 42)
    marker = tmp_path / ".kafka_cleanshutdown"
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":42}'
    if content is not None:
        marker.write_bytes(content)
    assert read_clean_shutdown(disk, folder) == (True, epoch)
    remove_clean_shutdown(disk, folder)
    assert read_clean_shutdown(disk, folder) == (False, -1)


def test_assign_of_a_negative_epoch_is_refused(tmp_path: Path) -> None:
    epochs: Any = cache(tmp_path)
    with pytest.raises(ValueError, match="negative"):
        epochs.assign(-1, 0)
