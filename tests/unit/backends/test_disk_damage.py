"""Damage to the files of a log: what each damage changes, where it may, and that the log is recovered from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.host.knobs.disk_faults import DiskFaults
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.storage.checkpoints import OffsetCheckpoint
from harrow.cluster.storage.files import RECOVERY_POINTS
from harrow.cluster.wire.batch_header import headers
from harrow.faults.damage_faults import DAMAGES, OF_CHECKPOINTS, OF_RECORDS
from harrow.harness.backends.disk_damage import ACTS, PendingDamage, damaged
from log_damage import TOPIC
from storage_host import StorageHost

PARTITION = TopicPartition("orders", 0)


def log_with_segments(data: Path, recovery_point: int) -> dict[str, bytes]:
    """A log of several segments that was killed; its files and those of the data folder."""
    from harrow.cluster.storage import Origin
    from harrow.cluster.wire.batches import build_batch

    folder = data / "orders-0"
    data.mkdir()
    log = StorageHost().open(str(folder), TOPIC)
    for number in range(12):
        value = b"record %d " % number * 8
        log.append(build_batch([(None, value)]), 0, origin=Origin.CLIENT)
    OffsetCheckpoint(RealDisk(DiskFaults()), str(data / RECOVERY_POINTS)).write(
        {PARTITION: Offset(recovery_point)}
    )
    return contents(data)


def contents(data: Path) -> dict[str, bytes]:
    files = (path for path in data.rglob("*") if path.is_file())
    return {str(path.relative_to(data)): path.read_bytes() for path in files}
