"""Opening a log after a crash or a clean shutdown (B9, B10)."""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log
from harrow.cluster.storage.producers.producer_entry import ProducerEntry
from harrow.cluster.wire.batches import build_batch, header_at, headers
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_host import StorageHost

NOW = 1_700_000_000_000
ALL = Offset(2**40)
TOPIC: dict[str, object] = {"internal.segment.bytes": 600, "index.interval.bytes": 100}


def batch(number: int, count: int = 2) -> bytes:
    return build_batch(
        [(b"k%02d" % number, bytes(20), ())] * count,
        timestamp_ms=NOW + number,
        producer_id=7,
        producer_epoch=0,
        base_sequence=number * count,
    )


def fill(log: Log, batches: int = 20) -> None:
    for number in range(batches):
        log.append_as_leader(batch(number), LeaderEpoch(number // 5))


def contents(log: Log) -> bytes:
    data = b""
    offset: int = log.log_start_offset
    while parts := log.read(Offset(offset), 10**9, ALL, at_least_one=True).parts:
        piece = b"".join(bytes(part) for part in parts)
        data += piece
        offset = max(placed.header.last_offset for placed in headers(piece)) + 1
    return data


def index_bytes(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*index"))}


def last_log(folder: Path) -> Path:
    return max(folder.glob("*.log"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def recovered(host: StorageHost) -> list[dict[str, Any]]:
    return [fields for event, fields in host.notes.events if event == "log.recovered"]


def test_torn_end_of_the_log_loses_only_the_last_batch(folder: Path) -> None:
    host = StorageHost()
    log = host.open(str(folder))
    fill(log, 4)
    data = contents(log)
    log.abandon()
    path = last_log(folder)
    whole = path.read_bytes()
    size = len(batch(0))
    for missing in range(1, size):
        path.write_bytes(whole[:-missing])
        host = StorageHost()
        log = host.open(str(folder), clean=False)
        assert log.log_end_offset == 6
        assert contents(log) == data[:-size]
        (event,) = recovered(host)
        assert event["truncated_bytes"] == size - missing
        assert (event["reason"] == "") == (missing == size)
        assert "cut off" in event["reason"]
        entry = log.producers.get(7)
        assert entry is not None
        assert entry.batches[-1].last_offset == 5
        log.abandon()
        assert path.stat().st_size == len(whole) - size


def test_flipped_byte_truncates_the_log_before_its_batch(folder: Path) -> None:
    log = StorageHost().open(str(folder), TOPIC)
    appended_states: list[ProducerEntry | None] = [None]
    for number in range(20):
        log.append_as_leader(batch(number), LeaderEpoch(number // 5))
        appended_states.append(log.producers.get(7))
    data = contents(log)
    log.abandon()
    size = len(batch(0))
    paths = sorted(folder.glob("*.log"))
    chance = random.Random(5)
    for _ in range(80):
        copy = folder.parent / "copy-0"
        shutil.copytree(folder, copy)
        position = chance.randrange(len(data))
        bad = position // size
        starts = list(accumulate((path.stat().st_size for path in paths), initial=0))
        number = bisect_right(starts, position) - 1
        path = copy / paths[number].name
        changed = bytearray(path.read_bytes())
        changed[position - starts[number]] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        host = StorageHost()
        log = host.open(str(copy), TOPIC, clean=False)
        found = contents(log)
        if position % size in range(
            12, 16
        ):  # the CRC does not cover the leader epoch, but recovery refuses an epoch that falls
            epochs = [at // 5 for at in range(20)]
            epochs[bad] = header_at(changed, (position // size) * size - starts[number]).leader_epoch
            falls = (at for at in range(20) if 0 <= epochs[at] < max(epochs[:at], default=0))
            assert len(found) == next(falls, 20) * size
        elif position % size < 8 and bad == 19 and log.log_end_offset > 40:
            pass  # the CRC does not cover the base offset: a jump in the last batch looks like a gap of compaction
        else:
            assert found == data[: bad * size]
            now, then = log.producers.get(7), appended_states[bad]
            assert (now is None) == (then is None)
            if now is not None and then is not None:  # a snapshot keeps only the last of the five batches
                assert now.batches == then.batches[-len(now.batches) :]
        log.abandon()
        shutil.rmtree(copy)


def test_recovery_reads_segments_from_the_recovery_point(folder: Path) -> None:
    log = StorageHost().open(str(folder), TOPIC)
    fill(log)
    log.flush()
    log.abandon()
    first = min(folder.glob("*.log"))
    changed = bytearray(first.read_bytes())
    changed[-1] ^= 1
    first.write_bytes(changed)
    host = StorageHost()
    log = host.open(str(folder), TOPIC, clean=False, recovery_point=40)
    assert log.log_end_offset == 40  # recovery does not read a damaged byte below the recovery point
    assert recovered(host)[0]["segments_read"] == 1
    log.abandon()
    host = StorageHost()
    log = host.open(str(folder), TOPIC, clean=False, recovery_point=0)
    assert log.log_end_offset < 12
    (event,) = recovered(host)
    assert event["segments_removed"] > 2
    assert "CRC" in event["reason"]
    assert len(list(folder.glob("*.log"))) == 1


def test_recovery_rebuilds_the_indexes_byte_for_byte(folder: Path) -> None:
    log = StorageHost().open(str(folder), TOPIC)
    fill(log)
    log.close()
    before = index_bytes(folder)
    assert any(before.values())
    for path in folder.glob("*index"):
        path.unlink()
    log = StorageHost().open(str(folder), TOPIC, clean=False)
    log.close()
    assert index_bytes(folder) == before


@pytest.mark.parametrize("damage", ["missing", "odd size", "points past the end", "goes back"])
def test_broken_index_is_rebuilt_after_a_clean_shutdown(folder: Path, damage: str) -> None:
    log = StorageHost().open(str(folder), TOPIC)
    fill(log)
    data = contents(log)
    log.close()
    before = index_bytes(folder)
    path = min(folder.glob("*.index"))
    if damage == "missing":
        path.unlink()
    elif damage == "odd size":
        path.write_bytes(path.read_bytes() + b"x")
    elif damage == "points past the end":
        path.write_bytes(struct.pack(">ii", 1, 10**6))
    else:
        path.write_bytes(struct.pack(">ii", -5, 0))
    host = StorageHost()
    log = host.open(str(folder), TOPIC)
    assert contents(log) == data
    assert path.name in recovered(host)[0]["reason"]
    log.close()
    assert index_bytes(folder) == before


def test_opening_after_a_clean_shutdown_reads_no_records(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    fill(log, 200)
    data = contents(log)
    log.close()
    host = StorageHost()
    log = host.open(str(folder))
    assert host.disk.reads <= 4
    assert recovered(host) == []
    assert (log.log_end_offset, log.recovery_point) == (400, 400)
    assert contents(log) == data
    log.append_as_leader(batch(200), LeaderEpoch(40))
    assert log.offset_for_timestamp(NOW + 200) == (NOW + 200, 400, 40)


def test_opening_removes_leftover_files(folder: Path) -> None:
    log = StorageHost().open(str(folder), TOPIC)
    fill(log)
    data = contents(log)
    log.close()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000008.log.cleaned",
        "00000000000000000008.log.swap",
        "00000000000000000777.index",
        "leader-epoch-checkpoint.tmp",
    ):
        (folder / name).write_bytes(b"rubbish")
    log = StorageHost().open(str(folder), TOPIC)
    assert contents(log) == data
    suffixes = {path.suffix for path in folder.iterdir()}
    assert suffixes <= {".log", ".index", ".timeindex", ".snapshot", ""}
    assert not (folder / "00000000000000000777.index").exists()


def test_opening_completes_a_swap(folder: Path) -> None:
    log = StorageHost().open(str(folder), TOPIC)
    fill(log)
    data = contents(log)
    log.close()
    paths = sorted(folder.glob("*.log"))
    merged = paths[0].read_bytes() + paths[1].read_bytes()
    (folder / f"{paths[0].name}.swap").write_bytes(merged)
    log = StorageHost().open(str(folder), TOPIC)
    assert contents(log) == data
    assert len(log.segments) == len(paths) - 1


def test_opening_a_log_that_ends_below_its_start_restarts_it_empty_at_the_start(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    fill(log, 3)
    log.close()
    host = StorageHost()
    log = host.open(str(folder), clean=False, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (50, 50, 0)
    assert log.epochs.entries() == []
    assert log.append_as_leader(batch(9), LeaderEpoch(9)).first_offset == 50


def test_recovery_removes_epochs_above_the_log_end_and_restores_lost_epochs(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    fill(log)
    entries = log.epochs.entries()
    assert len(entries) == 4
    log.abandon()
    checkpoint = folder / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n1\nnonsense\n")
    log = StorageHost().open(str(folder))
    assert log.epochs.entries() == entries
    log.abandon()
    path = last_log(folder)
    path.write_bytes(path.read_bytes()[: 6 * len(batch(0))])
    log = StorageHost().open(str(folder), clean=False)
    assert log.epochs.entries() == entries[:2]


def test_recovery_truncates_zeros_at_the_end(folder: Path) -> None:
    log = StorageHost().open(str(folder))
    fill(log, 3)
    log.abandon()
    path = last_log(folder)
    path.write_bytes(path.read_bytes() + bytes(5_000))
    host = StorageHost()
    assert host.open(str(folder), clean=False).log_end_offset == 6
    assert recovered(host)[0]["truncated_bytes"] == 5_000


@settings(max_examples=40)
@given(st.data())
def test_recovery_after_a_crash_restores_a_prefix_of_the_log(data: st.DataObject) -> None:
    """Appends, truncations and flushes; then the last file loses bytes above the recovery point."""
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp) / "orders-0"
        host = StorageHost()
        log = host.open(str(folder), TOPIC)
        number = 0
        for step in data.draw(st.lists(st.sampled_from("aaaaaftr"), max_size=40)):
            if step == "a":
                log.append_as_leader(
                    build_batch([(None, bytes(30), ())] * 2, timestamp_ms=NOW + number), LeaderEpoch(number // 7)
                )
                number += 1
            elif step == "f":
                log.flush()
            elif step == "t":
                end = int(log.log_end_offset)
                log.truncate_to(Offset(data.draw(st.integers(0, end))))
            else:
                host.tasks.run()
        before, point = contents(log), log.recovery_point
        segment = log.segments[-1]
        base, size = segment.base_offset, segment.size
        safe = size
        if point < log.log_end_offset:
            found = segment.find(max(point, base))
            safe = found[0] if found else size
        log.abandon()
        cut = data.draw(st.integers(safe, size))
        path = last_log(folder)
        path.write_bytes(path.read_bytes()[:cut])
        for index in folder.glob("*index"):  # the newest indexes were never flushed
            if int(index.stem) == base:
                index.unlink()
        again = StorageHost().open(str(folder), TOPIC, clean=False, recovery_point=point)
        after = contents(again)
        assert before.startswith(after)
        assert again.log_end_offset >= min(point, log.log_end_offset)
        assert len(before) - len(after) <= size - cut + 200
        again.close()
        assert contents(StorageHost().open(str(folder), TOPIC)) == after
