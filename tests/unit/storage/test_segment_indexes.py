"""The index files of a segment (B3, B4) and lookups through them (B5)."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from harrow.cluster.errors import CorruptLogError
from harrow.cluster.host.seam import MappedFile
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log
from harrow.cluster.storage.indexes.offset_index import OffsetIndex
from harrow.cluster.storage.indexes.sparse_index import IndexMaps
from harrow.cluster.storage.indexes.time_index import TimeIndex
from harrow.cluster.wire.batches import build_batch, header_at, headers
from storage_host import RefusingDisk, StorageHost

NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(3)
INTERVAL = 300
TOPIC: dict[str, object] = {
    "internal.segment.bytes": 4_000,
    "index.interval.bytes": INTERVAL,
    "segment.index.bytes": 1_003,
}


def fill(log: Log, count: int, *, first: int = 0, size: int = 40) -> None:
    """Append batches whose timestamps sometimes fall; the entries of the time index must not."""
    for number in range(first, first + count):
        time = NOW + number * 10 - (35 if number % 3 == 0 else 0)
        log.append_as_leader(build_batch([(None, bytes(size), ())] * 2, timestamp_ms=time), EPOCH)


def expected_indexes(path: Path) -> tuple[bytes, bytes]:
    """Compute both index files of a sealed segment from its log, as Kafka's append does."""
    base = int(path.stem)
    offsets, times = b"", b""
    since, newest, newest_offset, last_time = 0, -1, base, -1
    for position, size, header in headers(path.read_bytes(), partial_ok=False):
        if header.max_timestamp > newest:
            newest, newest_offset = header.max_timestamp, header.last_offset
        if since > INTERVAL:
            offsets += struct.pack(">ii", header.last_offset - base, position)
            if newest > last_time:
                times += struct.pack(">qi", newest, newest_offset - base)
                last_time = newest
            since = 0
        since += size
    if newest > last_time:
        times += struct.pack(">qi", newest, newest_offset - base)
    return offsets, times


