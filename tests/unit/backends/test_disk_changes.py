"""Changes of the disk of a broker that ends: made once, when it is dead, and before it starts again."""

from __future__ import annotations

from typing import Any

import pytest
from fake_system import FakeProcess
from harrow.faults.controls import DiskChange, DiskPowerLoss, EmptyFolders, FileDamage, PartialPowerLoss
from harrow.harness.backends.disk_changes import DiskChanges

DAMAGE = FileDamage(damages=("missing-index",), partitions=("orders-0",), seed="1")


class Bench:
    """A process that ends when the test says so, and the changes that were made."""

    def __init__(self) -> None:
        self.process = FakeProcess()
        self.process.ends_slowly = True
        self.made: list[Any] = []
        kinds: tuple[type[DiskChange], ...] = (FileDamage, EmptyFolders, DiskPowerLoss, PartialPowerLoss)
        self.disk = DiskChanges(self.process, dict.fromkeys(kinds, self.make))

    def make(self, change: Any) -> dict[str, Any]:
        self.made.append(change)
        return {"number": len(self.made)}


def test_a_change_is_made_once_and_not_before_the_process_is_dead() -> None:
    bench = Bench()
    assert bench.disk.changed(FileDamage) is None
    bench.disk.end_with(DAMAGE, clean=True)
    assert bench.process.actions == ["terminate"]
    assert bench.disk.changed(FileDamage) is None
    assert bench.made == []
    bench.process.state = "dead"
    assert bench.disk.changed(FileDamage) == {"number": 1}
    assert bench.disk.changed(FileDamage) == {"number": 1}
    assert bench.made == [DAMAGE]


def test_a_change_that_no_probe_looked_at_is_made_before_the_start() -> None:
    bench = Bench()
    bench.disk.end_with(EmptyFolders())
    assert bench.process.actions == ["kill"]
    bench.disk.make()
    assert bench.made == [EmptyFolders()]
    bench.process.start()
    assert bench.disk.changed(EmptyFolders) == {"number": 1}


def test_changes_of_two_faults_have_facts_of_their_own() -> None:
    bench = Bench()
    bench.disk.end_with(DiskPowerLoss(seed="1"))
    bench.disk.end_with(EmptyFolders())
    assert bench.disk.changed(DiskPowerLoss) == {"number": 1}
    assert bench.disk.changed(EmptyFolders) == {"number": 2}
    assert bench.disk.changed(FileDamage) is None


def test_the_facts_of_an_earlier_change_are_forgotten_when_another_of_its_class_is_planned() -> None:
    bench = Bench()
    bench.disk.end_with(DiskPowerLoss(seed="1"))
    assert bench.disk.changed(DiskPowerLoss) == {"number": 1}
    bench.process.state = "running"
    bench.process.ends_slowly = True
    bench.disk.end_with(DiskPowerLoss(seed="2"))
    bench.process.state = "running"
    assert bench.disk.changed(DiskPowerLoss) is None
    bench.process.state = "dead"
    assert bench.disk.changed(DiskPowerLoss) == {"number": 2}


@pytest.mark.parametrize("asked", [DiskPowerLoss, PartialPowerLoss])
def test_a_partial_power_loss_is_a_power_loss(asked: type[DiskPowerLoss]) -> None:
    bench = Bench()
    bench.disk.end_with(PartialPowerLoss(seed="1", kept_fraction=0.5))
    assert bench.disk.changed(asked) == {"number": 1}
