"""Compaction loses nothing when a crash interrupts it (B8): before each change of the disk, at each failpoint.

A log is compacted on a disk that crashes before its n-th change, for every n, and again at every hit of every
failpoint. The real loader then opens the folder as after a crash, and the result is compared with a model.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from compacted_logs import Compaction, CrashHost, Model, crashes, read_batches, records
from harrow.cluster.host.seam.failpoints import DECLARED
from harrow.cluster.ids import Offset
from storage_host import StorageHost

TOPIC: dict[str, object] = {"internal.segment.bytes": 800, "delete.retention.ms": 0}


def prepared(folder: Path, host: StorageHost) -> tuple[Compaction, Model]:
    """A log with three groups of segments to swap, tombstones past their horizon, an aborted transaction, producers."""
    log = Compaction(str(folder / "orders-0"), TOPIC, host=host)
    model = Model()

    def put(*pairs: tuple[bytes, bytes | None], **batch: object) -> None:
        model.note(log.put(*pairs, **batch), pairs)

    put((b"once", b"only here"), (b"gone", b"soon"))
    put((b"gone", None))
    for number in range(8):
        put((b"a%d" % (number % 3), b"first %d" % number))
    log.seal_and_clean()
    host.clock.now += 10
    for number in range(14):
        put((b"a%d" % (number % 5), b"second %d" % number), (b"b%d" % (number % 8), b"x" * 60))
    put((b"p", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put((b"p", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    log.put((b"a1", b"aborted"), producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(9, commit=False)
    put((b"p", b"3"), (b"a2", None))
    log.log.roll()
    put((b"a3", b"in the active segment"))
    log.log.flush()
    return log, model


def reopened(folder: Path, point: int) -> None:
    """Open the folder that the crash left, twice: the second opening changes nothing."""
    host = StorageHost()
    log = host.open(
        str(folder / "orders-0"),
        {**TOPIC, "cleanup.policy": "compact"},
        clean=False,
        recovery_point=point,
        tail_bytes=0,
    )
    assert not list((folder / "orders-0").glob("*.swap"))
    assert not list((folder / "orders-0").glob("*.cleaned"))
    assert not list((folder / "orders-0").glob("*.deleted"))
    bases = [segment.base_offset for segment in log.segments]
    on_disk = sorted(int(path.stem) for path in (folder / "orders-0").glob("*.log"))
    assert bases == on_disk
    entry = log.producers.get(7)
    assert entry is not None
    assert entry.batches[-1].last_sequence == 1
    log.abandon()


def check(folder: Path, model: Model, end: int, point: int) -> None:
    reopened(folder, point)
    host = StorageHost()
    log = host.open(
        str(folder / "orders-0"),
        {**TOPIC, "cleanup.policy": "compact"},
        clean=False,
        recovery_point=point,
        tail_bytes=0,
    )
    assert log.log_end_offset == end
    found = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    aborted = {(transaction.first_offset, transaction.last_offset) for transaction in found}
    covered = {offset for first, last in aborted for offset in range(first, last + 1)}
    for header, inside in read_batches(log):
        if header.producer_id == 9 and inside:
            assert header.base_offset in covered, "an aborted record would be read as committed"
    for record in records(log):
        if record.offset not in model.appended:  # an aborted record that is not removed yet
            model.appended[record.offset] = (b"a1", b"aborted")
    kept = Model({o: pair for o, pair in model.appended.items() if pair[1] != b"aborted"})
    visible = [record for record in records(log) if record.value != b"aborted"]
    values = {record.key: record.value for record in visible}
    for key, (_, value) in kept.newest().items():
        assert values.get(key) == value
    offsets = [record.offset for record in visible]
    assert offsets == sorted(set(offsets))
    assert all(kept.appended[r.offset] == (r.key, r.value) for r in visible)
    active = [record for record in visible if record.offset == end - 1]
    assert active, "the active segment is unchanged"
    log.abandon()


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, int, int]:
    """A folder to copy, as it is before the compaction; its model, its log end offset, its recovery point."""
    folder = tmp_path_factory.mktemp("rest")
    log, model = prepared(folder, StorageHost())
    end, point = log.log.log_end_offset, log.log.recovery_point
    log.log.close()
    return folder, model, end, point


def compaction(folder: Path, rest: Path) -> tuple[Compaction, CrashHost]:
    shutil.copytree(rest, folder, dirs_exist_ok=True, copy_function=shutil.copy)
    host = CrashHost()
    host.clock.now += 20
    topic = {**TOPIC, "internal.segment.bytes": 1_700}  # several old segments make a new one
    return Compaction(str(folder / "orders-0"), topic, host=host), host


def test_compaction_without_a_crash_swaps_several_groups_and_hits_every_failpoint(
    tmp_path: Path, prepared_folder: tuple[Path, Model, int, int]
) -> None:
    rest, model, end, point = prepared_folder
    log, host = compaction(tmp_path, rest)
    before = log.log.size
    begin = len(host.disk.changes)
    assert log.clean()
    assert log.log.size < before * 0.8
    changes = host.disk.changes[begin:]
    swapped = [step for step in changes if step.startswith("rename") and step.endswith(".log.swap")]
    assert len(swapped) >= 2, "several groups"
    assert any(".txnindex" in step for step in changes)
    assert len([step for step in changes if step.endswith(".log.deleted")]) > len(swapped)
    assert set(host.hits) >= {name for name in DECLARED if name.startswith("cleaner.")}
    log.log.abandon()
    check(tmp_path, model, end, point)


def test_crash_before_any_change_of_the_disk_loses_no_record(
    tmp_path: Path, prepared_folder: tuple[Path, Model, int, int]
) -> None:
    rest, model, end, point = prepared_folder
    crash_points: list[str] = []
    for number in range(1000):
        folder = tmp_path / str(number)
        log, host = compaction(folder, rest)
        host.disk.steps = number
        where = crashes(log.clean, host)
        log.log.abandon()
        if not where:
            break
        crash_points.append(where)
        check(folder, model, end, point if number % 2 else 0)
        shutil.rmtree(folder)
    assert len(crash_points) > 50
    assert set(crash_points) == {"create", "append", "map", "truncate", "rename", "sync", "replace"}


def test_crash_at_any_failpoint_loses_no_record(tmp_path: Path, prepared_folder: tuple[Path, Model, int, int]) -> None:
    rest, model, end, point = prepared_folder
    crash_points: list[str] = []
    for number in range(1000):
        folder = tmp_path / str(number)
        log, host = compaction(folder, rest)
        host.crashes_at = number
        where = crashes(log.clean, host)
        log.log.abandon()
        if not where:
            break
        crash_points.append(where)
        check(folder, model, end, point)
        shutil.rmtree(folder)
    assert set(crash_points) == {name for name in DECLARED if name.startswith("cleaner.")}


def test_crash_during_a_swap_leaves_no_abort_without_its_marker(tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    log = Compaction(str(rest / "orders-0"), TOPIC)
    log.put((b"a", b"aborted"), producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(9, commit=False)
    for count in range(2):  # the data is removed, then its abort, while the marker gets a delete horizon
        log.put((b"b", b"%d" % count))
        log.put((b"a", b"live"), producer_id=9, producer_epoch=1, base_sequence=count)
        log.log.roll()
        if count < 1:
            assert log.clean()
            log.host.clock.now += 10
    log.put((b"c", b""))
    log.log.close()
    ends: set[int] = set()
    for number in range(1000):
        folder = tmp_path / str(number)
        again, host = compaction(folder, rest)
        assert again.log.aborted_transactions(Offset(0), again.log.log_end_offset)
        host.disk.steps = number
        if not crashes(again.clean, host):
            break
        after = StorageHost().open(again.folder, again.topic, clean=False, recovery_point=10**6)
        batches = read_batches(after)
        markers = {header.base_offset for header, inside in batches if inside and header.is_control}
        aborted = after.aborted_transactions(Offset(0), after.log_end_offset)
        assert {transaction.last_offset for transaction in aborted} <= markers
        ends.add(len(aborted))
    assert ends == {0, 1}
