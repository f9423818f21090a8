"""What compaction leaves (B8): keys, tombstones, codecs, producers, transactions, lags, bounds."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from compacted_logs import EPOCH, Compaction, read_batches, records
from harrow.cluster.errors import CorruptLogError, ErrorCode, KafkaError
from harrow.cluster.ids import Offset
from harrow.cluster.storage.compaction.offset_map import ENTRY_BYTES, OffsetMap
from harrow.cluster.storage.compaction.record_filter import (
    DELETE_HORIZON,
    RecordFilter,
)
from harrow.cluster.storage.record_spans import record_spans
from harrow.cluster.wire.batches import (
    HEADER_SIZE,
    build_batch,
    crc_matches,
    decode_records,
    header_at,
    headers,
)

DAY = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> Compaction:
    return Compaction(str(tmp_path / "orders-0"))


def left(log: Compaction) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for one in records(log.log)]


def test_an_index_of_another_file_brings_no_deleted_key_back(tmp_path: Path) -> None:
    """The round before ended at 3, within the segment; the index says that offset 2 lies behind the tombstone."""
    log = Compaction(
        str(tmp_path / "orders-0"), {"delete.retention.ms": 1_000, "segment.bytes": 10**6}
    )
    log.put((b"k", b"value"))
    for number in range(3):
        log.put((b"a%d" % number, b"x"))
    log.put((b"k", None))
    for number in range(5):
        log.put((b"b%d" % number, b"x"))
    log.log.roll()
    segment = log.log.segments[0]
    data = Path(segment.path_of(".log")).read_bytes()
    (position,) = (one.position for one in headers(data) if one.header.base_offset == 6)
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


def test_the_last_value_of_each_key_stays_where_it_was(log: Compaction) -> None:
    log.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.put((b"b", b"2"), (b"c", b"1"))
    log.put((b"a", b"3"))
    assert log.seal_and_clean()
    assert left(log) == [(3, b"b", b"2"), (4, b"c", b"1"), (5, b"a", b"3")]
    log.put((b"b", b"3"))
    assert left(log)[-1] == (6, b"b", b"3")


def test_what_is_compacted_away_is_not_read_from_memory_either(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), tail_bytes=10**6)
    for number in range(20):
        log.put((b"a", b"%d" % number), (b"b", b"%d" % number))
    assert len(left(log)) == 40
    log.log.roll()
    log.put((b"c", b"active"))
    assert log.clean()
    assert left(log) == [(38, b"a", b"19"), (39, b"b", b"19"), (40, b"c", b"active")]


def test_the_active_segment_is_never_touched(log: Compaction) -> None:
    log.put((b"a", b"1"))
    log.log.roll()
    for number in range(3):
        log.put((b"a", b"active %d" % number))
    assert log.clean()
    assert [offset for offset, _, _ in left(log)] == [0, 1, 2, 3]  # the active one decides nothing
    assert not log.clean()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_keeps_its_codec_its_times_and_its_headers(log: Compaction, codec: int) -> None:
    pairs = [(b"k%d" % (n % 4), b"value %d" % n, (("h", b"%d" % n),)) for n in range(20)]
    times = [1_000 + 7 * (n % 11) for n in range(20)]
    batch = build_batch(pairs, timestamp_ms=0, timestamps_ms=times, codec=codec)
    log.log.append_as_leader(batch, EPOCH)
    log.seal_and_clean()
    ((header, inside),) = read_batches(log.log)
    assert [one.offset for one in inside] == [16, 17, 18, 19]
    assert [one.timestamp for one in inside] == times[16:]
    assert [one.headers for one in inside] == [(("h", b"%d" % n),) for n in range(16, 20)]
    assert (header.codec, header.base_offset, header.last_offset) == (codec, 0, 19)
    assert header.max_timestamp == max(times[16:])


def test_a_batch_that_stays_whole_is_copied_byte_for_byte(log: Compaction) -> None:
    log.put((b"a", b"1"), (b"b", b"1"))
    path = Path(log.log.segments[0].path_of(".log"))
    before = path.read_bytes()
    log.seal_and_clean()
    assert any(path.parent.glob("*.log.deleted"))
    assert path.read_bytes() == before


def test_append_time_stays_the_batchs(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), {"message.timestamp.type": "LogAppendTime"})
    log.put((b"a", b"1"), (b"b", b"1"), timestamp_ms=5)
    log.put((b"a", b"2"), timestamp_ms=6)
    log.seal_and_clean()
    assert {one.timestamp for one in records(log.log)} == {log.host.clock.now}


def test_every_written_batch_has_a_good_crc_and_the_log_survives_recovery(log: Compaction) -> None:
    for number in range(40):
        log.put((b"k%d" % (number % 7), b"%d" % number), (b"x%d" % number, None), codec=number % 5)
    log.seal_and_clean()
    before = left(log)
    for segment in log.log.segments:
        data = Path(segment.path_of(".log")).read_bytes()
        assert all(crc_matches(data, placed) for placed in headers(data, partial_ok=False))
    log.log.abandon()
    again = log.host.open(log.folder, log.topic, clean=False)
    assert [(one.offset, one.key, one.value) for one in records(again)] == before
    assert not [event for event in log.host.notes.events if event[1].get("truncated_bytes")]


def test_where_the_round_ended_stays_readable(log: Compaction) -> None:
    """The last batch of a round is kept without its records, so that a reader learns where the log goes on."""
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
def test_a_compacted_topic_refuses_a_record_without_a_key(log: Compaction, codec: int) -> None:
    batch = build_batch([(b"k", b"v", ()), (None, b"v", ())], timestamp_ms=1, codec=codec)
    with pytest.raises(KafkaError) as refused:
        log.log.append_as_leader(batch, EPOCH)
    assert refused.value.code is ErrorCode.invalid_record
    assert log.log.log_end_offset == 0
    log.put((b"k", b"v"), codec=codec)
    assert log.log.log_end_offset == 1


def test_records_without_keys_from_before_the_policy_go(tmp_path: Path) -> None:
    log = Compaction(str(tmp_path / "orders-0"), {"cleanup.policy": "delete"})
    log.log.append_as_leader(build_batch([(None, b"v", ())], timestamp_ms=1), EPOCH)
    log.put((b"k", b"v"))
    log.log.reconfigure(log.broker.topic({**log.topic, "cleanup.policy": "compact"}))
    assert log.seal_and_clean()
    assert left(log) == [(1, b"k", b"v")]


# -- tombstones (KIP-534)


def test_a_tombstone_stays_for_delete_retention_after_it_was_cleaned(log: Compaction) -> None:
    log.put((b"a", b"1"), (b"b", b"1"))
    log.put((b"a", None), (b"c", b"1"))
    log.host.clock.now += 5 * DAY  # its own age does not matter
    assert log.seal_and_clean()
    horizon = log.host.clock.now + DAY
    batch = next(header for header, inside in read_batches(log.log) if inside[0].value is None)
    assert batch.attributes & DELETE_HORIZON
    assert batch.base_timestamp == horizon
    assert [one.timestamp for one in records(log.log)] == [horizon - 6 * DAY] * 3

    log.host.clock.now = horizon - 1
    log.put((b"d", b"1"))
    assert log.seal_and_clean()
    assert (2, b"a", None) in left(log)
    assert next(h for h, _ in read_batches(log.log) if h.attributes & DELETE_HORIZON) == batch

    log.host.clock.now = horizon
    log.put((b"d", b"2"))
    assert log.seal_and_clean()
    assert left(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (5, b"d", b"2")]


def test_a_tombstone_in_the_active_segment_hides_nothing_yet(log: Compaction) -> None:
    log.put((b"a", b"1"))
    log.log.roll()
    log.put((b"a", None))
    log.clean()
    assert left(log) == [(0, b"a", b"1"), (1, b"a", None)]


# -- which part, when


def test_only_logs_that_are_dirty_enough_are_cleaned(tmp_path: Path) -> None:
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


def test_young_records_wait_for_min_compaction_lag(tmp_path: Path) -> None:
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


def test_old_records_are_cleaned_whatever_the_ratio(tmp_path: Path) -> None:
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
    assert len(log.log.segments) > 2, "the active segment rolls in time to be compacted in time"


def test_nothing_at_or_above_the_high_watermark_decides(log: Compaction) -> None:
    log.put((b"a", b"committed"))
    log.log.roll()
    log.put((b"a", b"not yet"))
    log.log.high_watermark = lambda: Offset(1)
    assert log.seal_and_clean()
    assert left(log) == [(0, b"a", b"committed"), (1, b"a", b"not yet")]
    log.log.high_watermark = lambda: Offset(2)
    assert log.clean()
    assert left(log) == [(1, b"a", b"not yet")]


def test_nothing_undecided_is_cleaned(log: Compaction) -> None:
    log.put((b"a", b"1"))
    log.log.roll()
    log.put(
        (b"a", b"open"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.log.roll()
    log.clean()
    assert left(log) == [(0, b"a", b"1"), (1, b"a", b"open")]
    log.end_transaction(5, commit=True)
    log.seal_and_clean()
    assert left(log) == [(1, b"a", b"open")]


def test_what_does_not_fit_the_map_waits(tmp_path: Path) -> None:
    """Memory is bounded: a round maps as many keys as fit, the next goes on from there."""
    log = Compaction(
        str(tmp_path / "orders-0"), broker={"log.cleaner.dedupe.buffer.size": 192 * 12}
    )
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


def test_segments_are_merged_as_far_as_they_fit(log: Compaction) -> None:
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
    for offset in range(log.log.log_end_offset):  # each look-up finds the next record that is left
        found = log.log.read(Offset(offset), 1, Offset(10**6), at_least_one=True)
        assert header_at(found.parts[0]).last_offset >= offset


def test_a_group_never_spans_more_offsets_than_an_index_can_name(log: Compaction) -> None:
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


def test_a_damaged_batch_is_not_given_a_new_crc(log: Compaction) -> None:
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


# -- producers and transactions


def test_the_last_sequence_of_a_producer_outlives_its_records(log: Compaction) -> None:
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
    retry = build_batch(
        [(b"a", b"2", ())], timestamp_ms=1, producer_id=7, producer_epoch=1, base_sequence=2
    )
    assert again.append_as_leader(retry, EPOCH).duplicate


def transaction(log: Compaction, value: bytes, sequence: int, *, commit: bool) -> None:
    for number, key in enumerate((b"t", b"u")):
        log.put(
            (key, value),
            producer_id=9,
            producer_epoch=0,
            base_sequence=sequence + number,
            is_transactional=True,
        )
    log.end_transaction(9, commit=commit)


def test_aborted_data_goes_and_supersedes_nothing(log: Compaction) -> None:
    log.put((b"t", b"before"))
    transaction(log, b"aborted", 0, commit=False)
    transaction(log, b"committed", 2, commit=True)
    transaction(log, b"aborted too", 4, commit=False)
    log.put((b"u", b"after"))
    assert log.seal_and_clean()
    assert [(key, value) for _, key, value in left(log)] == [(b"t", b"committed"), (b"u", b"after")]
    kinds = [header.is_control for header, inside in read_batches(log.log) if inside]
    assert kinds.count(True) == 3, "markers stay while anything of their transactions was there"
    aborted = log.log.aborted_transactions(Offset(0), log.log.log_end_offset)
    assert [(one.first_offset, one.last_offset) for one in aborted] == [(1, 3), (7, 9)]


def test_a_marker_goes_after_its_data_and_its_horizon(log: Compaction) -> None:
    transaction(log, b"1", 0, commit=True)
    log.put((b"t", b"2"), (b"u", b"2"), producer_id=9, producer_epoch=1, base_sequence=0)

    def markers() -> list[bool]:
        log.put((b"z", b""))
        log.seal_and_clean()
        control = [
            header for header, inside in read_batches(log.log) if inside and header.is_control
        ]
        return [bool(header.attributes & DELETE_HORIZON) for header in control]

    assert markers() == [False]  # its data went in this round
    assert markers() == [True]
    log.host.clock.now += DAY - 1
    assert markers() == [True]
    log.host.clock.now += 1
    assert markers() == []


def test_the_marker_of_a_producer_without_data_keeps_its_epoch(log: Compaction) -> None:
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


# -- the parts


def test_records_are_walked_as_the_decoder_reads_them() -> None:
    keys = [None, b"", b"k", b"k" * 70, b"k" * 9_000]
    values = [None, b"", b"v", b"v" * 200]
    new = [(key, value, (("h", None), ("i", b"x"))) for key in keys for value in values]
    times = [10**12 + 7**n for n in range(len(new))]
    batch = build_batch(new, timestamp_ms=0, timestamps_ms=times)
    spans = record_spans(bytes(batch[HEADER_SIZE:]), len(new))
    decoded = decode_records(batch)
    assert [span[2:] for span in spans] == [
        (one.offset, one.key, one.value is not None) for one in decoded
    ]
    assert spans[-1][1] == len(batch) - HEADER_SIZE
    for cut in (1, 20, 100):
        with pytest.raises(CorruptLogError):
            record_spans(bytes(batch[HEADER_SIZE:-cut]), len(new))


def test_the_offset_map_tells_long_keys_apart_in_bounded_memory() -> None:
    count = 3_000
    offsets = OffsetMap(ENTRY_BYTES * count, 1.0)
    tracemalloc.start()
    try:
        for number in range(count):
            assert not offsets.is_full
            offsets.put(b"x" * 10_000 + b"%d" % number, number + 10**6)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offsets.is_full
    assert taken <= ENTRY_BYTES * count
    assert all(offsets.get(b"x" * 10_000 + b"%d" % n) == n + 10**6 for n in range(count))
    assert offsets.get(b"x" * 10_000) == -1


def test_a_horizon_is_not_set_beyond_what_was_cleaned() -> None:
    offsets = OffsetMap(10**6)
    offsets.update_latest_offset(0)
    keep = RecordFilter(offsets, now_ms=100, delete_retention_ms=50)
    batch = memoryview(build_batch([(b"a", None, ()), (b"b", b"", ())], timestamp_ms=1))
    assert keep.filter_data(batch, header_at(batch), retain_empty=False) is batch
    offsets.update_latest_offset(1)
    keep = RecordFilter(offsets, now_ms=100, delete_retention_ms=50)
    written = keep.filter_data(batch, header_at(batch), retain_empty=False)
    assert header_at(written).base_timestamp == 150
    assert [one.timestamp for one in decode_records(written)] == [1, 1]
