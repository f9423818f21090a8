"""A fetch under one leader epoch brings batches of a later one: the follower must not append them (C2, KAFKA-18723)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.wire.batches import build_batch
from log_damage import batches_of
from storage_host import TP, StorageHost

CONFIG = BrokerConfig.parse({})


def opened(folder: Path) -> tuple[LogManager, Log]:
    logs = LogManager(StorageHost().host, str(folder), CONFIG)
    logs.load()
    return logs, logs.create(TP, "", CONFIG.topic({}))


def fetched(epochs: Sequence[int], first: int = 0) -> bytes:
    """The bytes of a leader's fetch response: one batch of each epoch."""
    return b"".join(
        build_batch([(b"k", b"v", ())], timestamp_ms=0, base_offset=first + number, leader_epoch=epoch)
        for number, epoch in enumerate(epochs)
    )


@pytest.mark.parametrize(
    ("epochs", "kept"), [([1, 2, 2], 3), ([2, 2, 3], 2), ([1, 3, 3], 1), ([3, 3], 0), ([1, 2, 3, 4], 2)]
)
def test_batches_of_a_later_epoch_than_that_of_the_fetch_are_not_appended(
    tmp_path: Path, epochs: list[int], kept: int
) -> None:
    logs, log = opened(tmp_path)
    info = log.append_as_follower(fetched(epochs), 2)
    assert (log.log_end_offset, info.last_offset) == (kept, kept - 1)
    assert [batch.base for batch in batches_of(log, log.log_start_offset)] == list(range(kept))
    assert log.epochs.latest() == (max(epochs[:kept]) if kept else -1)
    log.append_as_follower(fetched([3, 3], kept), 3)
    assert (log.log_end_offset, log.epochs.latest()) == (kept + 2, 3)
    logs.close(clean=False)
