"""Crashes while a broker starts (K6): at each failpoint of recovery, at each hit, twice in a row, with power losses.

The first test is `test_log_damage.py` with crashes: a damaged folder is opened, and the opening crashes at a drawn hit
of any failpoint. The second has the logs of a broker whose power is lost at such a hit.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from fragile_broker import CONFIG, LogsUnderPowerLoss
from harrow.cluster.host.power_loss.roll_back import lose_power
from harrow.cluster.host.power_loss.tracked_disk import TrackedDisk
from harrow.cluster.host.seam.failpoints import DECLARED, RECOVERY
from harrow.cluster.storage import LogManager
from log_damage import STEPS, Damage, History, check
from storage_host import RecordedNotes, StorageHost, close_all

OPENING = {name for name in DECLARED if name.startswith(RECOVERY)}
OPENING_OF_A_FOLDER = {
    "recovery.after-marker-removal",
    "recovery.after-checkpoints",
    "recovery.before-log",
    "recovery.before-lower-checkpoints",
    "recovery.after-logs",
}
ELSEWHERE = {
    "recovery.before-deleted-folder": "test_log_manager.py",
    "recovery.before-split": "test_rolls.py",
    "recovery.before-gap-closing": "test_gaps.py",
    "recovery.after-high-watermarks": "test_faults_in_simulations.py",
}
OPENING_OF_A_LOG = OPENING - OPENING_OF_A_FOLDER - set(ELSEWHERE)
SEEDS = (0, 2, 4, 5, 15, 17, 25, 131)
"""Together they reach every failpoint of `OPENING_OF_A_LOG` that damage reaches often."""
RARE = {"recovery.before-swap-rename", "recovery.before-start-over"}


class CrashError(Exception):
    """The process ends here."""


class CrashingNotes(RecordedNotes):
    """Failpoints of recovery of which the `nth` hit is a crash; of all, or of the one called `name`."""

    def __init__(self, nth: int, name: str) -> None:
        super().__init__()
        self.nth, self.name = nth, name

    def hit(self, name: str) -> None:
        super().hit(name)
        if name == self.name or (not self.name and name in OPENING):
            self.nth -= 1
            if self.nth == 0:
                raise CrashError(name)


def crashing_host(nth: int, name: str = "") -> StorageHost:
    host = StorageHost()
    host.notes = host.trace = host.failpoints = CrashingNotes(nth, name)
    return host


def crash_in_reopen(history: History, nth: int, reached: Counter[str], name: str = "") -> bool:
    """Open the log of `history` until the `nth` hit; False where opening has fewer hits."""
    host = crashing_host(nth, name)
    try:
        log = history.reopen_on(host)
    except CrashError:
        reached[host.notes.hits[-1]] += 1
        history.clean = False
        return True
    log.abandon()
    return False


def attack(seed: int, reached: Counter[str]) -> None:
    """Damage the folder of a random log, let two openings crash, and check what a third one finds."""
    with tempfile.TemporaryDirectory() as tmp:
        chance = random.Random(seed)
        history = History(Path(tmp) / "orders-0", chance)
        for _ in range(chance.randint(0, 45)):
            history.operations[chance.choice(STEPS)]()
        clean = chance.random() < 0.4
        history.stop(clean=clean)
        checkpoint = chance.choice(["as written", "missing"] if not clean else ["as written"])
        if checkpoint == "missing":
            history.point = history.start = 0
        damage = Damage(history.folder, chance, history.point, history.kept)
        hurt = chance.choice(["", "torn", "zeroed", "random"])
        if hurt and not clean:
            damage.log_kinds[hurt]()
        others = sorted(chance.sample(sorted(damage.other_kinds), chance.randint(0, 4)))
        for name in others:
            if name != "swap" or not hurt:
                damage.other_kinds[name]()
        for _ in range(2):
            crash_in_reopen(history, chance.randint(1, 14), reached)
        log = history.reopen()
        check(log, history, damage)
        log.abandon()


@pytest.mark.usefixtures("journal_only")
def test_crashes_of_the_opening_lose_no_batch_before_the_damage() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        attack(seed, reached)
        close_all()
    assert set(reached) == OPENING_OF_A_LOG - RARE


def appended(folder: Path, count: int = 30) -> History:
    """A log in several segments."""
    history = History(folder / "orders-0", random.Random(1))
    for _ in range(count):
        history.append()
    return history


@pytest.mark.parametrize("name", sorted(RARE))
def test_a_crash_at_a_rare_failpoint_loses_nothing(tmp_path: Path, name: str) -> None:
    history = appended(tmp_path)
    swaps = name == "recovery.before-swap-rename"
    history.stop(clean=swaps)
    damage = Damage(history.folder, random.Random(3), history.point, history.kept)
    if swaps:
        damage.swap()
        assert list(history.folder.glob("*.swap"))
    else:
        history.start = history.kept[-1].last + 5
        damage.first_bad = 0
    reached: Counter[str] = Counter()
    assert crash_in_reopen(history, 1, reached, name)
    assert reached == {name: 1}
    log = history.reopen()
    check(log, history, damage)
    assert log.log_end_offset == (history.kept[-1].last + 1 if swaps else history.start)
    log.abandon()


# ------------------------------------------------------------------------------- all logs of a broker


class LogsOfCrashingStarts(LogsUnderPowerLoss):
    """The logs of a broker whose starts crash."""

    def start(self, nth: int, reached: Counter[str]) -> bool:
        """Load the logs until the `nth` hit of a failpoint; False where loading has fewer hits."""
        self.epoch += 1
        self.host = crashing_host(nth)
        self.disk = TrackedDisk(str(self.folder / "unsynced"), [str(self.data)])
        self.host.disk = self.disk  # type: ignore[assignment]
        self.logs = LogManager(self.host.host, str(self.data), CONFIG)
        try:
            self.logs.load()
        except CrashError:
            reached[self.host.notes.hits[-1]] += 1
            return True
        return False

    def end(self, seed: int, *, clean: bool, power: bool) -> None:
        """End the process, and take the power away with `power`."""
        self.logs.close(clean=clean)
        for call in self.host.tasks.spawned:
            call.close()
        self.disk.close()
        if power:
            lose_power(str(self.folder / "unsynced"), seed=seed, keep=None)

    def leave_leftovers(self) -> None:
        """Delete a replica, whose folder is removed later, and leave files of a compaction."""
        log = self.log(self.rng.randrange(3))
        name = max(Path(log.folder).glob("*.log"))
        for suffix in self.rng.sample([".log.deleted", ".log.cleaned", ".timeindex.cleaned"], 2):
            (name.parent / f"{name.stem}{suffix}").write_bytes(b"left")


def attack_with_power_losses(seed: int, reached: Counter[str]) -> None:
    """Let starts crash, twice in a row, with and without a power loss; every acknowledged record survives."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as tmp:
        policy: dict[str, object] = rng.choice([{}, {"flush.messages": 1}])
        logs = LogsOfCrashingStarts(Path(tmp), rng, policy and {**policy, "internal.segment.bytes": 20_000})
        for round_ in range(3):
            for _ in range(rng.randint(1, 40)):
                logs.step()
            if rng.random() < 0.3:
                logs.leave_leftovers()
            logs.end(seed * 100 + round_, clean=rng.random() < 0.3, power=rng.random() < 0.7)
            for again in range(2):
                logs.start(rng.randint(1, 25), reached)
                number = seed * 100 + round_ * 10 + again
                logs.end(number, clean=False, power=rng.random() < 0.7)
            logs.begin()
            for number in range(3):
                found = logs.check(number)
                waits = logs.log(number).awaits_fsync
                logs.acknowledged[number] = {} if waits else found
                logs.log(number).flush()
        logs.stop()


@pytest.mark.usefixtures("journal_only")
def test_power_losses_of_crashing_starts_keep_acknowledged_records() -> None:
    reached: Counter[str] = Counter()
    for seed in (0, 1, 4, 9, 24):
        attack_with_power_losses(seed, reached)
        close_all()
    assert set(reached) >= OPENING_OF_A_FOLDER
