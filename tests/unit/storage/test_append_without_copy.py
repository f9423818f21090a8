"""B12: a leader's append writes a new header and the producer's bytes, unchanged and uncopied, in one write.

The file and the tail in memory hold the same bytes as a patched copy. The tail keeps a request's buffer as a
whole or copies from it, so that the counted memory is the memory in use (`may_share`).
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from harrow.cluster.errors import StorageError
from harrow.cluster.host.power_loss.tracked_disk import TrackedDisk
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.host.seam import Disk
from harrow.cluster.host.simulated.disk import SimDisk
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, Origin
from harrow.cluster.storage.appending import SHARED_BYTES_LEAST, may_share
from harrow.cluster.storage.segment import LogSegment
from harrow.cluster.wire.batch_header import LOG_APPEND_TIME
from harrow.cluster.wire.batches import (
    HEADER_SIZE,
    Codec,
    assign_offset,
    build_batch,
    build_end_txn_marker,
    crc_matches,
    decode_records,
    headers,
    stamp,
)
from storage_host import StorageHost

EPOCH = LeaderEpoch(7)
NOW = 1_700_000_000_000
ALL = Offset(2**62)
LARGE = 3 * SHARED_BYTES_LEAST


def batch(
    size: int = LARGE,
    seed: int = 1,
    *,
    codec: int = 0,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    value = random.Random(seed).randbytes(size)
    return build_batch(
        [(b"k", value, ()), (b"l", None, ())],
        timestamp_ms=NOW,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=3 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def placed(sent: bytes, offset: int) -> bytes:
    """A patched copy of the batch: the bytes that the log must hold."""
    patched = bytearray(sent)
    assign_offset(patched, offset, EPOCH)
    return bytes(patched)


def on_disk(log: Log) -> bytes:
    return b"".join(Path(segment.file.path).read_bytes() for segment in log.segments)


def in_memory(host: StorageHost, log: Log) -> list[bytes | bytearray | memoryview]:
    """Return all parts of a read at the log start offset; assert that no part comes from a file."""
    host.disk.reads = 0
    parts = log.read(log.log_start_offset, 10**9, ALL, at_least_one=True).parts
    assert host.disk.reads == 0
    return parts


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("producer", [-1, 5])
@pytest.mark.parametrize("size", [50, SHARED_BYTES_LEAST - 200, SHARED_BYTES_LEAST, LARGE])
def test_append_writes_the_bytes_of_a_patched_copy(
    host: StorageHost, folder: str, codec: Codec, producer: int, size: int
) -> None:
    log = host.open(folder)
    wanted = b""
    for number in range(4):
        known = producer >= 0
        sent = batch(
            size,
            number,
            codec=codec,
            producer_id=producer,
            sequence=number * 2 if known else -1,
            is_transactional=known and number > 1,
        )
        kept = bytes(bytearray(sent))
        info = log.append_as_leader(sent, EPOCH)
        assert (info.first_offset, info.size, sent) == (number * 2, len(sent), kept)
        wanted += placed(sent, number * 2)
    assert host.disk.appends == 4
    assert on_disk(log) == wanted
    assert b"".join(in_memory(host, log)) == wanted
    entry = log.producers.get(5)
    assert (entry is not None) == (producer >= 0)
    if entry is not None:
        assert [stored.first_offset for stored in entry.batches] == [0, 2, 4, 6]
        assert (entry.last_timestamp, entry.txn_first_offset) == (NOW, 4)


def test_append_of_a_large_batch_keeps_a_header_and_a_view_of_the_frame(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    frame = b"x" * 90 + batch() + b"tags"
    log.append_as_leader(memoryview(frame)[90:-4], EPOCH)
    head, rest = in_memory(host, log)
    assert len(head) == HEADER_SIZE
    assert isinstance(rest, memoryview)
    assert rest.obj is frame


@pytest.mark.parametrize("count", [2, 7])
def test_append_from_a_frame_of_many_partitions_does_not_keep_the_frame(
    host: StorageHost, tmp_path: Path, count: int
) -> None:
    sent = [batch(seed=number) for number in range(count)]
    frame = b"".join(sent)
    view, size = memoryview(frame), len(sent[0])
    before = sys.getrefcount(frame)
    for number in range(count):
        log = host.open(str(tmp_path / f"orders-{number}"))
        log.append_as_leader(view[number * size : (number + 1) * size], EPOCH)
        assert b"".join(in_memory(host, log)) == placed(sent[number], 0)
    assert sys.getrefcount(frame) == before


@pytest.mark.parametrize(("waste", "shared"), [(0, True), (LARGE // 16, True), (LARGE // 4, False), (LARGE, False)])
def test_sharing_a_frame_keeps_at_most_an_eighth_of_uncounted_bytes(waste: int, shared: bool) -> None:
    frame = bytes(waste + LARGE)
    assert may_share(memoryview(frame)[waste:]) is shared


def view_of_bytearray(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


@pytest.mark.parametrize("wrap", [bytearray, view_of_bytearray])
def test_append_copies_a_mutable_buffer(
    host: StorageHost, folder: str, wrap: Callable[[bytes], bytearray | memoryview]
) -> None:
    log = host.open(folder)
    sent = batch()
    given = wrap(sent)
    log.append_as_leader(given, EPOCH)
    given[100:200] = bytes(100)
    assert b"".join(in_memory(host, log)) == on_disk(log) == placed(sent, 0)


def test_append_with_log_append_time_copies_the_batch(host: StorageHost, folder: str) -> None:
    log = host.open(folder, {"message.timestamp.type": "LogAppendTime"})
    host.clock.now = NOW + 77
    for number in range(2):
        sent = batch(seed=number)
        frame = bytes(bytearray(sent))
        info = log.append_as_leader(frame, EPOCH)
        assert (info.first_offset, info.append_time_ms) == (2 * number, NOW + 77)
        assert frame == sent
    data = b"".join(in_memory(host, log))
    assert data == on_disk(log)
    found = list(headers(data, partial_ok=False))
    assert [placed_batch.header.base_offset for placed_batch in found] == [0, 2]
    assert all(crc_matches(data, placed_batch) for placed_batch in found)
    times = {record.timestamp for record in decode_records(data[: found[0].size])}
    assert times == {NOW + 77}
    assert host.disk.appends == 2


def test_append_clears_a_timestamp_type_that_the_producer_set(host: StorageHost, folder: str) -> None:
    """Kafka accepts the batch and clears the bit, which would give every record the largest timestamp."""
    log = host.open(folder)
    sent = bytearray(batch())
    stamp(sent, LOG_APPEND_TIME, NOW + 5)
    info = log.append_as_leader(bytes(sent), EPOCH)
    assert info.append_time_ms == -1
    assert on_disk(log) == b"".join(in_memory(host, log))
    (found,) = headers(on_disk(log), partial_ok=False)
    assert (found.header.is_log_append_time, found.header.max_timestamp) == (False, NOW + 5)
    assert crc_matches(on_disk(log), found)
    assert {record.timestamp for record in decode_records(on_disk(log))} == {NOW}
    assert log.segments[0].max_timestamp == NOW + 5


@pytest.mark.parametrize("size", [50, LARGE])
@pytest.mark.parametrize("more", [1, 12, 40])
def test_append_drops_a_partial_batch_at_the_end(host: StorageHost, folder: str, size: int, more: int) -> None:
    log = host.open(folder)
    for number in range(2):
        sent = batch(size, number)
        info = log.append_as_leader(sent + sent[:more], EPOCH)
        assert (info.size, info.record_count) == (len(sent), 2)
    assert on_disk(log) == placed(batch(size, 0), 0) + placed(batch(size, 1), 2)
    assert b"".join(in_memory(host, log)) == on_disk(log)


def test_marker_after_large_batches_ends_the_transaction(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.append_as_leader(batch(producer_id=9, sequence=0, is_transactional=True), EPOCH)
    assert log.last_stable_offset(log.log_end_offset) == 0
    marker = build_end_txn_marker(commit=False, producer_id=9, producer_epoch=3, coordinator_epoch=0, timestamp_ms=NOW)
    log.append_as_leader(marker, EPOCH, origin=Origin.COORDINATOR)
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    assert [transaction.producer_id for transaction in log.aborted_transactions(Offset(0), ALL)] == [9]
    assert b"".join(in_memory(host, log)) == on_disk(log)


@pytest.mark.parametrize("tail_bytes", [4 * SHARED_BYTES_LEAST, 4 * 1024 * 1024])
def test_read_from_the_tail_returns_the_same_bytes_as_from_the_file(
    host: StorageHost, tmp_path: Path, tail_bytes: int
) -> None:
    rng = random.Random(4)
    tailed = host.open(str(tmp_path / "a-0"), tail_bytes=tail_bytes)
    plain = host.open(str(tmp_path / "b-0"), tail_bytes=0)
    follower = host.open(str(tmp_path / "c-0"), tail_bytes=tail_bytes)
    for number in range(25):
        sent = [batch(rng.choice((20, 700, SHARED_BYTES_LEAST, LARGE)), number)]
        if rng.random() < 0.3:
            sent.append(batch(rng.choice((20, SHARED_BYTES_LEAST)), 100 + number))
        for log, data in itertools.product((tailed, plain), sent):
            log.append_as_leader(data, EPOCH)
        fetched = tailed.read(follower.log_end_offset, 10**6, ALL, at_least_one=True)
        follower.append_as_follower(b"".join(fetched.parts))
    assert on_disk(tailed) == on_disk(plain) == on_disk(follower)
    for offset in range(tailed.log_end_offset):
        for most in (1, SHARED_BYTES_LEAST + 100, LARGE * 2, 10**9):
            upper = Offset(rng.choice((2**62, rng.randrange(tailed.log_end_offset + 1))))
            least = rng.random() < 0.7
            wanted = plain.read(Offset(offset), most, upper, at_least_one=least)
            for log in (tailed, follower):
                found = log.read(Offset(offset), most, upper, at_least_one=least)
                assert b"".join(found.parts) == b"".join(wanted.parts)
                assert (found.size, found.first_offset) == (wanted.size, wanted.first_offset)
    tailed.truncate_to(Offset(tailed.log_end_offset - 3))
    end = on_disk(tailed)
    assert end.endswith(b"".join(tailed.read(Offset(tailed.log_end_offset - 1), 10**9, ALL, at_least_one=True).parts))


# -- refused and partial writes


@pytest.mark.parametrize("torn_bytes", [0, 1, 16, HEADER_SIZE, HEADER_SIZE + 1, LARGE])
def test_torn_append_leaves_no_bytes_of_the_batch(host: StorageHost, folder: str, torn_bytes: int) -> None:
    log = host.open(folder)
    sent = batch()
    log.append_as_leader(sent, EPOCH)
    host.disk.refuse_appends, host.disk.torn_bytes = errno.ENOSPC, torn_bytes
    with pytest.raises(StorageError):
        log.append_as_leader(batch(seed=2), EPOCH)
    assert on_disk(log) == placed(sent, 0)
    host.disk.refuse_appends = 0
    log.abandon()
    again = host.open(folder, clean=False)
    assert again.log_end_offset == 2
    again.append_as_leader(batch(seed=3), EPOCH)
    assert on_disk(again) == placed(sent, 0) + placed(batch(seed=3), 2)


@pytest.mark.parametrize("taken", [0, 5, HEADER_SIZE, HEADER_SIZE + 1000])
@pytest.mark.parametrize("refuses", [False, True])
def test_partial_append_is_completed_or_removed(
    monkeypatch: pytest.MonkeyPatch, host: StorageHost, folder: str, taken: int, refuses: bool
) -> None:
    """A partial `pwritev` is continued; when the rest is refused, the file is restored to its earlier size."""
    log = host.open(folder)
    first = batch()
    log.append_as_leader(first, EPOCH)
    write, write_rest = os.pwritev, os.pwrite

    def partly(fd: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        return write(fd, [b"".join(parts)[:taken]], position)

    def piece(fd: int, data: memoryview, position: int) -> int:
        if refuses:
            raise OSError(errno.ENOSPC, "refused by the test")
        return write_rest(fd, data[:7_000], position)

    monkeypatch.setattr(os, "pwritev", partly)
    monkeypatch.setattr(os, "pwrite", piece)
    second = batch(seed=2)
    if refuses:
        with pytest.raises(StorageError):
            log.append_as_leader(second, EPOCH)
        assert on_disk(log) == placed(first, 0)
    else:
        log.append_as_leader(second, EPOCH)
        assert on_disk(log) == placed(first, 0) + placed(second, 2)


def test_append_of_parts_writes_the_same_bytes_on_every_disk(tmp_path: Path) -> None:
    disks: tuple[Disk, ...] = (
        RealDisk(),
        TrackedDisk(str(tmp_path / "journal"), [str(tmp_path / "tracked")]),
        SimDisk(lambda: 0),
    )
    for number, (disk, root) in enumerate(zip(disks, ("real", "tracked", "sim"), strict=True)):
        path = f"{tmp_path}/{root}/log{number}"
        disk.make_folder(os.path.dirname(path))
        file = disk.open(path)
        whole = b"first" + batch()
        assert file.append((whole[:61], memoryview(whole)[61:])) == 0
        assert file.append((b"", whole[:1], memoryview(whole)[1:])) == len(whole)
        assert file.size() == 2 * len(whole)
        assert file.read_at(0, 10**9) == whole * 2
        file.close()


# -- the indexes


@pytest.mark.parametrize("interval", [0, 500, 4096])
def test_recovery_rebuilds_the_same_indexes_as_appending(host: StorageHost, folder: str, interval: int) -> None:
    rng = random.Random(interval)
    topic: dict[str, object] = {"index.interval.bytes": interval, "internal.segment.bytes": 120_000}
    log = host.open(folder, topic)
    for number in range(150):
        time = NOW + number * 10 - rng.choice((0, 0, 300))
        size = rng.choice((5, 200, 4_000, SHARED_BYTES_LEAST))
        sent = build_batch([(None, rng.randbytes(size), ())], timestamp_ms=time)
        log.append_as_leader(sent, EPOCH)
    assert len(log.segments) > 3
    last = log.segments[-1].max_timestamp
    log.close()
    made = index_files(log.segments)
    assert sum(map(len, made.values())) > 200
    again = host.open(folder, topic, clean=False)
    assert again.segments[-1].max_timestamp == last
    again.close()
    assert index_files(again.segments) == made


@pytest.mark.parametrize(("less", "every"), [(1, 2), (0, 3)])
def test_index_entry_is_added_after_more_than_the_interval(
    host: StorageHost, folder: str, less: int, every: int
) -> None:
    sent = batch(100)
    topic: dict[str, object] = {"index.interval.bytes": 2 * len(sent) - less}
    wanted = [(at * 2 + 1, at * len(sent)) for at in range(every, 13, every)]
    log = host.open(folder, topic)
    for _ in range(13):
        log.append_as_leader(sent, EPOCH)
    for clean in (True, False, True):
        offsets = log.segments[0].offsets
        assert [offsets.entry(at) for at in range(len(offsets))] == wanted
        log.close()
        log = host.open(folder, topic, clean=clean)


@pytest.mark.parametrize("seed", range(4))
def test_recovery_rebuilds_the_same_producer_states_as_appending(host: StorageHost, folder: str, seed: int) -> None:
    rng = random.Random(seed)
    topic: dict[str, object] = {"internal.segment.bytes": 6_000}
    log = host.open(folder, topic)
    sequences: dict[int, int] = {}
    pending: set[int] = set()
    for number in range(120):
        producer = rng.randrange(5)
        if producer in pending and rng.random() < 0.3:
            pending.discard(producer)
            marker = build_end_txn_marker(
                commit=rng.random() < 0.5,
                producer_id=producer,
                producer_epoch=3,
                coordinator_epoch=number,
                timestamp_ms=NOW + number,
            )
            log.append_as_leader(marker, EPOCH, origin=Origin.COORDINATOR)
            continue
        transactional = producer > 1
        sequence = sequences.get(producer, 0)
        sent = batch(
            rng.choice((10, 300)), number, producer_id=producer, sequence=sequence, is_transactional=transactional
        )
        log.append_as_leader(sent, EPOCH)
        sequences[producer] = sequence + 2
        if transactional:
            pending.add(producer)
    end = log.log_end_offset
    known = [entry._replace(marker_offset=-1, batches=entry.batches[-1:]) for entry in log.producers.entries()]
    stable, aborted = log.last_stable_offset(end), log.aborted_transactions(Offset(0), end)
    assert aborted
    log.abandon()
    again = host.open(folder, topic, clean=False)
    assert [entry._replace(marker_offset=-1) for entry in again.producers.entries()] == known
    assert again.last_stable_offset(end) == stable
    assert again.aborted_transactions(Offset(0), end) == aborted


def index_files(segments: Sequence[LogSegment]) -> dict[str, bytes]:
    paths = [segment.path_of(kind) for segment in segments for kind in (".index", ".timeindex")]
    return {path: Path(path).read_bytes() for path in paths}
