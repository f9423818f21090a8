"""The parts of compaction (B8): record spans, the offset map, the record filter."""

from __future__ import annotations

import tracemalloc

import pytest
from harrow.cluster.errors import CorruptLogError
from harrow.cluster.storage.compaction.offset_map import ENTRY_BYTES, OffsetMap
from harrow.cluster.storage.compaction.record_filter import RecordFilter
from harrow.cluster.storage.record_spans import record_spans
from harrow.cluster.wire.batches import HEADER_SIZE, build_batch, decode_records, header_at


def test_record_spans_match_the_decoded_records() -> None:
    keys = [None, b"", b"k", b"k" * 70, b"k" * 9_000]
    values = [None, b"", b"v", b"v" * 200]
    new = [(key, value, (("h", None), ("i", b"x"))) for key in keys for value in values]
    times = [10**12 + 7**n for n in range(len(new))]
    batch = build_batch(new, timestamp_ms=0, timestamps_ms=times)
    spans = record_spans(bytes(batch[HEADER_SIZE:]), len(new))
    decoded = decode_records(batch)
    assert [span[2:] for span in spans] == [(record.offset, record.key, record.value is not None) for record in decoded]
    assert spans[-1][1] == len(batch) - HEADER_SIZE
    for missing in (1, 20, 100):
        with pytest.raises(CorruptLogError):
            record_spans(bytes(batch[HEADER_SIZE:-missing]), len(new))


def test_offset_map_distinguishes_long_keys_in_bounded_memory() -> None:
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


def test_filter_sets_a_delete_horizon_only_on_cleaned_offsets() -> None:
    offsets = OffsetMap(10**6)
    offsets.update_latest_offset(0)
    keep = RecordFilter(offsets, now_ms=100, delete_retention_ms=50)
    batch = memoryview(build_batch([(b"a", None, ()), (b"b", b"", ())], timestamp_ms=1))
    assert keep.filter_data(batch, header_at(batch), retain_empty=False) is batch
    offsets.update_latest_offset(1)
    keep = RecordFilter(offsets, now_ms=100, delete_retention_ms=50)
    written = keep.filter_data(batch, header_at(batch), retain_empty=False)
    assert header_at(written).base_timestamp == 150
    assert [record.timestamp for record in decode_records(written)] == [1, 1]
