"""A log: append, read, roll, truncate, lookup by timestamp, retention, refused system calls."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError, StorageError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log
from harrow.cluster.storage.retention import clean_up
from harrow.cluster.wire.batches import build_batch, decode_records, header_at, headers
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_host import StorageHost

EPOCH = LeaderEpoch(3)
NOW = 1_700_000_000_000
ALL = Offset(2**40)


def batch(count: int = 1, size: int = 10, *, time: int = NOW) -> bytes:
    return build_batch([(None, bytes(size), ())] * count, timestamp_ms=time)


def read(log: Log, offset: int, max_bytes: int = 10**9, upper: int = ALL) -> bytes:
    found = log.read(Offset(offset), max_bytes, Offset(upper), at_least_one=True)
    data = b"".join(bytes(part) for part in found.parts)
    assert len(data) == found.size
    return data


def offsets(data: bytes) -> list[int]:
    return [placed.header.base_offset for placed in headers(data, partial_ok=False)]


def everything(log: Log) -> bytes:
    data = b""
    offset: int = log.log_start_offset
    while piece := read(log, offset):
        data += piece
        offset = max(placed.header.last_offset for placed in headers(piece)) + 1
    return data


def test_append_as_leader_assigns_offset_and_epoch_without_changing_the_callers_bytes(
    host: StorageHost, folder: str
) -> None:
    log = host.open(folder)
    sent = batch(5)
    kept = bytes(bytearray(sent))
    info = log.append_as_leader(sent, EPOCH)
    assert sent == kept
    assert info == (0, 4, -1, 0, False, 5, len(sent), b"")
    assert log.append_as_leader(batch(), EPOCH).first_offset == 5
    stored = list(headers(read(log, 0)))
    assert [(p.header.base_offset, p.header.leader_epoch) for p in stored] == [(0, 3), (5, 3)]
    assert log.epochs.entries() == [(3, 0)]
    assert host.notes.hits.count("log.before-append") == 2
    assert host.disk.appends == 2


def test_append_with_log_append_time_stores_the_brokers_time(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"message.timestamp.type": "LogAppendTime"})
    host.clock.now = NOW + 5
    assert log.append_as_leader(batch(2, time=1), EPOCH).append_time_ms == NOW + 5
    data = read(log, 0)
    assert {record.timestamp for record in decode_records(data)} == {NOW + 5}
    log.abandon()
    assert host.open(folder, clean=False).log_end_offset == 2  # the CRC is valid


@pytest.mark.parametrize("tail_bytes", [0, 3_000, 10**6])
def test_read_returns_whole_batches_within_the_bounds(folder: str, tail_bytes: int) -> None:
    host = StorageHost()
    log = host.open(folder, {"internal.segment.bytes": 2_000}, tail_bytes=tail_bytes)
    size = len(batch(3, 50))
    for _ in range(40):
        log.append_as_leader(batch(3, 50), EPOCH)
    assert len(log.segments) > 3
    assert offsets(everything(log)) == list(range(0, 120, 3))
    for offset in range(120):
        base = offset - offset % 3
        assert offsets(read(log, offset, 1)) == [base]
        assert offsets(read(log, offset, size * 2))[0] == base
        assert len(offsets(read(log, offset, size * 2 + 5))) <= 2
        assert read(log, offset, 1, upper=offset) == b""
        assert all(o < base + 4 for o in offsets(read(log, offset, 10**9, upper=base + 4)))
        small = log.read(Offset(offset), size - 1, ALL, at_least_one=False)
        assert (small.parts, small.size, small.first_offset) == ([], 0, offset)
    assert read(log, 120) == b""


def test_read_from_the_tail_reads_no_file_and_copies_no_bytes(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    for _ in range(5):
        log.append_as_leader(batch(2, 100), EPOCH)
    host.disk.reads = 0
    found = log.read(Offset(3), 10**6, ALL, at_least_one=True)
    again = log.read(Offset(3), 10**6, ALL, at_least_one=True)
    assert host.disk.reads == 0
    assert found.first_offset == 2
    assert all(a is b for a, b in zip(found.parts, again.parts, strict=True))


@pytest.mark.parametrize("offset", [-1, 4, 11])
def test_read_outside_the_log_is_refused_as_out_of_range(host: StorageHost, folder: str, offset: int) -> None:
    log = host.open(folder)
    log.append_as_leader(batch(10), EPOCH)
    log.increment_log_start_offset(Offset(5))
    with pytest.raises(KafkaError) as caught:
        read(log, offset)
    assert caught.value.code == ErrorCode.offset_out_of_range


def test_append_as_follower_writes_the_bytes_unchanged_and_stores_the_epochs(
    host: StorageHost, folder: str, tmp_path: Path
) -> None:
    leader = host.open(folder)
    for epoch in (1, 1, 4):
        leader.append_as_leader(batch(2), LeaderEpoch(epoch))
        leader.append_as_leader(batch(1), LeaderEpoch(epoch))
    data = read(leader, 0)
    follower = host.open(str(tmp_path / "copy-0"))
    host.disk.appends = 0
    info = follower.append_as_follower(data + data[:30])
    assert (info.first_offset, info.last_offset, info.size) == (0, 8, len(data))
    assert host.disk.appends == 1
    assert everything(follower) == data
    assert follower.epochs.entries() == leader.epochs.entries() == [(1, 0), (4, 6)]
    assert follower.append_as_follower(b"").record_count == 0


def test_append_as_follower_refuses_a_batch_that_does_not_continue_the_log(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.append_as_follower(batch(2))
    for base in (0, 1):
        data = bytearray(batch())
        struct.pack_into(">q", data, 0, base)
        with pytest.raises(StorageError, match="goes on at 2"):
            log.append_as_follower(data)
    good = bytearray(batch())
    struct.pack_into(">q", good, 0, 2)
    good[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(good)
    assert caught.value.code == ErrorCode.corrupt_message
    assert log.log_end_offset == 2


def test_an_empty_log_that_ends_within_the_leaders_first_batch_takes_the_whole_batch(
    host: StorageHost, folder: str, tmp_path: Path
) -> None:
    """DeleteRecords may set the leader's log start offset into a batch; a new follower begins there (B7)."""
    leader = host.open(folder)
    for _ in range(2):
        leader.append_as_leader(batch(4), EPOCH)
    leader.increment_log_start_offset(Offset(6))
    follower = host.open(str(tmp_path / "copy-0"))
    follower.truncate_fully_and_start_at(Offset(6))
    info = follower.append_as_follower(read(leader, 6))
    assert (info.first_offset, info.last_offset) == (4, 7)
    assert (follower.log_start_offset, follower.log_end_offset) == (6, 8)
    with pytest.raises(StorageError, match="goes on at 8"):
        follower.append_as_follower(read(leader, 6))