def test_sealed_indexes_equal_kafkas_byte_for_byte(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    log = StorageHost().open(str(folder), TOPIC)
    fill(log, 100)
    log.close()
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    for path in logs:
        offsets, times = expected_indexes(path)
        assert path.with_suffix(".index").read_bytes() == offsets
        assert path.with_suffix(".timeindex").read_bytes() == times
        assert len(offsets) > 8


def test_index_is_preallocated_while_active_and_trimmed_at_roll_and_close(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    log = StorageHost().open(str(folder), TOPIC)
    index, times = folder / f"{0:020d}.index", folder / f"{0:020d}.timeindex"
    fill(log, 10)
    assert (index.stat().st_size, times.stat().st_size) == (1_000, 996)
    written = index.read_bytes()
    assert written[:8] == struct.pack(">ii", 5, 310)
    assert not any(written[-500:])
    log.roll()
    assert 0 < index.stat().st_size < 100
    assert times.read_bytes()[-12:] == struct.pack(">qi", NOW + 80, 17)
    fill(log, 5, first=10)
    active = folder / f"{20:020d}.index"
    log.abandon()
    assert active.stat().st_size == 1_000, "a crash leaves the preallocated file"
    log = StorageHost().open(str(folder), TOPIC, clean=False)
    log.close()
    assert active.read_bytes() == expected_indexes(active.with_suffix(".log"))[0]


def test_reopened_active_index_is_extended_and_trimmed_again(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    log = StorageHost().open(str(folder), TOPIC)
    fill(log, 15)
    log.close()
    before = (folder / f"{0:020d}.index").read_bytes()
    log = StorageHost().open(str(folder), TOPIC)
    assert (folder / f"{0:020d}.index").read_bytes() == before, "the file is mapped only when an entry is written"
    fill(log, 10, first=15)
    log.close()
    after = (folder / f"{0:020d}.index").read_bytes()
    assert after.startswith(before)
    assert len(after) > len(before)
    log = StorageHost().open(str(folder), TOPIC)
    for offset in range(50):
        found = log.segments[0].find(offset)
        assert found is not None
        assert found[1] == offset - offset % 2


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("kept", [1, 3, 20])
def test_lookups_keep_a_bounded_number_of_mappings(tmp_path: Path, kept: int, small: bool) -> None:
    maps = IndexMaps(kept, kept)
    indexes: list[OffsetIndex] = []
    for number in range(12):
        path = tmp_path / f"{number}.index"
        more = b"" if small else b"".join(struct.pack(">ii", 80 + n, 99 + n) for n in range(200))
        path.write_bytes(struct.pack(">iiii", 3, 10 + number, 9, 50 + number) + more)
        index = OffsetIndex(RefusingDisk(), str(path), number * 100, bytes_max=800, maps=maps)
        index.load(may_be_absent=False)
        indexes.append(index)
    for _ in range(3):
        for number, index in enumerate(indexes):
            base = number * 100
            found = [index.lookup(base + relative) for relative in (2, 3, 8, 9, 70)]
            assert found == [0, 10 + number, 10 + number, 50 + number, 50 + number]
        assert sum(index.is_mapped for index in indexes) == min(kept, 12)


def bytes_of(part: object) -> bytes:
    read = getattr(part, "read", None)
    return read() if read is not None else bytes(part)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_lookup_with_a_foreign_index_finds_every_record(tmp_path: Path, suffix: str) -> None:
    """The foreign index passes every check that Kafka makes, and holds another file's positions."""
    folder = tmp_path / "orders-0"
    log = StorageHost().open(str(folder), TOPIC)
    fill(log, 60, size=10)
    fill(log, 60, first=60, size=120)
    log.close()
    paths = sorted(folder.glob("*.log"))
    shutil.copy(paths[0].with_suffix(suffix), paths[-2].with_suffix(suffix))
    shutil.copy(paths[-3].with_suffix(suffix), paths[0].with_suffix(suffix))
    log = StorageHost().open(str(folder), TOPIC, tail_bytes=0)
    for offset in range(240):
        (part,) = log.read(Offset(offset), 1, Offset(240), at_least_one=True).parts
        assert header_at(bytes_of(part)).base_offset == offset - offset % 2
    if suffix == ".index":
        for number in range(120):
            time = NOW + number * 10 - (35 if number % 3 == 0 else 0)
            assert log.offset_for_timestamp(time) is not None


class ClosingDisk(RefusingDisk):
    """Closes its first `closings` mappings at once: as if the event loop sealed the index during a thread's lookup."""

    __slots__ = ("closings",)

    def __init__(self, closings: int) -> None:
        super().__init__()
        self.closings = closings

    def map(self, path: str, size: int) -> MappedFile:
        mapped = super().map(path, size)
        if self.closings:
            self.closings -= 1
            mapped.close()
        return mapped


def test_lookup_with_a_closed_mapping_is_repeated(tmp_path: Path) -> None:
    """B5: a thread looks up while the event loop closes the mapping."""
    path = str(tmp_path / "x.timeindex")
    later = b"".join(
        struct.pack(">qi", 1_000 + n, 10 + n) for n in range(200)
    )  # too many entries for a lookup without a mapping
    Path(path).write_bytes(struct.pack(">qiqi", 5, 1, 9, 4) + later)
    disk = ClosingDisk(0)
    index = TimeIndex(disk, path, 100, bytes_max=120, maps=IndexMaps())
    index.load(may_be_absent=False)
    index.close()
    disk.closings = 2
    assert index.lookup(7) == (5, 101)
    index.close()
    disk.closings = 100
    with pytest.raises(ValueError, match="released"):
        index.lookup(7)


@pytest.mark.parametrize("data", [bytes(11), struct.pack(">qiqi", 9, 1, 5, 4), struct.pack(">qi", 9, -4), bytes(24)])
def test_load_of_a_malformed_time_index_is_refused(tmp_path: Path, data: bytes) -> None:
    path = str(tmp_path / "x.timeindex")
    Path(path).write_bytes(data)
    index = TimeIndex(RefusingDisk(), path, 100, bytes_max=120, maps=IndexMaps())
    with pytest.raises(CorruptLogError, match="timeindex"):
        index.load(may_be_absent=False)
    assert len(index) == 0


def test_lookup_by_timestamp_uses_the_segment_that_first_reached_it(tmp_path: Path) -> None:
    log = StorageHost().open(str(tmp_path / "orders-0"), {**TOPIC, "internal.segment.bytes": 500})
    times = [10, 90, 20, 30, 40, 50, 60, 70, 80, 100, 95, 110, 105, 120, 130, 140]
    for time in times:
        log.append_as_leader(build_batch([(None, bytes(60), ())], timestamp_ms=time), EPOCH)
    assert len(log.segments) > 3
    for round_ in range(2):
        for timestamp in range(150):
            expected = next(((t, o, EPOCH) for o, t in enumerate(times) if t >= timestamp), None)
            assert log.offset_for_timestamp(timestamp) == expected, (round_, timestamp)
        for time in (150, 145, 160):  # rolls keep the largest timestamps of the sealed segments
            log.append_as_leader(build_batch([(None, bytes(60), ())], timestamp_ms=time), EPOCH)
            times.append(time)
    log.delete_oldest(2)
    start = log.log_start_offset
    for timestamp in range(165):
        expected = next(((t, o, EPOCH) for o, t in enumerate(times) if t >= timestamp and o >= start), None)
        assert log.offset_for_timestamp(timestamp) == expected


def test_truncate_keeps_a_largest_timestamp_that_the_full_time_index_does_not_hold(
    host: StorageHost, folder: str
) -> None:
    topic: dict[str, object] = {"segment.index.bytes": 60, "index.interval.bytes": 61}
    log = host.open(folder, topic, tail_bytes=0)
    times = [0, 1, 2, 3, 4, 100, 5, 6, 7, 8, 9, 10]
    batches = [
        build_batch([(None, bytes(10), ())], timestamp_ms=NOW + time, base_offset=at, leader_epoch=1)
        for at, time in enumerate(times)
    ]
    log.append_as_follower(b"".join(batches))  # one append writes all batches to one segment
    assert log.segments[-1].times.is_full
    log.truncate_to(Offset(7))
    assert log.segments[-1].max_timestamp == NOW + 100
    assert log.offset_for_timestamp(NOW + 50) == (NOW + 100, 5, 1)
