"""Results of compaction (B8): keys, tombstones, codecs, producers, transactions, lags, bounds."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from compacted_logs import EPOCH, Compaction, read_batches, records
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import Offset
from harrow.cluster.storage.compaction.record_filter import DELETE_HORIZON
from harrow.cluster.wire.batches import HEADER_SIZE, build_batch, crc_matches, header_at, headers

DAY = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> Compaction:
    return Compaction(str(tmp_path / "orders-0"))


def left(log: Compaction) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log.log)]


def test_clean_with_a_stale_offset_index_brings_no_deleted_key_back(tmp_path: Path) -> None:
    """The last round ended at offset 3 in the segment; the stale index places offset 2 behind the tombstone."""
    log = Compaction(str(tmp_path / "orders-0"), {"delete.retention.ms": 1_000, "internal.segment.bytes": 10**6})
    log.put((b"k", b"value"))
    for number in range(3):
        log.put((b"a%d" % number, b"x"))
    log.put((b"k", None))
    for number in range(5):
        log.put((b"b%d" % number, b"x"))
    log.log.roll()
    segment = log.log.segments[0]
    data = Path(segment.path_of(".log")).read_bytes()
    (position,) = (placed.position for placed in headers(data) if placed.header.base_offset == 6)
    index = Path(segment.path_of(".index"))
    assert index.stat().st_size
    index.write_bytes(struct.pack(">ii", 2, position))
    log.log.abandon()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    log = Compaction(log.folder, log.topic)
    for _ in range(3):
        log.host.clock.now += 10_000
        log.put((b"z", b"z"))
        log.seal_and_clean()
    assert all(key != b"k" for _, key, _ in left(log))


# -- keys and values


def test_clean_keeps_the_last_value_of_each_key_at_its_offset(log: Compaction) -> None:
    log.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.put((b"b", b"2"), (b"c", b"1"))
    log.put((b"a", b"3"))
    assert log.seal_and_clean()
    assert left(log) == [(3, b"b", b"2"), (4, b"c", b"1"), (5, b"a", b"3")]
    log.put((b"b", b"3"))
    assert left(log)[-1] == (6, b"b", b"3")


def test_clean_removes_compacted_records_from_the_tail(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), tail_bytes=10**6)
    for number in range(20):
        log.put((b"a", b"%d" % number), (b"b", b"%d" % number))
    assert len(left(log)) == 40
    log.log.roll()
    log.put((b"c", b"active"))
    assert log.clean()
    assert left(log) == [(38, b"a", b"19"), (39, b"b", b"19"), (40, b"c", b"active")]


def test_clean_leaves_the_active_segment_unchanged(log: Compaction) -> None:
    log.put((b"a", b"1"))
    log.log.roll()
    for number in range(3):
        log.put((b"a", b"active %d" % number))
    assert log.clean()
    assert [offset for offset, _, _ in left(log)] == [0, 1, 2, 3]  # the active segment is not mapped
    assert not log.clean()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_clean_keeps_codec_timestamps_and_headers_of_a_batch(log: Compaction, codec: int) -> None:
    pairs = [(b"k%d" % (n % 4), b"value %d" % n, (("h", b"%d" % n),)) for n in range(20)]
    times = [1_000 + 7 * (n % 11) for n in range(20)]
    batch = build_batch(pairs, timestamp_ms=0, timestamps_ms=times, codec=codec)
    log.log.append_as_leader(batch, EPOCH)
    log.seal_and_clean()
    ((header, inside),) = read_batches(log.log)
    assert [record.offset for record in inside] == [16, 17, 18, 19]
    assert [record.timestamp for record in inside] == times[16:]
    assert [record.headers for record in inside] == [(("h", b"%d" % n),) for n in range(16, 20)]
    assert (header.codec, header.base_offset, header.last_offset) == (codec, 0, 19)
    assert header.max_timestamp == max(times[16:])


def test_clean_copies_a_batch_that_keeps_all_records_unchanged(log: Compaction) -> None:
    log.put((b"a", b"1"), (b"b", b"1"))
    path = Path(log.log.segments[0].path_of(".log"))
    before = path.read_bytes()
    log.seal_and_clean()
    assert any(path.parent.glob("*.log.deleted"))
    assert path.read_bytes() == before


def test_clean_keeps_the_log_append_time_of_a_batch(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), {"message.timestamp.type": "LogAppendTime"})
    log.put((b"a", b"1"), (b"b", b"1"), timestamp_ms=5)
    log.put((b"a", b"2"), timestamp_ms=6)
    log.seal_and_clean()
    assert {record.timestamp for record in records(log.log)} == {log.host.clock.now}


def test_clean_writes_valid_crcs_and_recovery_truncates_nothing(log: Compaction) -> None:
    for number in range(40):
        log.put((b"k%d" % (number % 7), b"%d" % number), (b"x%d" % number, None), codec=number % 5)
    log.seal_and_clean()
    before = left(log)
    for segment in log.log.segments:
        data = Path(segment.path_of(".log")).read_bytes()
        assert all(crc_matches(data, placed) for placed in headers(data, partial_ok=False))
    log.log.abandon()
    again = log.host.open(log.folder, log.topic, clean=False)
    assert [(record.offset, record.key, record.value) for record in records(again)] == before
    assert not [event for event in log.host.notes.events if event[1].get("truncated_bytes")]


def test_clean_keeps_the_last_batch_of_a_round_as_an_empty_batch(log: Compaction) -> None:
    """A reader learns from the empty batch where the log continues."""
    log.put((b"a", b"1"))
    log.put((b"a", None))
    log.log.roll()
    log.put((b"z", b""))
    log.clean()
    log.host.clock.now += DAY
    log.log.roll()
    log.put((b"y", b""))
    log.clean()
    log.host.clock.now += DAY
    log.put((b"x", b""))
    log.log.roll()
    log.clean()
    ends = [header.last_offset for header, _ in read_batches(log.log)]
    assert ends[-1] == log.log.log_end_offset - 1


# -- null keys


@pytest.mark.parametrize("codec", [0, 4])
def test_append_without_a_key_to_a_compacted_topic_is_refused(log: Compaction, codec: int) -> None:
    batch = build_batch([(b"k", b"v", ()), (None, b"v", ())], timestamp_ms=1, codec=codec)
    with pytest.raises(KafkaError) as refused:
        log.log.append_as_leader(batch, EPOCH)
    assert refused.value.code is ErrorCode.invalid_record
    assert log.log.log_end_offset == 0
    log.put((b"k", b"v"), codec=codec)
    assert log.log.log_end_offset == 1


def test_clean_removes_records_without_keys_that_were_appended_before_the_policy(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), {"cleanup.policy": "delete"})
    log.log.append_as_leader(build_batch([(None, b"v", ())], timestamp_ms=1), EPOCH)
    log.put((b"k", b"v"))
    log.log.reconfigure(log.broker.topic({**log.topic, "cleanup.policy": "compact"}))
    assert log.seal_and_clean()
    assert left(log) == [(1, b"k", b"v")]


# -- tombstones (KIP-534)


def test_clean_keeps_a_tombstone_until_its_delete_horizon(log: Compaction) -> None:
    log.put((b"a", b"1"), (b"b", b"1"))
    log.put((b"a", None), (b"c", b"1"))
    log.host.clock.now += 5 * DAY  # the tombstone's age does not matter
    assert log.seal_and_clean()
    horizon = log.host.clock.now + DAY
    batch = next(header for header, inside in read_batches(log.log) if inside[0].value is None)
    assert batch.attributes & DELETE_HORIZON
    assert batch.base_timestamp == horizon
    assert [record.timestamp for record in records(log.log)] == [horizon - 6 * DAY] * 3

    log.host.clock.now = horizon - 1
    log.put((b"d", b"1"))
    assert log.seal_and_clean()
    assert (2, b"a", None) in left(log)
    assert next(h for h, _ in read_batches(log.log) if h.attributes & DELETE_HORIZON) == batch

    log.host.clock.now = horizon
    log.put((b"d", b"2"))
    assert log.seal_and_clean()
    assert left(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (5, b"d", b"2")]


def test_clean_ignores_a_tombstone_in_the_active_segment(log: Compaction) -> None:
    log.put((b"a", b"1"))
    log.log.roll()
    log.put((b"a", None))
    log.clean()
    assert left(log) == [(0, b"a", b"1"), (1, b"a", None)]


# -- which part of a log is cleaned, and when


def test_clean_skips_logs_below_the_cleanable_dirty_ratio(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), {"min.cleanable.dirty.ratio": 0.5})
    for number in range(6):
        log.put((b"k%d" % number, b"v"))
    assert log.seal_and_clean()
    log.put((b"k0", b"w"))
    assert not log.seal_and_clean()
    for number in range(6):
        log.put((b"k%d" % number, b"w"))
    log.log.roll()
    task = log.cleaner.manager.to_clean(log.log, log.host.clock.now)
    assert (task.first_dirty, task.first_uncleanable) == (6, 13)
    assert task.ratio > 0.5
    assert log.clean()


def test_clean_skips_records_younger_than_min_compaction_lag(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), {"min.compaction.lag.ms": 1_000})
    log.put((b"a", b"1"))
    log.log.roll()
    log.host.clock.now += 600
    log.put((b"a", b"2"))
    log.log.roll()
    assert not log.clean()
    log.host.clock.now += 400
    assert log.clean()  # the first segment only
    assert left(log) == [(0, b"a", b"1"), (1, b"a", b"2")]
    log.host.clock.now += 600
    assert log.clean()
    assert left(log) == [(1, b"a", b"2")]


def test_clean_ignores_the_ratio_after_max_compaction_lag(tmp_path: Path) -> None:
    topic: dict[str, object] = {"min.cleanable.dirty.ratio": 1, "max.compaction.lag.ms": 1_000}
    log = Compaction(str(tmp_path / "orders-0"), topic)
    log.put((b"a", b"1"))
    log.put((b"a", b"2"))
    assert not log.seal_and_clean()
    log.host.clock.now += 1_001
    assert log.clean()
    assert left(log) == [(1, b"a", b"2")]
    log.put((b"a", b"3"))
    log.put((b"a", b"4"), timestamp_ms=log.host.clock.now + 1_001)
    assert len(log.log.segments) > 2, "the active segment rolls early enough to be compacted in time"


def test_clean_ignores_records_at_and_above_the_high_watermark(log: Compaction) -> None:
    log.put((b"a", b"committed"))
    log.log.roll()
    log.put((b"a", b"not yet"))
    log.log.high_watermark = lambda: Offset(1)
    assert log.seal_and_clean()
    assert left(log) == [(0, b"a", b"committed"), (1, b"a", b"not yet")]
    log.log.high_watermark = lambda: Offset(2)
    assert log.clean()
    assert left(log) == [(1, b"a", b"not yet")]


def test_clean_stops_at_an_open_transaction(log: Compaction) -> None:
    log.put((b"a", b"1"))
    log.log.roll()
    log.put((b"a", b"open"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.log.roll()
    log.clean()
    assert left(log) == [(0, b"a", b"1"), (1, b"a", b"open")]
    log.end_transaction(5, commit=True)
    log.seal_and_clean()
    assert left(log) == [(1, b"a", b"open")]


def test_clean_with_a_full_offset_map_continues_in_the_next_round(tmp_path: Path) -> None:
    """The memory is bounded: a round maps as many keys as fit, and the next round continues at that offset."""
    log = Compaction(str(tmp_path / "orders-0"), broker={"log.cleaner.dedupe.buffer.size": 192 * 12})
    assert log.offsets.entries_max == 10
    for number in range(60):
        log.put((b"k%d" % (number % 30), b"%d" % number))
    log.log.roll()
    rounds = 0
    while log.clean():
        rounds += 1
        assert len(log.offsets) <= 10
    assert rounds == 6
    assert [offset for offset, _, _ in left(log)] == list(range(30, 60))


def test_clean_merges_small_segments_up_to_segment_bytes(log: Compaction) -> None:
    for number in range(80):
        log.put((b"k%d" % (number % 4), b"%d" % number))
    before = len(log.log.segments)
    log.seal_and_clean()
    log.put((b"end", b""))
    log.seal_and_clean()
    sizes = [segment.size for segment in log.log.segments]
    assert len(sizes) < before / 2
    assert all(size <= 600 for size in sizes)
    assert len(left(log)) == 5
    for offset in range(log.log.log_end_offset):  # each lookup finds the next remaining record
        found = log.log.read(Offset(offset), 1, Offset(10**6), at_least_one=True)
        assert header_at(found.parts[0]).last_offset >= offset


def test_clean_does_not_merge_segments_beyond_the_index_offset_range(log: Compaction) -> None:
    log.put((b"a", b"1"))
    log.log.roll(base_offset=Offset(2**31))
    log.log.log_end_offset = Offset(2**31)
    log.put((b"a", b"2"))
    log.log.roll()
    log.put((b"b", b"1"))
    log.seal_and_clean()
    bases = [segment.base_offset for segment in log.log.segments]
    assert bases[:2] == [0, 2**31]
    assert [offset for offset, _, _ in left(log)] == [2**31, 2**31 + 1]


def test_clean_of_a_damaged_batch_stops_without_a_new_crc(log: Compaction) -> None:
    log.put((b"a", b"1"), (b"b", b"1"))
    log.put((b"a", b"2"))
    path = Path(log.log.segments[0].file.path)
    log.log.roll()
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 5] ^= 1
    path.write_bytes(data)
    assert not log.clean()
    assert path.read_bytes() == data
    assert any("CRC of batch 0 is wrong" in line for line in log.host.notes.lines)
    assert not list(path.parent.glob("*.cleaned"))
    assert log.cleaner.manager.grab_filthiest() is None


@pytest.mark.parametrize("codec", [0, 4])
def test_a_log_with_a_compressed_record_above_the_largest_is_not_cleaned(tmp_path: Path, codec: int) -> None:
    log = Compaction(str(tmp_path / "orders-0"), {"max.decompressed.message.bytes": 100})
    two = [(b"a", b"1", ()), (b"a", bytes(101), ())]
    replicated = build_batch(two, timestamp_ms=1, codec=codec, leader_epoch=int(EPOCH))
    log.log.append_as_follower(replicated)  # its leader had another setting
    assert log.seal_and_clean() == (codec == 0)
    assert any("exceeds the configured maximum record size of 100" in line for line in log.host.notes.lines) == bool(
        codec
    )


# -- producers and transactions


def test_clean_keeps_the_last_sequence_of_a_producer_without_records(log: Compaction) -> None:
    for number in range(3):
        log.put((b"a", b"%d" % number), producer_id=7, producer_epoch=1, base_sequence=number)
    log.put((b"a", b"other"))
    log.seal_and_clean()
    empty = [header for header, inside in read_batches(log.log) if not inside]
    assert [(h.base_offset, h.producer_id, h.base_sequence) for h in empty] == [(2, 7, 2)]
    assert left(log) == [(3, b"a", b"other")]
    log.log.abandon()
    for path in Path(log.folder).glob("*.snapshot"):
        path.unlink()
    again = log.host.open(log.folder, log.topic, clean=False)
    entry = again.producers.get(7)
    assert entry is not None
    assert (entry.epoch, entry.batches[-1].last_sequence) == (1, 2)
    retry = build_batch([(b"a", b"2", ())], timestamp_ms=1, producer_id=7, producer_epoch=1, base_sequence=2)
    assert again.append_as_leader(retry, EPOCH).duplicate


def transaction(log: Compaction, value: bytes, sequence: int, *, commit: bool) -> None:
    for number, key in enumerate((b"t", b"u")):
        log.put((key, value), producer_id=9, producer_epoch=0, base_sequence=sequence + number, is_transactional=True)
    log.end_transaction(9, commit=commit)


def test_clean_removes_aborted_records_which_replace_no_other_record(log: Compaction) -> None:
    log.put((b"t", b"before"))
    transaction(log, b"aborted", 0, commit=False)
    transaction(log, b"committed", 2, commit=True)
    transaction(log, b"aborted too", 4, commit=False)
    log.put((b"u", b"after"))
    assert log.seal_and_clean()
    assert [(key, value) for _, key, value in left(log)] == [(b"t", b"committed"), (b"u", b"after")]
    kinds = [header.is_control for header, inside in read_batches(log.log) if inside]
    assert kinds.count(True) == 3, "a marker stays in the round that removes its transaction's data"
    aborted = log.log.aborted_transactions(Offset(0), log.log.log_end_offset)
    assert [(aborted_txn.first_offset, aborted_txn.last_offset) for aborted_txn in aborted] == [(1, 3), (7, 9)]


def test_clean_removes_a_marker_after_its_data_and_its_delete_horizon(log: Compaction) -> None:
    transaction(log, b"1", 0, commit=True)
    log.put((b"t", b"2"), (b"u", b"2"), producer_id=9, producer_epoch=1, base_sequence=0)

    def markers() -> list[bool]:
        log.put((b"z", b""))
        log.seal_and_clean()
        control = [header for header, inside in read_batches(log.log) if inside and header.is_control]
        return [bool(header.attributes & DELETE_HORIZON) for header in control]

    assert markers() == [False]  # this round removed its data
    assert markers() == [True]
    log.host.clock.now += DAY - 1
    assert markers() == [True]
    log.host.clock.now += 1
    assert markers() == []


def test_clean_keeps_the_marker_of_a_producer_without_data(log: Compaction) -> None:
    log.end_transaction(5, commit=False, epoch=3)
    for _ in range(3):
        log.put((b"z", b""))
        log.seal_and_clean()
        log.host.clock.now += 2 * DAY
    log.log.abandon()
    for path in Path(log.folder).glob("*.snapshot"):
        path.unlink()
    again = log.host.open(log.folder, log.topic, clean=False)
    entry = again.producers.get(5)
    assert entry is not None
    assert entry.epoch == 3
    kept = [header for header, _ in read_batches(again) if header.is_control]
    assert [(header.producer_id, header.producer_epoch) for header in kept] == [(5, 3)]