def test_append_as_follower_splits_a_fetch_over_segments(host: StorageHost, folder: str, tmp_path: Path) -> None:
    leader = host.open(folder)
    for _ in range(20):
        leader.append_as_leader(batch(1, 100), EPOCH)
    size = len(batch(1, 100))
    data = read(leader, 0)
    follower = host.open(str(tmp_path / "copy-0"), {"internal.segment.bytes": size * 3})
    follower.append_as_follower(data[:size])
    follower.append_as_follower(data[size:])
    assert [segment.base_offset for segment in follower.segments] == list(range(0, 20, 3))
    assert everything(follower) == data


def test_append_rolls_by_a_full_index_and_by_age(host: StorageHost, folder: str) -> None:
    size = len(batch())
    topic: dict[str, object] = {
        "internal.segment.bytes": 10 * size,
        "segment.ms": 1_000,
        "index.interval.bytes": 0,
        "segment.index.bytes": 48,
    }
    log = host.open(folder, topic)
    for _ in range(11):
        log.append_as_leader(batch(), EPOCH)
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 7]  # the offset index holds six entries; the first batch has none
    log.append_as_leader(batch(time=NOW + 1_000), EPOCH)
    log.append_as_leader(batch(time=NOW + 1_001), EPOCH)
    assert log.segments[-1].base_offset == 12
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(1, 2000), EPOCH)
    assert caught.value.code == ErrorCode.record_list_too_large


