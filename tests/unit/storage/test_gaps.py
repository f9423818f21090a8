"""Missing offsets between segments (B8, B10): a gap from a power loss is closed, a gap from compaction is kept.

`cleanup.policy` may have changed from `compact` to `delete` in between: the gaps of compaction stay legal.
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
SMALL: dict[str, object] = {"internal.segment.bytes": 300}
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
    """The bytes of a leader's fetch response: one batch at each of these offsets."""
    batches = (
        build_batch([(b"k", bytes(60), ())], timestamp_ms=NOW, base_offset=offset, leader_epoch=3) for offset in offsets
    )
    return b"".join(batches)


def offsets(log: Log) -> list[int]:
    """Return the offset of every record, in the order of reading."""
    return [batch.base for batch in batches_of(log, log.log_start_offset)]


def crashed(folder: Path, topic: Mapping[str, object]) -> tuple[Log, list[dict[str, object]], LogManager]:
    """Open the log after a crash; return it, the `log.gap-closed` events and the log manager."""
    host, logs = open_manager(folder)
    assert not logs.was_clean
    log = opened(logs, topic)
    closed_gaps = [fields for event, fields in host.notes.events if event == "log.gap-closed"]
    assert host.notes.hits.count("recovery.before-gap-closing") == len(closed_gaps)
    return log, closed_gaps, logs


def lose_end(log: Log, number: int) -> int:
    """Remove the last batch of a segment, as if it had never reached the disk; return its offset."""
    path = Path(log.segments[number].file.path)
    data = path.read_bytes()
    last = list(headers(data))[-1]
    path.write_bytes(data[: last.position])
    return last.header.base_offset


def neighbours(log: Log) -> Sequence[tuple[int, int]]:
    """Return the end offset of each sealed segment and the base offset of the next segment."""
    pairs = zip(log.segments, log.segments[1:], strict=False)
    return [(int(load_end(segment)), following.base_offset) for segment, following in pairs]


def test_opening_after_a_crash_truncates_the_log_at_its_first_gap(tmp_path: Path) -> None:
    _, logs = open_manager(tmp_path)
    log = opened(logs, SMALL)
    put(log, *range(9))
    assert len(log.segments) > 3
    gap = lose_end(log, 1)
    logs.close(clean=False)
    log, closed_gaps, logs = crashed(tmp_path, SMALL)
    assert offsets(log) == list(range(gap))
    assert [(event["log_end_offset"], event["offsets_cut"]) for event in closed_gaps] == [(gap, 9 - gap)]
    logs.close(clean=False)


@pytest.mark.parametrize("policy", [SMALL, COMPACT])
def test_opening_after_a_crash_keeps_the_gaps_of_compaction_under_each_policy(
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
        log, closed_gaps, logs = crashed(tmp_path, policy)
        assert (offsets(log), log.log_end_offset, closed_gaps) == (kept, 33, [])
        logs.close(clean=False)


def test_opening_after_a_crash_closes_a_gap_above_the_last_cleaned_offset(tmp_path: Path) -> None:
    host, logs = open_manager(tmp_path)
    log = opened(logs, COMPACT)
    put(log, *range(2), *[7] * 12, *range(2, 6), *[8] * 12)
    log.roll()
    assert finish(logs.cleaner.clean_filthiest(logs.cleaner.offset_map()))
    host.tasks.run()
    put(log, *range(9))
    gap = lose_end(log, -3)
    assert gap > 30
    kept = [offset for offset in offsets(log) if offset < gap]
    logs.close(clean=False)
    log, closed_gaps, logs = crashed(tmp_path, SMALL)
    assert (offsets(log), len(closed_gaps)) == (kept, 1)
    logs.close(clean=False)


def test_append_as_follower_keeps_the_leaders_gaps_over_a_crash(tmp_path: Path) -> None:
    _, logs = open_manager(tmp_path)
    log = opened(logs, SMALL)
    wanted = [0, 5, 6, 20, 21, 22, 40, 60, 61, 80, 99]
    log.append_as_follower(at(*wanted[:5]))
    for offset in wanted[5:]:
        log.append_as_follower(at(offset))
    assert len(log.segments) > 3
    assert all(end == begin for end, begin in neighbours(log))
    assert offsets(log) == wanted
    logs.close(clean=False)
    log, closed_gaps, logs = crashed(tmp_path, SMALL)
    assert (offsets(log), log.log_end_offset, closed_gaps) == (wanted, 100, [])
    gap = lose_end(log, 1)
    logs.close(clean=False)
    log, closed_gaps, logs = crashed(tmp_path, SMALL)
    assert (offsets(log), len(closed_gaps)) == ([offset for offset in wanted if offset < gap], 1)
    logs.close(clean=False)
