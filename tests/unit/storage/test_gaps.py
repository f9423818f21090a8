"""Missing offsets between segments (B8, B10): a hole that a power loss left is closed, a gap of compaction is kept.

The policy may change from `compact` to `delete` meanwhile: what is missing then was never to be kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from compacted_logs import finish
from harrow.cluster.config import BrokerConfig
from harrow.cluster.ids import LeaderEpoch
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.storage.opening.segment_end import load_end
from harrow.cluster.wire.batches import build_batch, headers
from log_damage import batches_of
from storage_host import TP, StorageHost

EPOCH = LeaderEpoch(3)
NOW = 1_700_000_000_000
CONFIG = BrokerConfig.parse({"log.cleaner.dedupe.buffer.size": 10**7, "harrow.tail.bytes": 0})
SMALL: dict[str, object] = {"segment.bytes": 300}
COMPACT = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}


def open_manager(folder: Path) -> tuple[StorageHost, LogManager]:
    host = StorageHost()
    logs = LogManager(host.host, str(folder), CONFIG)
    logs.load()
    return host, logs


def opened(logs: LogManager, topic: Mapping[str, object]) -> Log:
    return logs.create(TP, "", CONFIG.topic(topic))


def put(log: Log, *keys: int) -> None:
    for key in keys:
        data = build_batch([(b"%d" % key, bytes(60), ())], timestamp_ms=NOW)
        log.append_as_leader(data, EPOCH)


def at(*offsets: int) -> bytes:
    """What a leader sends: a batch at each of these offsets."""
    batches = (
        build_batch([(b"k", bytes(60), ())], timestamp_ms=NOW, base_offset=one, leader_epoch=3)
        for one in offsets
    )
    return b"".join(batches)


def offsets(log: Log) -> list[int]:
    """Of every record, as a reader meets them."""
    return [batch.base for batch in batches_of(log, log.log_start_offset)]


def crashed(
    folder: Path, topic: Mapping[str, object]
) -> tuple[Log, list[dict[str, object]], LogManager]:
    """The log after the broker's next start, and what was told of gaps."""
    host, logs = open_manager(folder)
    assert not logs.was_clean
    log = opened(logs, topic)
    told = [fields for event, fields in host.notes.events if event == "log.gap-closed"]
    return log, told, logs


def lose_end(log: Log, number: int) -> int:
    """The last batch of a segment never reached the disk; its offset."""
    path = Path(log.segments[number].file.path)
    data = path.read_bytes()
    last = list(headers(data))[-1]
    path.write_bytes(data[: last.position])
    return last.header.base_offset


def neighbours(log: Log) -> Sequence[tuple[int, int]]:
    """Where each sealed segment ends, and where the next begins."""
    pairs = zip(log.segments, log.segments[1:], strict=False)
    return [(int(load_end(segment)), following.base_offset) for segment, following in pairs]


def test_a_hole_is_closed_by_cutting_what_lies_behind_it(tmp_path: Path) -> None:
    _, logs = open_manager(tmp_path)
    log = opened(logs, SMALL)
    put(log, *range(9))
    assert len(log.segments) > 3
    hole = lose_end(log, 1)
    logs.close(clean=False)
    log, told, logs = crashed(tmp_path, SMALL)
    assert offsets(log) == list(range(hole))
    assert [(one["log_end_offset"], one["offsets_cut"]) for one in told] == [(hole, 9 - hole)]
    logs.close(clean=False)


@pytest.mark.parametrize("policy", [SMALL, COMPACT])
def test_what_compaction_left_out_is_no_hole_whatever_the_policy_is_now(
    tmp_path: Path, policy: dict[str, object]
) -> None:
    host, logs = open_manager(tmp_path)
    log = opened(logs, COMPACT)
    put(log, *range(2), *[7] * 12, *range(2, 6), *[8] * 12, *range(6, 9))
    log.roll()
    assert finish(logs.cleaner.clean_filthiest(logs.cleaner.offset_map()))
    host.tasks.run()
    kept = offsets(log)
    assert any(end < begin for end, begin in neighbours(log)), "a segment ends in a gap"
    logs.close(clean=False)
    for _ in range(2):
        log, told, logs = crashed(tmp_path, policy)
        assert (offsets(log), log.log_end_offset, told) == (kept, 33, [])
        logs.close(clean=False)


def test_a_hole_above_what_was_cleaned_is_a_hole(tmp_path: Path) -> None:
    host, logs = open_manager(tmp_path)
    log = opened(logs, COMPACT)
    put(log, *range(2), *[7] * 12, *range(2, 6), *[8] * 12)
    log.roll()
    assert finish(logs.cleaner.clean_filthiest(logs.cleaner.offset_map()))
    host.tasks.run()
    put(log, *range(9))
    hole = lose_end(log, -3)
    assert hole > 30
    kept = [offset for offset in offsets(log) if offset < hole]
    logs.close(clean=False)
    log, told, logs = crashed(tmp_path, SMALL)
    assert (offsets(log), len(told)) == (kept, 1)
    logs.close(clean=False)


def test_a_follower_takes_its_leaders_gaps_and_keeps_them_over_a_crash(tmp_path: Path) -> None:
    _, logs = open_manager(tmp_path)
    log = opened(logs, SMALL)
    wanted = [0, 5, 6, 20, 21, 22, 40, 60, 61, 80, 99]
    log.append_as_follower(at(*wanted[:5]))
    for one in wanted[5:]:
        log.append_as_follower(at(one))
    assert len(log.segments) > 3
    assert all(end == begin for end, begin in neighbours(log))
    assert offsets(log) == wanted
    logs.close(clean=False)
    log, told, logs = crashed(tmp_path, SMALL)
    assert (offsets(log), log.log_end_offset, told) == (wanted, 100, [])
    hole = lose_end(log, 1)
    logs.close(clean=False)
    log, told, logs = crashed(tmp_path, SMALL)
    assert (offsets(log), len(told)) == ([one for one in wanted if one < hole], 1)
    logs.close(clean=False)