def test_roll_flushes_in_the_background_and_raises_the_recovery_point(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"internal.segment.bytes": 2 * len(batch())})
    for _ in range(3):
        log.append_as_leader(batch(), EPOCH)
    assert log.recovery_point == 0
    host.tasks.run()
    assert log.recovery_point == 2
    assert [Path(path).name for path in host.disk.syncs] == [
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
    ]
    log.flush()
    assert log.recovery_point == 3


@pytest.mark.parametrize("tail_bytes", [0, 10**6])
@pytest.mark.parametrize("at", [0, 1, 5, 6, 7, 19, 20, 29, 30, 31])
def test_truncate_removes_batches_indexes_and_epochs_above_the_offset(tmp_path: Path, at: int, tail_bytes: int) -> None:
    host = StorageHost()
    folder = str(tmp_path / "orders-0")
    topic: dict[str, object] = {"internal.segment.bytes": 500, "index.interval.bytes": 100}
    log = host.open(folder, topic, tail_bytes=tail_bytes)
    for number in range(10):
        log.append_as_leader(batch(3, time=NOW + number), LeaderEpoch(number // 2))
    log.flush()
    kept = [base for base in range(0, 30, 3) if base + 3 <= at]
    end = min(len(kept) * 3, 30)
    log.truncate_to(Offset(at))
    assert log.log_end_offset == end
    assert log.recovery_point <= end
    assert offsets(everything(log)) == kept
    assert all(entry.start_offset < max(end, 1) for entry in log.epochs.entries())
    log.append_as_leader(batch(3, time=NOW + 50), LeaderEpoch(9))
    again = everything(log)
    assert offsets(again) == [*kept, end]
    log.close()
    reopened = host.open(folder, topic)
    assert reopened.log_end_offset == end + 3
    assert everything(reopened) == again
    assert reopened.epochs.entries() == log.epochs.entries()


def test_truncate_past_the_end_removes_an_epoch_without_batches(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.append_as_leader(batch(3), EPOCH)
    log.epochs.assign(LeaderEpoch(8), Offset(3))
    log.truncate_to(Offset(10))
    assert log.log_end_offset == 3
    assert log.epochs.entries() == [(3, 0)]


def test_truncate_fully_restarts_the_log_at_the_offset(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.append_as_leader(batch(3), EPOCH)
    log.truncate_fully_and_start_at(Offset(100))
    assert (log.log_start_offset, log.log_end_offset, log.size) == (100, 100, 0)
    assert log.append_as_leader(batch(), EPOCH).first_offset == 100
    assert len(list(Path(folder).glob("*.log.deleted"))) == 1
    host.tasks.advance(60_000)
    assert list(Path(folder).glob("*.deleted")) == []
    log.close()
    assert host.open(folder).log_start_offset == 100


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=25),
    st.integers(-1, 61),
    st.integers(0, 30),
)
def test_lookup_by_timestamp_returns_the_first_record_at_or_after_it(
    times: list[list[int]], timestamp: int, start: int
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as tmp:
        log = StorageHost().open(f"{tmp}/orders-0", {"internal.segment.bytes": 400, "index.interval.bytes": 80})
        for group in times:
            records = [(None, b"x", ())] * len(group)
            log.append_as_leader(build_batch(records, timestamp_ms=0, timestamps_ms=group), EPOCH)
        flat = [time for group in times for time in group]
        log.increment_log_start_offset(Offset(min(start, len(flat))))
        expected = next(
            (
                (time, offset, EPOCH)
                for offset, time in enumerate(flat)
                if time >= timestamp and offset >= log.log_start_offset
            ),
            None,
        )
        assert log.offset_for_timestamp(timestamp) == expected
        log.close()


def test_lookup_of_the_largest_timestamp_returns_its_first_record(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    assert log.offset_of_max_timestamp() is None
    for time in (5, 9, 7):
        log.append_as_leader(batch(2, time=time), EPOCH)
    assert log.offset_of_max_timestamp() == (9, 2, EPOCH)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("torn_bytes", [0, 40])
def test_refused_append_takes_the_log_offline_and_leaves_no_bytes(
    host: StorageHost, folder: str, error: int, torn_bytes: int
) -> None:
    log = host.open(folder)
    log.append_as_leader(batch(3), EPOCH)
    host.disk.refuse_appends, host.disk.torn_bytes = error, torn_bytes
    with pytest.raises(StorageError, match="orders-0"):
        log.append_as_leader(batch(), EPOCH)
    host.disk.refuse_appends = 0
    assert log.log_end_offset == 3
    assert log.failed is not None
    assert (Path(folder) / "00000000000000000000.log").stat().st_size == len(batch(3))
    for call in (
        lambda: log.append_as_leader(batch(), EPOCH),
        lambda: log.append_as_follower(batch()),
        lambda: log.read(Offset(0), 10, ALL, at_least_one=True),
        lambda: log.truncate_to(Offset(0)),
    ):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code == ErrorCode.kafka_storage_error
    with pytest.raises(StorageError):
        log.close()


def test_failed_fsync_does_not_raise_the_recovery_point(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.append_as_leader(batch(), EPOCH)
    host.disk.refuse_syncs = True
    with pytest.raises(StorageError, match="fsync"):
        log.flush()
    assert log.recovery_point == 0
    assert log.failed is not None


def test_append_with_flush_messages_raises_the_recovery_point(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"flush.messages": 2})
    log.append_as_leader(batch(), EPOCH)
    assert log.recovery_point == 0
    log.append_as_leader(batch(), EPOCH)
    assert log.recovery_point == 2


def fill(host: StorageHost, folder: str, topic: dict[str, object]) -> Log:
    """A log of five segments with two batches each, one second between batches."""
    log = host.open(folder, {"internal.segment.bytes": 2 * len(batch()), **topic})
    for number in range(10):
        log.append_as_leader(batch(time=NOW + number * 1_000), EPOCH)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_retention_by_time_deletes_expired_segments(host: StorageHost, folder: str) -> None:
    log = fill(host, folder, {"retention.ms": 4_000})
    host.clock.now = NOW + 7_500
    assert clean_up(host.host, log) == 2
    assert (bases(log), log.log_start_offset) == ([4, 6, 8], 4)
    assert log.epochs.entries() == [(3, 4)]
    assert offsets(everything(log)) == [4, 5, 6, 7, 8, 9]
    assert len(list(Path(folder).glob("*.log.deleted"))) == 2
    host.tasks.advance(60_000)
    assert list(Path(folder).glob("*.deleted")) == []
    assert clean_up(host.host, log) == 3  # the expired active segment is rolled first
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([10], 10, 10)
    assert clean_up(host.host, log) == 0


def test_retention_by_size_and_by_log_start_deletes_whole_segments(host: StorageHost, folder: str) -> None:
    log = fill(host, folder, {"retention.ms": -1, "retention.bytes": 6 * len(batch())})
    assert clean_up(host.host, log) == 2
    assert bases(log) == [4, 6, 8]
    log.increment_log_start_offset(Offset(7))
    assert clean_up(host.host, log) == 1
    assert (bases(log), log.log_start_offset) == ([6, 8], 7)


def test_retention_does_not_delete_above_the_high_watermark(host: StorageHost, folder: str) -> None:
    log = fill(host, folder, {"retention.ms": 0})
    host.clock.now = NOW + 10**6
    log.high_watermark = lambda: Offset(5)
    assert clean_up(host.host, log) == 2
    assert bases(log) == [4, 6, 8]


def test_append_of_a_small_slice_does_not_keep_the_large_frame(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    frame = bytes(10**6) + batch()
    log.append_as_follower(memoryview(frame)[10**6 :])
    (part,) = log.read(Offset(0), 10**6, ALL, at_least_one=True).parts
    assert isinstance(part, memoryview)
    assert part.obj is not frame
    assert header_at(part).base_offset == 0
