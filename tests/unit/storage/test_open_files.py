"""A broker that may open no more files refuses new logs, and serves those that it has (B1)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import OpenFilesError
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.host.seam import DiskFile
from harrow.cluster.ids import LeaderEpoch, TopicPartition
from harrow.cluster.storage import LogManager
from harrow.cluster.wire.batches import build_batch
from storage_host import TP, StorageHost

EPOCH = LeaderEpoch(1)
ID = "0W2cD9rlRj6jvUdxDTHqxA"
CONFIG = BrokerConfig.parse({})
OTHER = TopicPartition("orders", 7)
BATCH = build_batch([(b"k", b"v", ())], timestamp_ms=1_700_000_000_000)


def manager(folder: Path) -> LogManager:
    logs = LogManager(StorageHost().host, str(folder), CONFIG)
    logs.load()
    logs.create(TP, ID, CONFIG.topic())
    return logs


def serves(logs: LogManager) -> bool:
    log = logs.get(TP)
    assert log is not None
    end = log.log_end_offset
    log.append_as_leader(BATCH, EPOCH)
    return log.log_end_offset == end + 1 and logs.folders[0].failed is None


def test_a_new_log_is_refused_while_few_more_files_may_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = manager(tmp_path)
    left = 135

    def files_left(_disk: RealDisk) -> tuple[int, int]:
        return left, 1024

    monkeypatch.setattr(RealDisk, "files_left", files_left)
    with pytest.raises(OpenFilesError, match=r"orders-7.* 135 more files.*ulimit -n"):
        logs.create(OTHER, ID, CONFIG.topic())
    assert serves(logs)
    assert (logs.get(OTHER), (tmp_path / "orders-7").exists()) == (None, False)
    assert logs.create(TP, ID, CONFIG.topic()) is logs.get(TP), "it is here already"
    left += 1
    assert logs.create(OTHER, ID, CONFIG.topic()).log_end_offset == 0


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_log_whose_file_cannot_be_opened_for_want_of_descriptors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    logs = manager(tmp_path)
    opened = RealDisk.open

    def refuse(disk: RealDisk, path: str, *, create: bool = True) -> DiskFile:
        if "orders-7" in path:
            raise OSError(code, os.strerror(code), path)
        return opened(disk, path, create=create)

    with monkeypatch.context() as patched:
        patched.setattr(RealDisk, "open", refuse)
        with pytest.raises(OpenFilesError, match="orders-7"):
            logs.create(OTHER, ID, CONFIG.topic())
    assert serves(logs)
    assert not (tmp_path / "orders-7").exists()
    assert logs.create(OTHER, ID, CONFIG.topic()).log_end_offset == 0


def test_files_left_falls_with_each_open_file() -> None:
    disk = RealDisk()
    before, limit = disk.files_left()
    assert 0 < before < limit
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(200)]
    try:
        after, _ = disk.files_left()
    finally:
        for number in numbers:
            os.close(number)
    assert 100 < before - after < 300, "other threads of this process open files, too"
    assert abs(disk.files_left()[0] - before) < 200
