"""B6: each reason to roll a segment, as the trace names it; offsets that are 2^31 apart."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log
from harrow.cluster.wire.batches import build_batch, headers
from storage_host import StorageHost

NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(0)
SIZE = len(build_batch([(None, bytes(30), ())], timestamp_ms=NOW))


def batch(time: int = NOW) -> bytes:
    return build_batch([(None, bytes(30), ())], timestamp_ms=time)


def at(offset: int, time: int = NOW) -> bytes:
    return struct.pack(">q", offset) + batch(time)[8:]


def rolled(host: StorageHost) -> list[tuple[object, object]]:
    return [(fields["base_offset"], fields["reason"]) for event, fields in host.notes.events if event == "log.rolled"]


def test_append_rolls_by_size(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"internal.segment.bytes": 3 * SIZE})
    for _ in range(7):
        log.append_as_leader(batch(), EPOCH)
    assert rolled(host) == [(3, "size"), (6, "size")]


def test_append_rolls_by_the_age_of_the_records(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"segment.ms": 1_000})
    for time in (0, 1_000, 500, 1_001, 2_001, 2_002):
        log.append_as_leader(batch(NOW + time), EPOCH)
    assert rolled(host) == [(3, "age"), (5, "age")]


def test_append_after_a_restart_rolls_by_the_age_of_the_records(host: StorageHost, folder: str) -> None:
    """Opening reads the first timestamp of the active segment from the file."""
    log = host.open(folder, {"segment.ms": 1_000})
    log.append_as_leader(batch(), EPOCH)
    log.close()
    log = host.open(folder, {"segment.ms": 1_000})
    host.clock.now += 10**6  # the clock has no effect on records with timestamps
    log.append_as_leader(batch(NOW + 1_000), EPOCH)
    log.append_as_leader(batch(NOW + 1_001), EPOCH)
    assert rolled(host) == [(2, "age")]


def test_append_without_timestamps_rolls_by_the_clock(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"segment.ms": 1_000})
    log.append_as_leader(batch(-1), EPOCH)
    host.clock.now += 1_000
    log.append_as_leader(batch(-1), EPOCH)
    host.clock.now += 1
    log.append_as_leader(batch(-1), EPOCH)
    assert rolled(host) == [(2, "age")]


def test_segment_jitter_lowers_the_age_of_a_roll(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"segment.ms": 1_000, "segment.jitter.ms": 1_000})
    jitter = StorageHost().random.randrange(1_000)
    log.append_as_leader(batch(), EPOCH)
    log.append_as_leader(batch(NOW + 1_000 - jitter), EPOCH)
    log.append_as_leader(batch(NOW + 1_001 - jitter), EPOCH)
    assert jitter > 0
    assert rolled(host) == [(2, "age")]


def test_append_rolls_by_a_full_offset_index(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"index.interval.bytes": 0, "segment.index.bytes": 40})
    for _ in range(8):
        log.append_as_leader(batch(), EPOCH)  # equal timestamps: the time index has one entry
    assert rolled(host) == [(6, "offset index full")]


def test_append_rolls_by_a_full_time_index(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"index.interval.bytes": 0, "segment.index.bytes": 40})
    for number in range(8):
        log.append_as_leader(batch(NOW + number), EPOCH)
    # three entries of 12 bytes, the last reserved for sealing; the first batch has none
    assert rolled(host) == [(3, "time index full"), (6, "time index full")]
    times = (Path(folder) / f"{0:020d}.timeindex").read_bytes()
    assert [row[0] - NOW for row in struct.iter_unpack(">qi", times)] == [1, 2]


def test_append_rolls_by_offset_overflow(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"cleanup.policy": "compact"})
    far = 2**31
    log.append_as_follower(at(0) + at(far - 1))  # the last offset that fits into 31 bits
    log.append_as_follower(at(far))
    assert rolled(host) == [(far, "offset overflow")]
    assert bases(log) == [0, far]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_append_of_a_fetch_with_a_gap_of_2_to_the_31_writes_two_segments(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"cleanup.policy": "compact"})
    far = 3_000_000_000
    log.append_as_follower(at(5) + at(far) + at(far + 1))
    assert bases(log) == [0, far]
    assert log.log_end_offset == far + 2
    log.close()
    log = host.open(folder, {"cleanup.policy": "compact"}, tail_bytes=0)
    for offset, base in ((0, 5), (6, far), (far + 1, far + 1)):
        found = log.read(Offset(offset), 10**6, Offset(2**40), at_least_one=True)
        assert found.first_offset == base


def test_append_beyond_the_offset_range_of_an_empty_segment_rolls(host: StorageHost, folder: str) -> None:
    """A new follower of a compacted log whose first record has a large offset."""
    log = host.open(folder, {"cleanup.policy": "compact"})
    far = 3_000_000_000
    log.append_as_follower(at(far))
    assert bases(log) == [0, far]
    log.close()
    log = host.open(folder, {"cleanup.policy": "compact"})
    assert (log.log_start_offset, log.log_end_offset) == (0, far + 1)
    assert log.read(Offset(0), 100, Offset(2**40), at_least_one=True).first_offset == far


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("torn", [0, 7])
def test_opening_splits_a_segment_beyond_the_offset_range(
    host: StorageHost, folder: str, clean: bool, torn: int
) -> None:
    """KAFKA-6264: an old cleaner made such segments; opening splits them and loses only a torn end."""
    far = 3_000_000_000
    path = Path(folder)
    path.mkdir()
    whole = at(0) + at(1) + at(far) + at(far + 1) + at(2 * far)
    (path / f"{0:020d}.log").write_bytes(whole[: len(whole) - torn])
    log = host.open(folder, clean=clean, tail_bytes=0)
    assert "recovery.before-split" in host.notes.hits
    assert bases(log) == ([0, far] if torn else [0, far, 2 * far])
    data = b"".join((path / f"{base:020d}.log").read_bytes() for base in bases(log))
    assert data == (whole[: 4 * SIZE] if torn else whole)
    assert [p.header.base_offset for p in headers(data)][:4] == [0, 1, far, far + 1]
    assert not list(path.glob("*.swap"))
    log.close()
    again = StorageHost()
    again.open(folder)
    assert again.notes.events == []


def test_roll_of_an_empty_segment_does_nothing(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.roll("retention")
    assert rolled(host) == []
    log.append_as_leader(batch(), EPOCH)
    log.roll("retention")
    log.roll("retention")
    assert rolled(host) == [(1, "retention")]
    assert (Path(folder) / f"{1:020d}.snapshot").exists()
