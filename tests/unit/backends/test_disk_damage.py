"""Damage to the files of a log: which files each damage changes, where it may, and that the log opens again."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.host.knobs.disk_faults import DiskFaults
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Origin
from harrow.cluster.storage.checkpoints import OffsetCheckpoint
from harrow.cluster.storage.files import RECOVERY_POINTS, offset_of
from harrow.cluster.wire.batches import build_batch
from harrow.faults.controls import FileDamage
from harrow.faults.damage_faults import DAMAGES, OF_CHECKPOINTS, OF_RECORDS
from harrow.harness.backends.disk_damage import ACTS, damaged
from log_damage import NOW, TOPIC
from storage_host import StorageHost

PARTITION = TopicPartition("orders", 0)
RECORDS = 24
POINT = 11


def killed_log(data: Path, point: int = POINT) -> dict[str, bytes]:
    """A log of several segments that was not closed; the contents of its data folder."""
    data.mkdir(exist_ok=True)
    log = StorageHost().open(str(data / "orders-0"), TOPIC)
    for number in range(RECORDS):
        batch = build_batch(
            [(b"k", b"%d" % number * 30, ())],
            timestamp_ms=NOW + number,
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=False,
        )
        log.append_as_leader(batch, LeaderEpoch(0), origin=Origin.CLIENT)
    checkpoint = OffsetCheckpoint(RealDisk(DiskFaults()), str(data / RECOVERY_POINTS))
    checkpoint.write({PARTITION: Offset(point)})
    return contents(data)


def contents(data: Path) -> dict[str, bytes]:
    files = (path for path in data.rglob("*") if path.is_file())
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def damage(data: Path, *damages: str, seed: str = "1") -> dict[str, str]:
    """The files that were damaged, relative to the data folder."""
    done = damaged(
        RealDisk(DiskFaults()), [str(data)], FileDamage(damages=damages, partitions=("orders-0",), seed=seed)
    )
    return {str(Path(path).relative_to(data)): what for path, what in done["files"].items()}


def test_each_damage_has_an_act() -> None:
    assert list(ACTS) == list(DAMAGES)


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_damage_changes_the_files_that_it_reports_and_no_others(tmp_path: Path, name: str, seed: str) -> None:
    data = tmp_path / "data"
    before = killed_log(data)
    reported = damage(data, name, seed=seed)
    after = contents(data)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed == set(reported)
    assert changed
    in_log = {path.startswith("orders-0/") for path in changed}
    assert in_log == {name not in OF_CHECKPOINTS}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_the_log_opens_again_and_has_all_below_the_recovery_point(tmp_path: Path, name: str, seed: str) -> None:
    data = tmp_path / "data"
    killed_log(data)
    damage(data, name, seed=seed)
    log = StorageHost().open(str(data / "orders-0"), TOPIC, recovery_point=POINT, clean=False)
    least = POINT if name in OF_RECORDS else RECORDS
    assert least <= log.log_end_offset <= RECORDS
    if name in ("bit-flip", "torn-write", "short-write"):
        assert log.log_end_offset < RECORDS


@pytest.mark.parametrize("name", OF_RECORDS)
def test_records_that_an_fsync_has_reached_are_not_damaged(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    before = killed_log(data, point=RECORDS)
    assert damage(data, name) == {}
    assert damage(data, "corrupt-index") == {}
    assert contents(data) == before


def test_the_first_damage_that_finds_a_file_is_done(tmp_path: Path) -> None:
    data = tmp_path / "data"
    killed_log(data, point=RECORDS)
    (path,) = damage(data, "bit-flip", "torn-write", "missing-checkpoint", "missing-index")
    assert path == RECOVERY_POINTS


def test_a_bit_flips_in_a_batch_at_or_above_the_recovery_point(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = killed_log(data)
    bases = sorted(b for path in before if (b := offset_of(Path(path).name, ".log")) is not None)
    unsynced = {base for base, end in zip(bases, [*bases[1:], RECORDS], strict=True) if end > POINT}
    for seed in range(20):
        ((path, what),) = damage(data, "bit-flip", seed=str(seed)).items()
        assert offset_of(Path(path).name, ".log") in unsynced
        old, new = before[path], (data / path).read_bytes()
        ((at, flipped),) = [(at, a ^ b) for at, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        assert flipped.bit_count() == 1
        assert what == f"bit {flipped.bit_length() - 1} of byte {at}"
        (data / path).write_bytes(old)
